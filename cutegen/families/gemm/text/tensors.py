"""The tensors of a GEMM in the kernel module: their names, modes and layouts."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import Operand, Output
from cutegen.families.gemm.problem import BlockScale, MatrixOperand, RowGather


@dataclass(frozen=True, slots=True)
class MatrixText:
    """A or B in the kernel module. box: what one copy brings, extents along the rows and k. gathered: threads copy its
    rows, by an index. product_rows: extent that the product has of it, in the host function."""

    name: str
    box: str
    dtype: str
    modes: str
    k_major: bool
    mma_major: str
    gathered: bool
    product_rows: str


@dataclass(frozen=True, slots=True)
class TileText:
    """An output or a TMA-loaded epilogue tile in the kernel module. bulk: TMA moves it; adds: to what is there."""

    name: str
    dtype: str
    modes: str
    n_major: bool
    batched: bool
    bulk: bool
    adds: bool


@dataclass(frozen=True, slots=True)
class VectorText:
    """A row or column vector in the kernel module, along dim m or n. index, index_modes: of the tensor that names its
    rows, "" where none does."""

    name: str
    dim: str
    modes: str
    smem_modes: str
    batched: bool
    index: str
    index_modes: str


def matrix_text(t: MatrixOperand, rows: str, *, paired: bool = False, gathered_by: str | None = None) -> MatrixText:
    """rows: the dim of them, m or n. paired: they are seen as (pairs, 2). gathered_by: the index that names them."""
    seen = f"({rows}/2, 2)" if paired else "rows" if gathered_by else rows
    return MatrixText(
        name=t.name,
        box=f"((tile_{rows} // 2, 2), tile_k)" if paired else f"(tile_{rows}, tile_k)",
        dtype=t.dtype.cutlass,
        modes=f"{seen}, k" + ", batch" * t.batched,
        k_major=t.major == "k",
        mma_major="K" if t.major == "k" else "MN",
        gathered=gathered_by is not None,
        product_rows=f"{gathered_by}.shape[0]"
        if gathered_by
        else f"cute.size({t.name}, mode=[0])"
        if paired
        else f"{t.name}.shape[0]",
    )


def tile_text(t: Operand | Output, paired_dim: str) -> TileText:
    dims = [f"{dim}/2" if t.half and dim == paired_dim else dim for dim in "mn"]
    return TileText(
        name=t.name,
        dtype=t.dtype.cutlass,
        modes=", ".join((*dims, *["batch"] * t.batched)),
        n_major=t.major == "n",
        batched=t.batched,
        bulk=not (isinstance(t, Output) and t.direct),
        adds=isinstance(t, Output) and t.adds,
    )


def vector_text(o: Operand, group_index: str, gather: RowGather | None) -> VectorText:
    """gather: what names its rows, where it has those of a gathered operand."""
    dim = "n" if o.kind == "row_vector" else "m"
    return VectorText(
        name=o.name,
        dim=dim,
        modes=("rows" if gather else dim) + ", batch" * o.batched,
        smem_modes=f"b{dim.upper()}{group_index}",
        batched=o.batched,
        index=f"m_{gather.index}" if gather else "",
        index_modes=gather.along if gather else "",
    )


def scale_modes(s: BlockScale, rows: str) -> str:
    """The modes of a scale of blocks in the kernel module."""
    return f"{rows}{'' if s.by_row else ' blocks'}, k blocks" + ", batch" * s.batched
