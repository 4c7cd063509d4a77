"""Scales of the tensor core in the kernel module."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.generated_names import tensor_stem


@dataclass(frozen=True, slots=True)
class PackedText:
    """What the templates read as k.packed, of A, then of B. end: as names of its atom, tensor and ring end; side: the
    dim of its rows. paired: they are those of pairs, half of all rows apart."""

    name: str
    end: str
    side: str
    dtype: str
    block: int
    batched: bool
    paired: bool

    @property
    def gmem(self) -> str:
        return f"m{self.end}"

    @property
    def modes(self) -> str:
        return f"words, chunks k, chunks {self.side}" + ", batch" * self.batched

    @property
    def ring_modes(self) -> str:
        return f"words, chunks bK, chunks b{self.side.upper()}, stages"


def packed_text(problem: GemmProblem) -> tuple[PackedText, ...]:
    return tuple(
        PackedText(s.name, tensor_stem(s.name), side, s.dtype.cutlass, s.block, s.batched, side == problem.paired_dim)
        for s, side in zip(problem.packed_scales, "mn")
    )
