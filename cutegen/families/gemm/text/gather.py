"""Gathered rows in the generated text: the method `gather` of the kernel, and the reference's own gather."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.arch.architecture import WARP_THREADS, WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import gather_warps
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


def gather_overview(problem: GemmProblem) -> tuple[str, ...]:
    """Lines of the module docstring."""
    gather = problem.gather or problem.copied
    if gather is None:
        return ()
    name, index = (problem.a if gather.along == "m" else problem.b).name, gather.index
    own = " and ".join((name, *gather.scales))
    if problem.copied:
        copies = f"{own} is a copy that" if own == name else f"{own} are copies that"
        return (f"{copies} copy_rows.py made: row i is row {index}[i] of the call's.", "")
    return (f"Row i of the product is of row {index}[i] of {own}; one that {name} does not have is zero.", "")


def explain_gather(problem: GemmProblem) -> tuple[str, ...]:
    """In the words of the spec."""
    if problem.gather is None or problem.gathered is None:
        return ()
    extent = problem.gather.extent
    height = extent.name if extent.value is None else str(extent.value)
    name, index = problem.gathered.name, problem.gather.index
    own = " and ".join((name, *problem.gather.scales))
    has = "have" if problem.gather.scales else "has"
    return (f"row i of the product is of row {index}[i] of {own}, which {has} {height} of them",)
