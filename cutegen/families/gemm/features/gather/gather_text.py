"""Gathered rows in the generated text: the method `gather` of the kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.arch.architecture import WARP_THREADS, WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.gather.gather_warps import gather_warps
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.load import RingTensor


@dataclass(frozen=True, slots=True)
class GatherText:
    """What the templates read as k.gather: whose rows threads copy."""

    operand: RingTensor
    scale: RingTensor | None  # of blocks along k, copied next to the rows
    first_warp: int  # of those that copy
    threads: int


def gather_text(problem: GemmProblem, c: Candidate, tensors: Iterable[RingTensor]) -> GatherText | None:
    """In the kernel's frame."""
    copied = [x for x in tensors if x.index]
    if not copied:
        return None
    warps = gather_warps(problem, c)
    scale = copied[1] if len(copied) > 1 else None
    return GatherText(copied[0], scale, WARPS_PER_WARPGROUP - warps, warps * WARP_THREADS)
