"""What is decided of a row kernel, and how it is rendered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cutegen.arch.architecture import SM_THREADS, Arch
from cutegen.diagnostics import Rule
from cutegen.families.code_plan import CodePlan
from cutegen.families.decide import Choice
from cutegen.families.knobs import Knob, integer
from cutegen.families.refusal import Objection, RuleBook
from cutegen.families.resolved import ResolvedTiling
from cutegen.families.rowwise.candidate import (
    HELD_BYTES,
    STREAMED_VECTORS,
    WARP,
    Candidate,
    count_registers,
    count_vectors,
    most_registers,
    size_thread,
)
from cutegen.families.rowwise.problem import RowProblem, describe_problem
from cutegen.families.rowwise.text import RowKernels
from cutegen.families.single import Numbers, SingleKernel
from cutegen.families.tensor_problem import VECTOR_BYTES
from cutegen.model.smem import F32, SmemField
from cutegen.runtime.rowwise.plan import RowPlan, RowTiling

KNOBS = (Knob("threads", "threads", integer(), part="core"),)
RULES = RuleBook()
SLOTS = 2  # of exchanges, used in turn


@RULES.declare_form(
    Rule(
        "row-threads",
        "a CTA has whole warps",
        "Reductions of a row are joined by warps of 32 threads.",
        "threads: 100",
    ),
    "threads",
)
def check_threads(problem: RowProblem, c: Candidate, arch: Arch) -> Objection | None:
    if c.threads % WARP == 0 and c.threads <= arch.max_threads:
        return None
    return f"{c.threads} threads are not 1 to {arch.max_threads // WARP} warps", f"use a multiple of {WARP}"


@RULES.declare_fit(
    Rule(
        "row-registers",
        "a row that is reduced fits in the registers of a CTA",
        "What follows a reduction reads the row again, which threads hold as it was loaded, beside an f32 value for "
        "each element that they compute with. So the extent of a row is known or has a promised bound.",
        "tensors: {x: 'bf16[m, n]', y: 'bf16[m, n]'}\nrows: {y: 'x / sum(x, n)'}",
    ),
    "threads",
)
def check_registers(problem: RowProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.held:
        return None
    name, most = problem.columns, problem.most_columns
    if most is None:
        return (
            f"a row of {name} elements is held in registers, and nothing bounds {name}",
            f"write dims: {{{name}: ..}}",
        )
    need, have = count_registers(problem, c), most_registers(c, arch)
    if need <= have:
        return None
    said = f"{most} elements of {size_thread(problem):g} registers each over {c.threads} threads take {need} registers"
    return f"{said}; a thread has {have} for them", f"use more threads, or a smaller bound of {name}"


def candidates(problem: RowProblem, fixed: Mapping[str, Any], arch: Arch) -> Iterator[Choice]:
    """By ascending threads, from those that have HELD_BYTES of a row each on."""
    if not problem.held or problem.most_columns is None:
        most = problem.most_columns
        loads = -(-most // (problem.vector * STREAMED_VECTORS)) if most else arch.max_threads
        threads = min(256, -(-loads // WARP) * WARP)
        yield Choice(Candidate(**{"threads": threads, **fixed}), {"threads": "eight CTAs fill an SM"})
        return
    narrow = min(o.dtype.bytes for o in problem.operands("tile", "row_vector"))
    loads = -(-problem.most_columns // max(problem.vector, HELD_BYTES // narrow))
    for warps in (1, 2, 4, 8, 16, 32):
        why = f"a thread holds {count_vectors(problem, WARP * warps)} vectors of each tensor"
        if WARP * warps >= min(loads, 512) or fixed:
            yield Choice(Candidate(**{"threads": WARP * warps, **fixed}), {"threads": why})


def describe(problem: RowProblem, c: Candidate) -> Numbers:
    warps, vectors = c.threads // WARP, count_vectors(problem, c.threads)
    reductions = max((len(r.reduced) for r in problem.cut.rounds), default=0)
    smem = 4 * reductions * warps * SLOTS if warps > 1 else 0
    columns = f"{problem.most_columns} columns / ({c.threads} threads x {problem.vector})"
    sources = {
        "threads": "threads",
        "vector": "vector",
        "vectors": columns if problem.held else "loads of a thread on their way at once",
        "ctas_per_sm": f"{SM_THREADS} threads of an SM / {c.threads}",
        "smem_bytes": f"{reductions} reductions x {warps} warps x {SLOTS} slots x f32",
    }
    says = "f32 total of each reduction and warp; exchanges take turns"
    source = f"{reductions * SLOTS} * t.threads // {WARP}"
    fields = (SmemField("totals", F32, reductions * warps * SLOTS, source, says),) if smem else ()
    numbers = RowTiling(c.threads, problem.vector, vectors, SM_THREADS // c.threads, smem)
    return Numbers(numbers, sources, fields)


def plan_code(resolved: SingleKernel, tiling: ResolvedTiling[RowTiling]) -> CodePlan:
    """Each load and store of what has elements or columns is there, as a loop is unrolled; in a block's part of the
    kernel, too."""
    p, numbers = resolved.problem, tiling.numbers
    read = [o.dtype for o in p.operands("tile", "row_vector")]
    stored = [o.dtype for o in p.program.outputs if o.name in p.elements]
    loads, stores = (
        sum(numbers.vectors * numbers.vector * dtype.bytes // VECTOR_BYTES for dtype in dtypes)
        for dtypes in (read, stored)
    )
    return CodePlan(
        resolved.arch,
        numbers.threads,
        numbers.smem_bytes,
        wide_loads=loads if all(numbers.vector * d.bytes >= VECTOR_BYTES for d in read) else 0,
        wide_stores=stores if all(numbers.vector * d.bytes >= VECTOR_BYTES for d in stored) else 0,
        fewer_registers="more threads",
    )


KERNEL = RowKernels(KNOBS, RULES, candidates, describe, RowPlan, Path(__file__).parent, describe_problem)
