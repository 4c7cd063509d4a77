"""The rule about sums that f32 registers take from the tensor core."""

from __future__ import annotations

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import Rule
from cutegen.families.gemm.candidate import Candidate
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
