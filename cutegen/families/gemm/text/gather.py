"""Gathered rows in the generated text: the method `gather` of the kernel, and the reference's own gather."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.arch.architecture import WARP_THREADS, WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import gather_warps
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.load import RingTensor
from cutegen.render.layout import bracketed


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


def gather_lines(problem: GemmProblem) -> tuple[str, ...]:
    """Statements of the reference that take the rows."""
    if problem.gather is None or problem.gathered is None:
        return ()
    axes = {problem.gathered.name: problem.gathered.axes[0], **dict.fromkeys(problem.gather.scales, 0)}
    axes |= {s.name: s.axes[0] for s in (problem.a_scale, problem.b_scale) if s and problem.gathers(s.name)}
    return tuple(f"{name} = take_rows({name}, {problem.gather.index}, {axis})" for name, axis in axes.items())


def gathered_text(problem: GemmProblem) -> str:
    """The GatheredRows of the plan; "" without a gather."""
    gather, operand = problem.gather, problem.gathered
    if gather is None or operand is None:
        return ""
    parts = [f'"{operand.name}"', f'"{gather.index}"', f'rows="{problem.m.name}"', f'of="{gather.extent.name}"']
    if gather.scales:
        listed = ", ".join(f'"{name}"' for name in gather.scales)
        parts.append(f"scales=({listed}{',' * (len(gather.scales) == 1)})")
    return bracketed("GatheredRows(", parts, ")", indent=4, used=len("gathered = "))
