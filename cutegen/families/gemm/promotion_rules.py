"""Rules about sums that f32 registers take from the tensor core, and the scales that they are multiplied by there."""

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
        "promotion",
        "sums of fp8 products are promoted to f32 a whole number of times in a k tile",
        "The tensor core keeps some 14 bits of a sum of fp8 products. With `promote_every: 4` it hands the sum of 4 K "
        "blocks, 128 elements, to f32 registers and starts again; a k tile holds whole promotions. Scales that vary "
        "along k are applied there, once a block. Other sums of 16-bit products are in f32 and of i8 in i32 as they "
        "are.",
        "accumulate: {promote_every: 3}   # with fp8 operands and tile k = 128",
    ),
    "promote_every",
    "tile",
)
def promotion(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not isinstance(c.promote_every, int):
        depth = problem.scaled_k
        reason = f"scales change every {depth} elements of k, where f32 registers take the sum"
        return (reason, f"use {depth // arch.mma_k(problem.a.dtype)}, or leave it out") if depth else None
    a, b, mma = problem.a.dtype, problem.b.dtype, problem.mma
    mma_k, tile_k, depth = arch.mma_k(a), c.tile[2], problem.scaled_k
    if not mma.rounds and not depth:
        return f"{a} @ {b} is summed in {mma.accumulator} without promotion", "remove `promote_every`"
    step = c.promote_every * mma_k
    if depth and step != depth:
        reason = f"promotion every {c.promote_every} x {mma_k} = {step} elements, but scales change every {depth}"
        return reason, f"use {depth // mma_k}, or leave it out"
    if tile_k % step == 0 or tile_k % mma_k:  # of which tile-k tells
        return None
    reason = f"promotion every {c.promote_every} x {mma_k} = {step} elements does not divide tile k = {tile_k}"
    blocks = tile_k // mma_k
    fit = ", ".join(str(n) for n in range(1, blocks + 1) if blocks % n == 0)
    others = f"one of {fit}, or " if not depth else ""
    return reason, f"use {others}a tile k that is a multiple of {step}"


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
