"""`invariance: batch`: the bits of a row are the same however many rows a call has, and wherever it stands among them.

Every kernel of the spec then adds the products of an element in one order: the MMA takes k in steps of its instruction,
in ascending order, into one accumulator, which is promoted after as many steps. What could change that order between
kernels is named here.
"""

from __future__ import annotations

from cutegen.diagnostics import Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.orientation import block_passes
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.refusal import Refusal

BATCH_INVARIANCE = Rule(
    "batch-invariance",
    "with `invariance: batch` no kernel splits K, and all of a spec have one tile k and one accumulation; one tile n "
    "where columns are summed up",
    "The dispatch sends calls with few rows to other kernels than calls with many. A row's bits stay the same only if "
    "all of them add the products of an element in the same order; floating-point sums depend on it. So do the columns "
    "of a row that an epilogue sums up, which tiles do first each for itself.",
    "invariance: batch\nportfolio: [{tile: [64, 128, 64]}, {tile: [64, 128, 128]}]",
)


def other_sum(problem: GemmProblem, default: Candidate, c: Candidate) -> Refusal | None:
    """What refuses a kernel beside the default of its spec: it adds in another order."""
    if not problem.batch_invariant:
        return None
    orders: list[tuple[str, int | None, str, object, object]] = [
        ("tile", 2, "tile k", default.tile[2], c.tile[2]),
        ("promote_every", None, "promote_every", default.promote_every, c.promote_every),
    ]
    program = problem.epilogue
    if any(r.op == "sum" and r.kept == "m" for r in program.reductions):
        along = 0 if c.swap_ab else 1
        orders.append(("tile", along, f"tile {'mn'[along]}", default.tile[along], c.tile[along]))
    if len(orders) > 2 or (program.block and any(r.op == "sum" for r in block_passes(problem).reduced)):
        orders.insert(0, ("swap_ab", None, "swap_ab", default.swap_ab, c.swap_ab))
    for field, element, what, now, then in orders:
        if now != then:
            reason = f"{what} = {then}, but the default's is {now}, and `invariance: batch` wants one for all"
            remedy = f"use {what} {now}, or drop `invariance: batch`"
            return Refusal(BATCH_INVARIANCE.id, (field,), reason, remedy, element, form=False)
    return None
