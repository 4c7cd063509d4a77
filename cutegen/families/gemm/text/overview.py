"""The docstring of a kernel module: what is transposed, paired, gathered or grouped, roles and pipelines."""

from __future__ import annotations

from collections.abc import Iterable

from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import GemmKernel
from cutegen.families.gemm.text.gather import gather_overview
from cutegen.families.gemm.text.groups import group_overview
from cutegen.families.gemm.text.load import AheadText
from cutegen.families.role_text import list_roles


def list_overview(problem: GemmProblem, kernel: GemmKernel, ahead: AheadText | None) -> Iterable[str]:
    """Its lines; numbers are those of the module's first tiling."""
    first, omitted = kernel.tilings[0], kernel.omitted
    if omitted:
        yield f"For calls without {' and '.join(omitted)}."
        yield ""
    if first.candidate.swap_ab:
        yield f"Transposed (swap_ab): A of the MMA is `{problem.a.name}`, its B is `{problem.b.name}`. Here m is the"
        yield f"extent of {problem.m.name} and n that of {problem.n.name}; outputs are stored with their rows along n."
        yield ""
    if problem.paired:
        dim, what = problem.paired_dim, {"m": "rows", "n": "columns"}[problem.paired_dim or "n"]
        pairs = "2 i and 2 i + 1" if problem.epilogue.pairing == "interleaved" else f"i and i + {dim}/2"
        yield f"Gated: {what} {pairs} are a pair. The {what} of a tile are first ones of pairs, then second ones; a"
        yield "thread holds both accumulators of a pair and computes one result of them."
        yield ""
    if ahead:
        yield f"Ahead: the ring's first slots get their {ahead.tiles} before the kernel in front has ended; all of"
        yield "that was written before it could start."
        yield ""
    yield from gather_overview(problem)
    yield from group_overview(problem)
    yield from list_roles(first.roles, first.name if len(kernel.tilings) > 1 else "")
    yield ""
    yield "Pipelines (producer -> consumer):"
    for pipe in first.pipelines:
        yield f"  {pipe.name:<6} {pipe.kind:<9} {pipe.producer} -> {pipe.consumer}"
        yield f"         full: {pipe.full}"
        yield f"         empty: {pipe.empty}"
