"""The numbers of scales that come with each k tile, in exact integers."""

from __future__ import annotations

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.model.smem import F32


def scale_box(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """(rows, blocks of k) that have a scale each in one slot of the ring of A and B; (0, 0) without such a scale."""
    if problem.row_scale is None:
        return 0, 0
    scale, side = problem.row_scale
    return c.tile["mn".index(side)], c.tile[2] // scale.depth


def scale_bytes(problem: GemmProblem, c: Candidate) -> int:
    """Bytes of scales in one slot of the ring of A and B, an f32 each."""
    rows, blocks = scale_box(problem, c)
    return rows * blocks * F32.bytes
