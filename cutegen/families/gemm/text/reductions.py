"""Reductions in the kernel module: what a tile publishes, which tiles wait for each other, what the last one joins."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import Reduction
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.consumers import ConsumersText
from cutegen.families.gemm.text.expressions import ROW_OF_ELEMENT
from cutegen.families.gemm.text.groups import GroupText
from cutegen.families.gemm.text.output_tile import OutputTileText


@dataclass(frozen=True, slots=True)
class ReductionText:
    """A reduced output.

    kept: the dim that it has, "m", "n" or "". values: how many a thread holds; index: which of them element i of a
    fragment is joined to; inside: whether the element counts. gmem: the tensor of this batch index. partial: what the
    scratch has one value per. smem: the group's part of what warps have of it in shared memory; smem_modes, smem_shape:
    of all, "" where registers do.
    """

    name: str
    op: str
    modes: str
    gmem: str
    kept: str
    index: str
    inside: str
    partial: str
    smem: str
    smem_modes: str
    smem_shape: str
    values: str


@dataclass(frozen=True, slots=True)
class JoinText:
    """Reductions whose tiles wait for each other, as source.

    tiles: how many there are to join, and that number's name; tiles_of_both: along m and n, where they are of the whole
    product. length: of a line of partial results, and its name. origin: the tile's first row or column, or the batch
    index; limit: one past the last that counts; extent: rows or columns of a tile. number: of the tile's line of
    partial results, or of its one. first_partial: where those begin that the last tile joins. counters: where counters
    of this kind begin, "" at the first; counter: the tile's; shared_by: tiles that a counter is of, in words.
    """

    kept: str
    reductions: tuple[ReductionText, ...]
    tiles_name: str
    tiles: str
    tiles_of_both: tuple[str, ...]
    length_name: str
    length: str
    origin: str
    limit: str
    extent: str
    number: str
    first_partial: str
    counters: str
    counter: str
    shared_by: str

    @property
    def ragged(self) -> bool:
        """Whether tiles begin where their group does, so that its end may lie before them."""
        return self.limit == "end"


@dataclass(frozen=True, slots=True)
class ReductionsText:
    """What the templates read as k.reductions. masks_rows, masks_columns: whether elements past the last row or column
    of the product are told from others. arrivals: what the counters of tiles are of, in words. ticket: where a group's
    threads read whether its tile is the last, ticket_shape: of all groups."""

    outputs: tuple[ReductionText, ...]
    joins: tuple[JoinText, ...]
    masks_rows: bool
    masks_columns: bool
    ticket: str
    ticket_shape: str

    @property
    def arrivals(self) -> str:
        return ", ".join(join.shared_by for join in self.joins)

    @property
    def scratch(self) -> tuple[str, ...]:
        """Names of the scratch arguments: partial results and the counters."""
        return (*(f"p_{r.name}" for r in self.outputs), "arrivals") if self.outputs else ()


_NAMES = {"m": "rows", "n": "columns"}


def reductions_text(
    problem: GemmProblem, tile: OutputTileText, consumers: ConsumersText, groups: GroupText | None
) -> ReductionsText:
    """In the kernel's frame."""
    found = tuple(_reduction(r, tile, consumers, groups) for r in problem.kernel_epilogue.reductions)
    batched = problem.batch is not None and not (problem.groups and problem.groups.flat)
    return ReductionsText(
        outputs=found,
        joins=_joins(found, groups, batched, tile),
        masks_rows=any(r.kept != "m" for r in found),
        masks_columns=any(r.kept != "n" for r in found),
        ticket=consumers.own("o.s_ticket", 1),
        ticket_shape=consumers.shape("1"),
    )


def _reduction(r: Reduction, tile: OutputTileText, consumers: ConsumersText, groups: GroupText | None) -> ReductionText:
    gmem = f"o.m_{r.name}[None, batch]" if r.batched and r.kept else f"o.m_{r.name}"
    staged = {"m": (), "n": (tile.columns, consumers.warps), "": ("1", consumers.warps)}[r.kept]
    return ReductionText(
        name=r.name,
        op=r.op,
        modes=", ".join((*([r.kept] if r.kept else []), *(["batch"] if r.batched else []))),
        gmem=f"row_groups.up_to(o.m_{r.name}, end)" if groups and groups.ragged else gmem,
        kept=r.kept,
        index={"m": ROW_OF_ELEMENT, "n": "i // 4 * 2 + i % 2", "": "0"}[r.kept],
        inside={"m": "inside", "n": "inside_m", "": "inside & inside_m"}[r.kept],
        partial={"m": "row and tile", "n": "column and tile", "": "tile"}[r.kept],
        smem=consumers.own(f"o.s_{r.name}", 2),
        smem_modes={"m": "", "n": "bN, warps", "": "1, warps"}[r.kept] + consumers.group_index,
        smem_shape=consumers.shape(*staged) if staged else "",
        values={"m": "2 * subtiles_m", "n": "values // 2", "": "1"}[r.kept],
    )


def _joins(
    reductions: tuple[ReductionText, ...], groups: GroupText | None, batched: bool, tile: OutputTileText
) -> tuple[JoinText, ...]:
    """One for each kind that there is. batched: whether a tile has a batch index, of which outputs have a member."""
    raster = "o.raster.bound" if groups else "o.raster"
    tiles = {axis: f"{raster}.tiles_{axis} * t.cluster[{i}]" for i, axis in enumerate("mn")}
    extents, origins = {"m": tile.rows, "n": tile.columns}, {"m": tile.first_row, "n": tile.first_column}
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
                tiles_of_both=(tiles["m"], tiles["n"]), origin="batch" if of_batch else "0",
                number="(batch * tiles_m + m) * tiles_n + n" if batched else "m * tiles_n + n", counters=counters,
                counter=f"{plus}batch" if of_batch else plus.removesuffix(" + ") or "Int32(0)",
                first_partial="batch * tiles" if of_batch else "Int32(0)", shared_by="in all",
            )  # fmt: skip
            size = f"{raster}.batches" if of_batch else "1"
        else:
            other = "n" if kept == "m" else "m"
            name, length = f"tiles_{other}", _NAMES[kept]
            index = "origin" if ragged else f"batch * {tiles[kept]} + {kept}" if batched else kept
            join = JoinText(
                kept=kept, reductions=own, tiles_name=name, tiles=tiles[other], tiles_of_both=(), length_name=length,
                length=f"o.m_{own[0].name}.shape[0]", origin=origins[kept], extent=extents[kept],
                number=f"(batch * {name} + {other})" if batched else other, limit="end" if ragged else length,
                counters=counters, counter=plus + index,
                first_partial=f"batch * {name} * {length}" if batched else "Int32(0)",
                shared_by=f"per {length.removesuffix('s')} of tiles",
            )  # fmt: skip
            size = f"{raster}.batches * {tiles[kept]}" if batched else tiles[kept]
        found.append(join)
        counters = f"counters + {size}" if counters else size
    return tuple(found)
