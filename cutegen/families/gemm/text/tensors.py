"""The tensors of a GEMM in the kernel module: their names, modes and the source that takes them apart."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import Operand, Output
from cutegen.families.gemm.problem import BlockScale, RowGather
from cutegen.families.gemm.text.consumers import ConsumersText
from cutegen.families.gemm.text.groups import GroupText
from cutegen.families.gemm.text.output_tile import OutputTileText


@dataclass(frozen=True, slots=True)
class TileText:
    """An output or a TMA-loaded epilogue tile in the kernel module. whole: what its descriptor is made of; source: what
    tiles are cut from, another for each tile (`moving`) where groups begin anywhere; gmem: what threads store to.
    atom: the function that makes the TMA atom of an output."""

    name: str
    dtype: str
    modes: str
    n_major: bool
    bulk: bool
    atom: str
    moving: bool
    whole: str
    source: str
    gmem: str
    all_tiles: str
    rest: str
    batch_coordinate: str


@dataclass(frozen=True, slots=True)
class VectorText:
    """A row or column vector in the kernel module. extent: of a tile, as source; origin: where it begins in the tensor
    of this batch index. smem: a group's part of the copy in shared memory; smem_shape, smem_size: of all;
    smem_element: of element i of a subtile. index, index_modes: of the tensor that names its rows, "" where none
    does; fetch, source: the function of device/vector.py, and what it reads."""

    name: str
    modes: str
    extent: str
    origin: str
    smem: str
    smem_modes: str
    smem_shape: str
    smem_size: str
    smem_element: str
    index: str
    index_modes: str
    fetch: str
    source: str


@dataclass(frozen=True, slots=True)
class BlockInputText:
    """An input with one value for each block of elements. gmem: the tensor of this batch index; row, column: of a
    thread's first element in the product; aligned: whether subtiles begin at multiples of their size."""

    name: str
    modes: str
    gmem: str
    block: str
    row: str
    column: str
    aligned: str


@dataclass(frozen=True, slots=True)
class ScalarText:
    """A scalar on the device. index: of this batch index."""

    name: str
    index: str


def tile_text(t: Operand | Output, groups: GroupText | None, paired_dim: str | None) -> TileText:
    ragged = groups if groups is not None and groups.ragged else None
    dims = [f"{dim}/2" if t.half and dim == paired_dim else dim for dim in "mn"]
    stored, gmem = isinstance(t, Output), f"o.m_{t.name}[None, None, batch]" if t.batched else f"o.m_{t.name}"
    rest = ["subtiles m", "subtiles n", *(["batch"] if t.batched else [])]
    return TileText(
        name=t.name,
        dtype=t.dtype.cutlass,
        modes=", ".join((*dims, *(("batch",) if t.batched else ()))),
        n_major=t.major == "n",
        bulk=not (isinstance(t, Output) and t.direct),
        atom="add_atom" if isinstance(t, Output) and t.adds else "store_atom",
        moving=ragged is not None,
        whole=ragged.view(t.name) if ragged and stored else t.name,
        source=ragged.rows_of(f"o.m_{t.name}", stored=stored) if ragged else f"o.m_{t.name}",
        gmem=ragged.up_to_end(gmem) if ragged else gmem,
        all_tiles=f"({', '.join(['None'] * len(rest))})",
        rest=", ".join(rest),
        batch_coordinate=", batch" if t.batched else "",
    )


def vector_text(o: Operand, consumers: ConsumersText, tile: OutputTileText, gather: RowGather | None) -> VectorText:
    """gather: what names its rows, where it has those of a gathered operand."""
    gmem = f"o.m_{o.name}[None, batch]" if o.batched else f"o.m_{o.name}"
    row = o.kind == "row_vector"
    dim, extent, origin = ("n", tile.columns, tile.first_column) if row else ("m", tile.rows, tile.first_row)
    at = "column + subtile_n * t.epilogue_tile[1] + at_n" if row else "row + subtile_m * t.epilogue_tile[0] + at_m"
    return VectorText(
        name=o.name,
        modes=", ".join(("rows" if gather else dim, *(("batch",) if o.batched else ()))),
        extent=extent,
        origin=origin,
        smem=consumers.own(f"o.s_{o.name}", 1),
        smem_modes=f"b{dim.upper()}{consumers.group_index}",
        smem_shape=consumers.shape(extent),
        smem_size=consumers.size(extent),
        smem_element=f"o.s_{o.name}[{at}{consumers.group_index}]",
        index=f"m_{gather.index}" if gather else "",
        index_modes=gather.along if gather else "",
        fetch="fetch_named" if gather else "fetch",
        source=f"{gmem}, o.m_{gather.index}" if gather else gmem,
    )


def scale_modes(s: BlockScale, rows: str) -> str:
    """The modes of a scale of blocks in the kernel module."""
    return f"{rows}{'' if s.by_row else ' blocks'}, k blocks" + ", batch" * s.batched


def block_input_text(o: Operand, tile: OutputTileText, groups: GroupText | None) -> BlockInputText:
    moved = tuple(groups is not None and groups.moves(dim) for dim in "mn")
    return BlockInputText(
        name=o.name,
        modes="m blocks, n blocks" + ", batch" * o.batched,
        gmem=f"o.m_{o.name}[None, None, batch]" if o.batched else f"o.m_{o.name}",
        block=str(tuple(0 if dim == o.missing else size for dim, size in zip("mn", o.block))),
        row=f"{tile.first_row} + subtile_m * t.epilogue_tile[0] + row",
        column=f"{tile.first_column} + subtile_n * t.epilogue_tile[1] + column",
        aligned=str(tuple(not m for m in moved)),
    )
