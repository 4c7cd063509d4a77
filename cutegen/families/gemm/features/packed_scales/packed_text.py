"""Scales of the tensor core in the kernel module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutegen.families.gemm.problem import GemmProblem
from cutegen.runtime.gemm.scale_packing import ROWS


@dataclass(frozen=True, slots=True)
class PackedText:
    """What the templates read as k.packed, of A, then of B. side: the dim of its rows; depth: elements of k with one
    factor. paired: its rows are those of pairs, half of all rows apart. halved: whether a tile may begin or end in the
    middle of a chunk."""

    name: str
    side: str
    dtype: str
    depth: int
    batched: bool
    paired: bool
    halved: bool


def packed_text(problem: GemmProblem, tiles: Sequence[tuple[int, int, int]]) -> tuple[PackedText, ...]:
    """tiles: those of the kernel's tilings, in its frame."""
    return tuple(
        PackedText(
            s.name,
            side,
            s.dtype.cutlass,
            s.block,
            s.batched,
            paired=side == problem.paired_dim,
            halved=side == "n" and any(n % ROWS for _, n, _ in tiles),
        )
        for s, side in zip(problem.packed_scales, "mn")
    )
