"""Optional operands: for each choice of those that a call leaves out, the problem that is left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cutegen.epilogue import drop_added, omit, split_pairs
from cutegen.families.gemm.problem import GemmProblem


def without(problem: GemmProblem, omitted: Collection[str]) -> GemmProblem:
    """The problem of a call that passes None for these operands."""
    if not omitted:
        return problem
    program = omit(problem.epilogue, omitted)
    inputs = tuple(name for name in problem.inputs if name not in omitted)
    kernel_epilogue = split_pairs(drop_added(program))
    return replace(problem, epilogue=program, kernel_epilogue=kernel_epilogue, inputs=inputs, optional=())
