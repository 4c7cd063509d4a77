"""Reductions in the kernel module: what a tile publishes, which tiles wait for each other, what the last one joins."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import Reduction
from cutegen.families.gemm.text.groups import GroupText


@dataclass(frozen=True, slots=True)
class ReductionText:
    """A reduced output.

    kept: the dim that it has, "m", "n" or "". values: how many a thread holds; index: which of them element i of a
    fragment is joined to; inside: whether the element counts. gmem: the tensor of this batch index. smem: its shape in
    shared memory without the bracket's end, "" without; smem_factor: the product of it.
    """

    name: str
    op: str
    modes: str
    gmem: str
    kept: str
    index: str
    inside: str
    smem: str
    smem_factor: str
    values: str


@dataclass(frozen=True, slots=True)
class JoinText:
    """Reductions whose tiles wait for each other, as source.

    tiles: how many there are to join, and that number's name; both: along m and n, where they are of the whole product.
    length: of a line of partial results, and its name; line: where this tile's begins. origin: its first row or column;
    limit: one past the last that counts; extent: rows or columns of a tile. counters: where they begin, "" at the
    first; counter: the tile's. first: where the first partial result is.
    """

    kept: str
    reductions: tuple[ReductionText, ...]
    tiles_name: str
    tiles: str
    both: tuple[str, ...]
    length_name: str
    length: str
    origin: str
    line: str
    limit: str
    extent: str
    counters: str
    counter: str
    first: str

    @property
    def ragged(self) -> bool:
        """Whether tiles begin where their group does, so that its end may lie before them."""
        return self.limit == "end"


_NAMES = {"m": "rows", "n": "columns"}


def reduction_text(r: Reduction, groups: GroupText | None, columns: str, warps: str) -> ReductionText:
    """columns: of a tile of the output, as source. warps: of a group of threads."""
    gmem = f"o.m_{r.name}[None, batch]" if r.batched and r.kept else f"o.m_{r.name}"
    if groups and groups.ragged:
        gmem = f"row_groups.up_to(o.m_{r.name}, end)"
    index = {"m": "2 * subtile_m + i // 2 % 2", "n": "i // 4 * 2 + i % 2", "": "0"}[r.kept]
    inside = {"m": "inside", "n": "inside_m", "": "inside & inside_m"}[r.kept]
    factored = f"({columns})" if "//" in columns else columns
    smem = {"m": "", "n": f"({columns}, {warps}", "": f"(1, {warps}"}[r.kept]
    factor = {"m": "", "n": f"{factored} * {warps}", "": warps}[r.kept]
    modes = ", ".join((*([r.kept] if r.kept else []), *(["batch"] if r.batched else [])))
    values = {"m": "2 * subtiles_m", "n": "values // 2", "": "1"}[r.kept]
    return ReductionText(r.name, r.op, modes, gmem, r.kept, index, inside, smem, factor, values)


def join_texts(
    reductions: tuple[ReductionText, ...], groups: GroupText | None, batched: bool, rows: str, columns: str
) -> tuple[JoinText, ...]:
    """One for each kind that there is. batched: whether a tile has a batch index, of which outputs have a member."""
    raster = "o.raster.bound" if groups else "o.raster"
    tiles = {axis: f"{raster}.tiles_{axis} * t.cluster[{i}]" for i, axis in enumerate("mn")}
    extents = {"m": rows, "n": columns}
    found: list[JoinText] = []
    counters = ""  # of the kinds before
    for kept, of_batch in (("m", batched), ("n", batched), ("", True), ("", False)):
        own = tuple(r for r in reductions if r.kept == kept and (kept or of_batch == (r.modes == "batch")))
        if not own:
            continue
        ragged = groups is not None and groups.ragged
        plus = "counters + " if counters else ""
        if not kept:
            join = JoinText(
                kept="", reductions=own, tiles_name="tiles", length_name="", length="", limit="", extent="",
                tiles="tiles_m * tiles_n" + f" * {raster}.batches" * (batched and not of_batch),
                both=(tiles["m"], tiles["n"]), origin="batch" if of_batch else "0",
                line="(batch * tiles_m + m) * tiles_n + n" if batched else "m * tiles_n + n", counters=counters,
                counter=f"{plus}batch" if of_batch else plus.removesuffix(" + ") or "Int32(0)",
                first="batch * tiles" if of_batch else "Int32(0)",
            )  # fmt: skip
            size = f"{raster}.batches" if of_batch else "1"
        else:
            other, extent = "n" if kept == "m" else "m", extents[kept]
            name, length = f"tiles_{other}", _NAMES[kept]
            factor = f"({extent})" if " " in extent else extent
            index = "origin" if ragged else f"batch * {tiles[kept]} + {kept}" if batched else kept
            join = JoinText(
                kept=kept, reductions=own, tiles_name=name, tiles=tiles[other], both=(), length_name=length,
                length=f"o.m_{own[0].name}.shape[0]", origin=f"{groups.row(kept) if groups else ''}{kept} * {factor}",
                line=f"(batch * {name} + {other})" if batched else other, limit="end" if ragged else length,
                extent=extent, counters=counters, counter=plus + index,
                first=f"batch * {name} * {length}" if batched else "Int32(0)",
            )  # fmt: skip
            size = f"{raster}.batches * {tiles[kept]}" if batched else tiles[kept]
        found.append(join)
        counters = f"counters + {size}" if counters else size
    return tuple(found)
