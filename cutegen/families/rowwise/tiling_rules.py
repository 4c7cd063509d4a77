"""The rules about knobs of a row kernel."""

from __future__ import annotations

from cutegen.arch.architecture import WARP_THREADS, Arch
from cutegen.diagnostics import Rule
from cutegen.families.refusal import Objection, RuleBook
from cutegen.families.rowwise.candidate import (
    MOST_CLUSTER,
    MOST_CTA_THREADS,
    Candidate,
    count_registers,
    find_instance,
    has_clusters,
    least_threads,
    most_registers,
)
from cutegen.families.rowwise.problem import RowProblem

RULES = RuleBook()


@RULES.declare_form(
    Rule(
        "row-threads",
        "a row has whole warps, or a power of two of threads of one",
        "What a row is reduced to is joined by shuffles of a warp, then by its warps, and where it has more threads "
        "than a CTA, by a cluster of 8 CTAs of whole warps. Neighbouring threads of a warp have a block between them.",
        "threads: 100",
    ),
    "threads",
)
def check_threads(problem: RowProblem, c: Candidate, arch: Arch) -> Objection | None:
    least = least_threads(problem)
    if has_clusters(c):
        return _check_cluster(problem, c)
    if c.threads in (least << i for i in range(5)) or (c.threads % WARP_THREADS == 0 and c.threads <= arch.max_threads):
        return None
    parts = ", ".join(str(least << i) for i in range(5) if least << i < WARP_THREADS)
    whole = f"a multiple of {WARP_THREADS} up to {arch.max_threads}"
    return f"a row cannot have {c.threads} threads", f"use {f'{parts} or ' if parts else ''}{whole}"


def _check_cluster(problem: RowProblem, c: Candidate) -> Objection | None:
    step, most = WARP_THREADS * MOST_CLUSTER, MOST_CTA_THREADS * MOST_CLUSTER
    if c.threads % step or c.threads > most:
        remedy = f"use a multiple of {step} up to {most}, or at most {MOST_CTA_THREADS}"
        return f"{MOST_CLUSTER} CTAs that share a row cannot have {c.threads} threads", remedy
    if problem.program.reductions or not c.bounds:
        why = "what a CTA joins of all rows has all columns" if problem.program.reductions else "no row is held"
        return f"{c.threads} threads of a row are in a cluster of CTAs, and {why}", f"use at most {MOST_CTA_THREADS}"
    return None


@RULES.declare_form(
    Rule(
        "row-bounds",
        "bounds of rows ascend to that of the extent at most, and rows that are not reduced have none",
        "Rows of up to each bound have a kernel of their own, with as many threads as they need. Those that are longer "
        "than the last one are loaded again in each round.",
        "dims: {n: [8, 8192]}\nbounds: [4096, 1024]",
    ),
    "bounds",
)
def check_bounds(problem: RowProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.held:
        return ("rows that are not reduced are computed part by part", "drop it") if c.bounds else None
    bounds, most = list(c.bounds), problem.most_columns
    if bounds != sorted({*bounds}):
        return f"{bounds} does not ascend", "sort it"
    if bounds and most is not None and bounds[-1] > most:
        return f"{bounds} goes beyond {most}, the bound of {problem.columns}", f"end it with {most}"
    return None


@RULES.declare_form(
    Rule(
        "row-prefetch",
        "only rows that are reduced are prefetched",
        "Parts of rows that are not reduced have a CTA each, which the device starts when it has room for it.",
        "tensors: {x: 'bf16[m, n]', y: 'bf16[m, n]'}\nrows: {y: 2 * x}\nprefetch: true",
    ),
    "prefetch",
)
def check_prefetch(problem: RowProblem, c: Candidate, arch: Arch) -> Objection | None:
    return None if problem.held or not c.prefetch else ("a CTA has one part of a row", "drop it")


@RULES.declare_fit(
    Rule(
        "row-registers",
        "a row that is reduced fits in the registers of a CTA",
        "What follows a reduction reads the row again, which threads hold as it was loaded, next to f32 values of what "
        "they compute. Rows longer than the last of `bounds` are not held.",
        "dims: {n: 16384}\nbounds: [16384]\nthreads: 32",
    ),
    "threads",
    "bounds",
    "prefetch",
)
def check_registers(problem: RowProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.bounds:
        return None
    i = find_instance(problem, c)
    need, have = count_registers(problem, i), most_registers(i)
    if need <= have:
        return None
    row = f"a row of {c.bounds[-1]} elements{' and the next one' * i.prefetch}"
    remedy = f"use more threads, {'prefetch: false, ' * i.prefetch}or a smaller last bound"
    return f"{c.threads} threads take {need} registers each for {row}; a thread has {have}", remedy
