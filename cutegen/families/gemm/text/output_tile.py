"""The output tile of a group of warpgroups, for the templates."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import Operand, Output
from cutegen.families.gemm.placement import elements_per_step
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand

LANE_COLUMNS = 8  # that the four threads of a row hold two of each: all of them are inside, or none, if n has eights


@dataclass(frozen=True, slots=True)
class OutputTileText:
    """What the templates read as k.tile. paired_dim: the dim along which two accumulators make an element, "" without
    pairs; interleaved: whether the two are next to each other, else half of its extent apart. column_of_thread: whether
    it depends on the thread if an element's column is inside the product."""

    paired_dim: str
    interleaved: bool
    column_of_thread: bool


def output_tile_text(problem: GemmProblem) -> OutputTileText:
    """In the kernel's frame."""
    return OutputTileText(
        problem.paired_dim or "", problem.epilogue.pairing == "interleaved", _columns(problem) % LANE_COLUMNS != 0
    )


def _columns(problem: GemmProblem) -> int:
    """What the number of columns that the epilogue has is a multiple of."""
    if problem.groups and problem.groups.along == "n":
        return 1
    program, halves = problem.kernel_epilogue, 2 if problem.paired_dim == "n" else 1
    if problem.n.value is not None:
        return problem.n.value // halves
    tensors: list[MatrixOperand | Operand | Output] = [problem.b, *program.tiles]
    tensors += [o for o in program.outputs if not o.direct]
    return max((elements_per_step(t, problem.paired_dim) // halves for t in tensors if t.major == "n"), default=1)
