"""Which cases a check runs: the problems that break such kernels, each in the modes of cutegen.run.cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.families.proving import Mode, Problem, thorough_modes
from cutegen.run.shapes import Shape, complete, edge_shapes
from cutegen.run.subject import Subject

# Edge shapes that every mode runs on: tails in all dims, and rings that carry over from tile to tile.
THOROUGH = ("ragged", "several waves", "defaults")
# Edge shapes of which rows are computed by themselves.
ROWS_ALONE = ("ragged", "around the ring", "several waves")


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    shape: Shape
    mode: Mode
    tiling: str | None
    draw: Any = None


def list_cases(subject: Subject, shapes: Sequence[Shape] = ()) -> Iterator[Case]:
    """The problems that break such kernels, some in every mode; then `shapes` (the spec's, the user's) on the
    subject's own choice of tiling."""
    proving = subject.proving
    for problem in proving.list_problems(subject.plan) if proving else _product_problems(subject):
        for mode in problem.modes:
            yield Case(problem.name, dict(problem.dims), mode, problem.tiling, problem.draw)
    for given in (*subject.shapes, *shapes):
        shape = complete(subject, given, "check shape")
        yield Case("given", shape, "numerics", None, proving.given_draw if proving else None)


def _product_problems(subject: Subject) -> Iterator[Problem]:
    thorough = thorough_modes(subject.plan)
    for key, tiling in subject.tilings.items():
        for name, shape in edge_shapes(subject, tiling):
            draw = "lost" if subject.roles.gathered else None
            yield Problem(name, shape, key, thorough if name in THOROUGH else ("numerics",), draw)
    if getattr(subject.plan, "batch_invariant", False):
        tallest = max(subject.tilings.values(), key=lambda tiling: tiling.tile[0])
        for name, shape in edge_shapes(subject, tallest):
            if name in ROWS_ALONE:
                yield Problem(name, shape, None, ("rows",))
    if subject.plan:
        roles = subject.roles
        base = next(shape for _, shape in edge_shapes(subject, next(iter(subject.tilings.values()))))
        for dim in dict.fromkeys((roles.m, roles.gathered, roles.n, roles.batch, roles.k)):
            if dim and not isinstance(subject.dims[dim], int):
                yield Problem(f"{dim} = 0", {**base, dim: 0}, None, ("empty",))
