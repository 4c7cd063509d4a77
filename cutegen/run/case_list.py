"""Which cases a check runs: the problems that break such kernels, each in the modes of cutegen.run.cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cutegen.families.proving import Mode, Problem
from cutegen.run.row import Row
from cutegen.run.shapes import Shape, complete, complete_edge, product_space
from cutegen.run.subject import Subject


@dataclass(frozen=True, slots=True)
class Case:
    """kept_steps: how many steps of the sum inputs are given to, see families/shrinking.py; None: all."""

    name: str
    shape: Shape
    mode: Mode
    tiling: str | None
    draw: Any = None
    kept_steps: int | None = None


def list_cases(subject: Subject, shapes: Sequence[Shape] = (), suite: Sequence[Row] = ()) -> Iterator[Case]:
    """The problems that break such kernels, some in every mode; then `shapes` (the spec's, the user's) on the
    subject's own choice of tiling. suite: its problems alone, so as well."""
    if suite:
        yield from (case_of(subject, row) for row in suite)
        return
    proving = subject.proving
    for problem in proving.list_problems(subject.plan) if proving else _file_problems(subject):
        for mode in problem.modes:
            yield Case(problem.name, dict(problem.dims), mode, problem.tiling, problem.draw)
    for given in (*subject.shapes, *shapes):
        shape = complete(subject, given, "check shape")
        yield Case("given", shape, "numerics", None, proving.given_draw if proving else None)


def case_of(subject: Subject, row: Row) -> Case:
    """The case of a suite's problem."""
    return Case(row.name or "suite", complete(subject, row.shape, "suite"), "numerics", None, row.draw(subject))


def _file_problems(subject: Subject) -> Iterator[Problem]:
    for problem in product_space(subject).list_problems(subject.tilings, subject.plan):
        yield replace(problem, dims=complete_edge(subject, problem.name, problem.dims))
