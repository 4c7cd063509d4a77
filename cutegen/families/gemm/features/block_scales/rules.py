"""The rule about tiles and the blocks that have a scale each."""

from __future__ import annotations

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import output_tile
from cutegen.families.gemm.form_rules import legal_columns
from cutegen.families.gemm.placement import HALF
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection


@BOOK.declare_form(
    Rule(
        "scale-blocks",
        "scales of blocks are one number for what a warpgroup promotes at once",
        "In each block of k, an operand with a scale for every row has one for each row of the tile, and one with a "
        "scale for a block of rows has one number for 64 x tile n accumulators. So tile n, or half of it where "
        "columns of pairs are n/2 apart, divides that block of rows; with `swap_ab` they run along m, and the block is "
        "a multiple of the 64 rows of an MMA.",
        "tensors: {sb: 'f32[n/128, k/128]'}\ntiling: {tile: [128, 192, 128]}",
    ),
    "tile",
    "swap_ab",
    element=1,
)
def scale_blocks(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if problem.block_scale is None:
        return None
    scale, side = problem.block_scale
    apart = problem.scaled_halves
    n = output_tile(problem, c)[1] if apart else c.tile[1]
    if side == "m":
        rows = arch.mma_m * (HALF if problem.paired and not apart else 1)
        what = f"{rows} of the pairs" if rows > arch.mma_m else f"{rows}"
        reason = f"a block of `{scale.name}` has {scale.rows} rows, no multiple of the {what} of an MMA"
        return None if scale.rows % rows == 0 else (reason, "use swap_ab: false")
    if scale.rows % n == 0:
        return None

    def find() -> str:
        fit = [x for x in legal_columns(problem, c, arch) if scale.rows % (x // HALF if apart else x) == 0]
        return f"use one of {', '.join(map(str, fit))}" if fit else "use blocks of 128"

    what = f"half of tile n = {c.tile[1]}" if apart else f"tile n = {n}"
    return f"{what} does not divide the {scale.rows} columns of a block of `{scale.name}`", find
