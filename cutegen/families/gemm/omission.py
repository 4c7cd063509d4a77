"""Optional operands: for each choice of those that a call leaves out, the problem that is left."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import combinations

from cutegen.epilogue import drop_added, omit, split_pairs
from cutegen.families.gemm.problem import GemmProblem

MAX_OPTIONAL = 2


def list_omissions(problem: GemmProblem) -> Iterator[tuple[str, ...]]:
    """What calls may leave out, in order of declaration, but for nothing: (a,), (b,), (a, b)."""
    for count in range(1, len(problem.optional) + 1):
        yield from combinations(problem.optional, count)


def without(problem: GemmProblem, omitted: Collection[str]) -> GemmProblem:
    """The problem of a call that passes None for these operands."""
    if not omitted:
        return problem
    program = omit(problem.epilogue, omitted)
    inputs = tuple(name for name in problem.inputs if name not in omitted)
    kernel_epilogue = split_pairs(drop_added(program))
    return replace(problem, epilogue=program, kernel_epilogue=kernel_epilogue, inputs=inputs, optional=())


def suffix(omitted: Collection[str]) -> str:
    """What the names of modules and instances end in that do without these operands; plans make the same."""
    return "".join(f"_without_{name}" for name in omitted)
