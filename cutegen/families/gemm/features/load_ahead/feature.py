"""What loading ahead adds to a GEMM, seam by seam: the load warp fills the ring's free slots before the wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cutegen.arch import Arch
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.features.feature import MANY_ROWS, Feature, Settling
from cutegen.families.gemm.features.load_ahead.knobs import operands
from cutegen.families.gemm.features.load_ahead.rules import (
    LOAD_AHEAD,
    grouped_ahead,
    load_ahead_a,
    load_ahead_b,
    write_ready,
)
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.refusal import Predicate

ROWS = 64  # of the other operand, up to which one that is ready is loaded before the wait


class LoadAheadFeature(Feature):
    def settle_last(self, settling: Settling) -> None:
        for field, rule in (("load_ahead_a", load_ahead_a), ("load_ahead_b", load_ahead_b)):
            ahead, why = _choose(settling.problem, settling.c, field, rule, settling.arch, settling.shapes)
            settling.settle(why, **{field: ahead})

    def vary(self, problem: GemmProblem, c: Candidate, arch: Arch, unordered: bool) -> Iterator[dict[str, Any]]:
        yield from (
            {field: not getattr(c, field)} for field, name in operands(problem).items() if name in problem.ready
        )

    def refuse_listed(self, problem: GemmProblem, field: str, value: object) -> tuple[str, str, str] | None:
        name = operands(problem).get(field)
        if name is None or name in problem.ready or value is not True:
            return None
        remedy = f"write `pdl: {{{write_ready(problem, name)}}}` if it holds"
        return LOAD_AHEAD.id, f"pdl.ready does not name `{name}`", remedy

    def loads_before_wait(self, c: Candidate) -> int:
        return c.load_ahead_a + c.load_ahead_b


def _choose(
    problem: GemmProblem, c: Candidate, field: str, rule: Predicate, arch: Arch, shapes: Sequence[Shape]
) -> tuple[bool, str]:
    """Whether to load an operand before the wait for the kernel in front, and why. rule: about that field."""
    sooner = c.vary(**{field: True})
    for refuse in (rule, grouped_ahead):
        if finding := refuse(problem, sooner, arch):
            return False, finding.reason
    if c.copies_rows:
        return False, "the preceding kernel copies rows, and is short"
    if not shapes:
        return False, f"{MANY_ROWS} where no shape is known, and then it costs up to 3%"
    few = max(shape.n if field == "load_ahead_a" else shape.m for shape in shapes) <= ROWS
    rows = f"{'at most' if few else 'more than'} {ROWS} rows of the other operand"
    return few, f"{rows}: {'0 to 10% less' if few else 'up to 3% more'} time in launches back to back"
