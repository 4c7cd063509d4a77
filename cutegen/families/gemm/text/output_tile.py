"""The part of the outputs that one CTA tile becomes, in the kernel module."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.epilogue import Operand, Output
from cutegen.families.gemm.placement import elements_per_step
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand
from cutegen.families.gemm.text.expressions import factor
from cutegen.families.gemm.text.groups import GroupText

LANE_COLUMNS = 8  # that the four threads of a row hold two of each: all of them are inside, or none, if n has eights


@dataclass(frozen=True, slots=True)
class OutputTileText:
    """What the templates read as k.tile; all of it is source.

    rows, columns: extents, half those of the CTA tile along pairs. subtiles_m, subtiles_n: subtiles along them;
    subtiles: in all. first_row, first_column: of the tile in the outputs. row_inside, column_inside: whether those of
    an element are in the product, and not past its end; column_of_thread: whether the latter depends on the thread.
    paired: whether two accumulators make an element; pair_distance: accumulators from the first to the second.
    """

    rows: str
    columns: str
    columns_factor: str
    subtiles_m: str
    subtiles_n: str
    subtiles: str
    first_row: str
    first_column: str
    row_inside: str
    column_inside: str
    column_of_thread: bool
    paired: bool
    pair_distance: str


def output_tile_text(problem: GemmProblem, groups: GroupText | None) -> OutputTileText:
    """In the kernel's frame."""
    rows, columns = (f"t.tile[{i}]{' // 2' * (problem.paired_dim == dim)}" for i, dim in enumerate("mn"))
    subtiles_m, subtiles_n = f"{rows} // t.epilogue_tile[0]", f"{columns} // t.epilogue_tile[1]"
    row, column = f"m * {factor(rows)}", f"n * {factor(columns)}"
    own = _columns(problem) % LANE_COLUMNS != 0
    place = "column + at_n" if own else f"at_n // {LANE_COLUMNS} * {LANE_COLUMNS}"
    return OutputTileText(
        rows=rows,
        columns=columns,
        columns_factor=factor(columns),
        subtiles_m=subtiles_m,
        subtiles_n=subtiles_n,
        subtiles=f"({subtiles_m}) * ({subtiles_n})",
        first_row=(groups.row("m") if groups else "") + row,
        first_column=(groups.row("n") if groups else "") + column,
        row_inside=f"{row} + subtile_m * t.epilogue_tile[0] + row + at_m < o.extent_m",
        column_inside=f"{column} + subtile_n * t.epilogue_tile[1] + {place} < o.extent_n",
        column_of_thread=own,
        paired=bool(problem.paired_dim),
        pair_distance="t.tile[1] // 4" if problem.paired_dim == "n" else "subtiles_m * (t.tile[1] // 2)",
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
