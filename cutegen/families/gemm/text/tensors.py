"""The tensors of a GEMM in the kernel module: their names, modes and layouts."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import Operand, Output
from cutegen.families.gemm.problem import BlockScale, RowGather
from cutegen.families.generated_names import tensor_stem


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

    @property
    def gmem(self) -> str:
        """The whole tensor in the kernel, with its modes."""
        return f"m{tensor_stem(self.name)}_mn{'l' * self.batched}"


@dataclass(frozen=True, slots=True)
class VectorText:
    """A row or column vector in the kernel module, along dim m or n. index: the tensor that names its rows, "" where
    none does."""

    name: str
    dim: str
    batched: bool
    index: str


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


def vector_text(o: Operand, gather: RowGather | None) -> VectorText:
    """gather: what names its rows, where it has those of a gathered operand."""
    dim = "n" if o.kind == "row_vector" else "m"
    return VectorText(
        name=o.name,
        dim=dim,
        batched=o.batched,
        index=gather.index if gather else "",
    )


def scale_modes(s: BlockScale, rows: str) -> str:
    """The modes of a scale of blocks in the kernel module."""
    return f"{rows}{'' if s.by_row else ' blocks'}, k blocks" + ", batch" * s.batched
