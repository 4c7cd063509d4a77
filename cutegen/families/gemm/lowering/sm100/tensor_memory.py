"""Tensor memory: how many sums of a tile it holds, and the columns that a CTA allocates for them.

Source: PTX ISA, "Tensor Memory" and tcgen05.alloc: 512 columns of 128 lanes of 32 bits; powers of two from 32 on.
"""

from __future__ import annotations

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem

MIN_COLUMNS = 32  # that tcgen05.alloc allocates


def accumulators(problem: GemmProblem, c: Candidate) -> int:
    """Sums of a tile: while one is stored the next is computed, where both fit."""
    return 2 if 2 * c.tile[1] <= problem.target.tensor_memory else 1


def columns(problem: GemmProblem, c: Candidate) -> int:
    """Columns that a CTA allocates."""
    needed = accumulators(problem, c) * c.tile[1]
    return max(MIN_COLUMNS, 1 << (needed - 1).bit_length())
