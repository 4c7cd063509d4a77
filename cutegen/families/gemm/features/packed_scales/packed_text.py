"""Scales of the tensor core in the kernel module."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.problem import GemmProblem


@dataclass(frozen=True, slots=True)
class PackedText:
    """What the templates read as k.packed, of A, then of B. side: the dim of its rows; depth: elements of k with one
    factor. paired: its rows are those of pairs, half of all rows apart."""

    name: str
    side: str
    dtype: str
    depth: int
    batched: bool
    paired: bool


def packed_text(problem: GemmProblem) -> tuple[PackedText, ...]:
    return tuple(
        PackedText(s.name, side, s.dtype.cutlass, s.block, s.batched, side == problem.paired_dim)
        for s, side in zip(problem.packed_scales, "mn")
    )
