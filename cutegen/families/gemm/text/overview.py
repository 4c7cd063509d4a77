"""The docstring of a kernel module: what is transposed, paired or loaded otherwise, roles and pipelines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import GemmKernel
from cutegen.families.gemm.text.load import RingTensor
from cutegen.model.header import list_roles
from cutegen.model.timeline import draw_timeline

WIDTH = 112  # characters of a line of running text


def list_overview(problem: GemmProblem, kernel: GemmKernel, ahead: Iterable[RingTensor]) -> Iterable[str]:
    """Its lines; numbers are those of the module's first tiling."""
    first, omitted = kernel.tilings[0], kernel.omitted
    if omitted:
        yield f"For calls without {' and '.join(omitted)}."
        yield ""
    lead = [f"Transposed (swap_ab): A of the MMA is `{problem.a.name}`, its B is `{problem.b.name}`."]
    renamed = _renamed(problem)
    if sentences := [*(lead if problem.transposed else []), *([renamed] if renamed else [])]:
        yield from textwrap.wrap(" ".join(sentences), WIDTH, break_long_words=False)
        yield ""
    if problem.paired:
        dim, what = problem.paired_dim, {"m": "rows", "n": "columns"}[problem.paired_dim or "n"]
        pairs = "2 i and 2 i + 1" if problem.epilogue.pairing == "interleaved" else f"i and i + {dim}/2"
        yield f"Gated: {what} {pairs} are a pair. The {what} of a tile are first ones of pairs, then second ones; a"
        yield "thread holds both accumulators of a pair and computes one result of them."
        yield ""
    if tiles := " and ".join(f"tiles of {x.name}" for x in ahead):
        yield f"Ahead: the ring's first slots get their {tiles} before the preceding kernel has ended; all of"
        yield "that was written before it could start."
        yield ""
    for feature in FEATURES:
        yield from feature.overview(problem)
    yield from list_roles(first.model.roles, first.name if len(kernel.tilings) > 1 else "")
    yield ""
    yield "Pipelines (producer -> consumer):"
    for pipe in first.model.pipelines:
        yield f"  {pipe.name:<6} {pipe.kind:<9} {pipe.producer} -> {pipe.consumer}"
        yield f"         full: {pipe.full}"
        yield f"         empty: {pipe.empty}"
    yield ""
    yield from draw_timeline(first.model)


def _renamed(problem: GemmProblem) -> str:
    """What m, n and k of the module are in the spec; "" where they are called so there, too."""
    dims = (("m", problem.m.name), ("n", problem.n.name), ("k", problem.k.name))
    other = [(role, name) for role, name in dims if role != name]
    if not other:
        return ""
    first, *rest = [
        f"{role} is the spec's `{name}`" if i == 0 else f"{role} its `{name}`" for i, (role, name) in enumerate(other)
    ]
    return f"Below, {', '.join([first, *rest[:-1]])}{f' and {rest[-1]}' if rest else ''}."
