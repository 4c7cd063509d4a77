"""Which way gathered rows come to the ring, and why."""

from __future__ import annotations

from collections.abc import Sequence

from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.features.feature import MANY_ROWS
from cutegen.families.gemm.features.gather.knobs import BY_THREADS, COPIED
from cutegen.families.gemm.problem import GemmProblem

COPIED_ROWS = 2048  # from which on gathered rows are copied: below, a launch of its own weighs more than what TMA saves


def list_gathers(problem: GemmProblem, shapes: Sequence[Shape]) -> tuple[str, ...]:
    """How gathered rows may come to the ring, what is likely better first."""
    if problem.gather is None:
        return ("none",)
    few = bool(shapes) and max(shape.m for shape in shapes) < COPIED_ROWS
    return (BY_THREADS, COPIED) if few else (COPIED, BY_THREADS)


def why_gather(c: Candidate, shapes: Sequence[Shape]) -> str:
    if c.gather == "none":
        return "no index names rows"
    if c.copies_rows:
        many = "many rows" if shapes else f"{MANY_ROWS} where no shape is known"
        return f"{many}: TMA loads a copy of them faster than threads copy each row into the ring"
    return "few rows: a copy of them would be a launch of its own"
