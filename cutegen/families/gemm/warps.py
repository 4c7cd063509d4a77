"""The warps of a CTA by what they do: those that load and hand out tiles first, the consumers behind."""

from __future__ import annotations

from cutegen.arch.architecture import WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.model.kernel import Warps

LOAD_WARP, TILE_LOAD_WARP = Warps("load warp", 0), Warps("tile load warp", 1)


def consumer_warps(c: Candidate) -> tuple[Warps, ...]:
    """Of each MMA warpgroup, behind the producer's."""
    return tuple(
        Warps(f"consumer {group}", WARPS_PER_WARPGROUP * (1 + group), WARPS_PER_WARPGROUP)
        for group in range(c.consumers)
    )


def scheduler_warp(problem: GemmProblem) -> Warps:
    """That claims tiles in a dynamic schedule: the first that loads nothing."""
    return Warps("scheduler warp", 2 if problem.kernel_epilogue.tiles else 1)
