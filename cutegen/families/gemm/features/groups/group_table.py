"""The numbers of groups of rows, in exact integers."""

from __future__ import annotations

from cutegen.arch.architecture import WARP_THREADS
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem, RowGroups


def group_table(problem: GemmProblem) -> tuple[int, int]:
    """(entries, columns) of the table of groups: whole warps of entries, and the columns that the form needs."""
    assert problem.groups
    assert problem.batch
    most = problem.batch.value or problem.batch.hi or 0
    return -(-most // WARP_THREADS) * WARP_THREADS, 3 if problem.groups.flat else 1


def group_step(c: Candidate, groups: RowGroups) -> int:
    """Rows of a cluster's tiles."""
    axis = 0 if groups.along == "m" else 1
    return c.tile[axis] * c.cluster[axis]
