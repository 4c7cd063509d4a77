"""Tensor memory: how many sums of a tile it holds next to their scales, and the columns that a CTA allocates.

Source: PTX ISA, "Tensor Memory" and tcgen05.alloc: 512 columns of 128 lanes of 32 bits; powers of two from 32 on.
Scales of tcgen05.mma: those of row r are the word of lane r % 32 and column r / 32, a byte for each block of k.
"""

from __future__ import annotations

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import COLUMN_BYTES, packed_bytes
from cutegen.families.gemm.problem import GemmProblem

MIN_COLUMNS = 32  # that tcgen05.alloc allocates
COPIED_COLUMNS = 4  # by tcgen05.cp.32x128b: of 128 rows


def accumulators(problem: GemmProblem, c: Candidate) -> int:
    """Sums of a tile: while one is stored the next is computed, where both fit."""
    return 2 if 2 * c.tile[1] + sum(scale_columns(problem, c)) <= problem.target.tensor_memory else 1


def scale_columns(problem: GemmProblem, c: Candidate) -> tuple[int, ...]:
    """Columns for scales of A and of B, those of a k tile, behind the sums; () without such scales."""
    return tuple(size // COLUMN_BYTES for size in packed_bytes(problem, c))


def columns(problem: GemmProblem, c: Candidate) -> int:
    """Columns that a CTA allocates."""
    needed = accumulators(problem, c) * c.tile[1] + sum(scale_columns(problem, c))
    return max(MIN_COLUMNS, 1 << (needed - 1).bit_length())
