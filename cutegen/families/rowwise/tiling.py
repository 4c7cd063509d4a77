"""What is decided of a row kernel, and how it is rendered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutegen.arch import ARCHS, Device
from cutegen.arch.architecture import SM_THREADS, WARP_THREADS, Arch
from cutegen.families.code_plan import CodePlan
from cutegen.families.decide import Choice, Decided, written_knobs
from cutegen.families.knobs import Knob, boolean, integer, word
from cutegen.families.optional_operands import list_omissions, suffix
from cutegen.families.pdl import PDL_TRIGGER, PDL_TRIGGERS, PDL_WAIT, WHY_WAIT, why_trigger
from cutegen.families.refusal import Refusal
from cutegen.families.resolved import ResolvedTiling, When
from cutegen.families.rowwise.candidate import (
    CTA_THREADS,
    FEW_VECTORS,
    LONG_THREADS,
    MOST_CLUSTER,
    MOST_CTA_THREADS,
    PART_THREADS,
    REGISTER_FILE,
    Candidate,
    RowShare,
    asked_for,
    bytes_in_flight,
    count_ctas,
    count_registers,
    count_vectors,
    early_columns,
    find_instance,
    find_streamed,
    fit_threads,
    has_clusters,
    is_streamed,
    least_registers,
    least_threads,
    least_vectors,
    most_ctas,
)
from cutegen.families.rowwise.problem import RowProblem, describe_problem
from cutegen.families.rowwise.rounds_section import explain_rounds
from cutegen.families.rowwise.text import render_kernel
from cutegen.families.rowwise.tiling_rules import RULES
from cutegen.families.section import Section
from cutegen.families.single import NAME, Numbers, SingleInstance, SingleKernel, SingleTiling
from cutegen.families.tensor_problem import VECTOR_BYTES
from cutegen.families.tuned import Reading, TunedRow, read_tuned
from cutegen.model.smem import F32, I32, SmemField
from cutegen.runtime.rowwise.plan import RowPlan, RowTiling, piece_of
from cutegen.spec import KernelSpec


def _extents(value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError("positive integers")
    return tuple(integer()(v) for v in value)


KNOBS = (
    Knob("threads", "threads", integer(), part="core"),
    Knob("bounds", "bounds", _extents, part="around"),
    Knob("prefetch", "prefetch", boolean, part="around"),
    Knob("pdl_wait", "pdl.wait", boolean),
    Knob("pdl_trigger", "pdl.trigger", word(*PDL_TRIGGERS)),
)
SLOTS = 2  # of exchanges, used in turn
AUTO_THREADS = 256  # a CTA of more only where a row needs its registers: 8% faster than 512 on an H100, rows of 7168
FEW = "few"  # the tiling of calls that have a thread of the GPU for each vector
ELEMENTS = "elements"  # of a call
STREAMED = "streamed"  # the module of kernels of rows that are not held, next to that of those that are
MOST_HELD = 1 << 16  # elements of rows of any extent: those that registers may hold


def candidates(problem: RowProblem, fixed: Mapping[str, Any], arch: Arch) -> Iterator[Choice]:
    """Those with `least_vectors` a thread first, unless a CTA would have more than AUTO_THREADS."""
    reasons = {
        "bounds": "halves and three quarters: a shorter row has fewer threads, and an SM more rows",
        "prefetch": "CTAs have several rows, whose values they join"
        if problem.program.reductions
        else "a row is read once: the next one is on its way while a CTA reduces it"
        if problem.read_once
        else "a CTA for each row takes 0.91 to 0.96 of the time, on an H100, of 16384 rows of 4096",
        "pdl_wait": WHY_WAIT,
        "pdl_trigger": why_trigger(""),
    }
    common = {"pdl_wait": PDL_WAIT, "pdl_trigger": PDL_TRIGGER}
    most = problem.most_columns
    if not problem.held:
        reasons |= {
            "threads": "the device gives each CTA a part of a row when it has room for it",
            "bounds": "no row is held",
            "prefetch": "no row is held",
        }
        loads = -(-most // problem.step) if most else CTA_THREADS
        threads = min(CTA_THREADS, fit_threads(problem, loads))
        yield Choice(Candidate(**{"threads": threads, "bounds": (), "prefetch": False, **common, **fixed}), reasons)
        return
    longest, least = most or MOST_HELD, _least_columns(problem)
    while "bounds" not in fixed and longest >= least:
        for choice in _held(problem, {**common, **fixed}, longest, arch):
            yield replace(choice, reasons=reasons | choice.reasons)
        longest = 1 << (longest - 1).bit_length() - 1
    bounds = fixed.get("bounds", ())
    if bounds:
        yield from (
            replace(choice, reasons=reasons | choice.reasons)
            for choice in _held(problem, {**common, **fixed}, bounds[-1], arch)
        )
        return
    own = {"threads": LONG_THREADS, "bounds": (), "prefetch": False, **common, **fixed}
    yield Choice(Candidate(**own), reasons | {"threads": "loads of a row on their way, for which an SM has one"})


def _held(problem: RowProblem, fixed: Mapping[str, Any], longest: int, arch: Arch) -> Iterator[Choice]:
    """Candidates that hold rows of up to so many elements: first those of which an SM has two, then the widest."""
    wants_next = bool(problem.program.reductions)
    counts = [fixed["threads"]] if "threads" in fixed else _thread_counts(problem, longest, arch)
    found = [
        Candidate(**{"threads": threads, "bounds": (longest,), "prefetch": ahead, **fixed})
        for ahead in ((True, False) if wants_next else (problem.read_once,))
        for threads in counts
    ]
    count = least_registers if problem.read_once else count_registers
    alone = {c: most_ctas(i, count(problem, i)) < 2 for c in found for i in (find_instance(problem, c),)}

    def rank(c: Candidate) -> tuple[bool, ...] | tuple[int, ...]:
        if wants_next:
            return not c.prefetch, alone[c], abs(count_vectors(problem, c) - least_vectors(problem))
        return alone[c], -c.threads * alone[c]

    for c in sorted(found, key=rank):
        if has_clusters(c) and alone[c] and "threads" not in fixed:
            continue  # CTAs that wait for each other, and none meanwhile that loads
        if "bounds" not in fixed:
            c = replace(c, bounds=_shares(problem, c, longest))
        why = {"threads": f"a thread holds {count_vectors(problem, c)} vectors of each tensor"}
        if longest != problem.most_columns:
            why["bounds"] = "halves and three quarters of what registers hold; longer rows are loaded in each round"
        yield Choice(c, why)


def _thread_counts(problem: RowProblem, most: int, arch: Arch) -> list[int]:
    """Of the longest rows: the most that AUTO_THREADS allows, then more."""
    vectors, loads = least_vectors(problem), -(-most // problem.step)
    while (first := fit_threads(problem, -(-loads // vectors))) > AUTO_THREADS:
        vectors += 1
    more = (fit_threads(problem, -(-loads // v)) for v in range(vectors - 1, 0, -1))
    counts = [first, *(threads for threads in dict.fromkeys(more) if first < threads <= arch.max_threads)]
    if not problem.program.reductions:
        step, least = WARP_THREADS * MOST_CLUSTER, least_vectors(problem)
        shared = (-(-loads // (v * step)) * step for v in (2 * least, least))
        counts += [threads for threads in shared if MOST_CTA_THREADS < threads <= MOST_CTA_THREADS * MOST_CLUSTER]
    return counts


def _least_columns(problem: RowProblem) -> int:
    """The promised extent of the shortest rows."""
    extent = problem.dims[problem.columns]
    return extent if isinstance(extent, int) else extent[0]


def _shares(problem: RowProblem, c: Candidate, most: int) -> tuple[int, ...]:
    """Bounds down to the promised extent, or to that of the fewest threads: halves, and three quarters where these have
    fewer threads, or fewer vectors a thread."""
    least, bounds = _least_columns(problem), [most]
    while find_instance(problem, c, bounds[0]).threads > least_threads(problem) and bounds[0] // 2 >= least:
        half, between = bounds[0] // 2, bounds[0] * 3 // 4
        if find_instance(problem, c, between) != find_instance(problem, c, bounds[0]):
            bounds.insert(0, between)
        bounds.insert(0, half)
    return tuple(bounds)


def read_common(c: Candidate) -> dict[str, Any]:
    """Knobs that the tilings of a kernel have alike, by field of the candidate."""
    return {"prefetch": c.prefetch, "pdl_wait": c.pdl_wait, "pdl_trigger": c.pdl_trigger}


def refuse_beside(c: Candidate, own: Candidate) -> Refusal | None:
    """Why the tilings of `c` cannot have one of a legal candidate among them."""
    if len(own.bounds) != 1:
        reason = f"bounds = {list(own.bounds)}, and a winner has one"
        return Refusal("row-bounds", ("bounds",), reason, "tune again", None, form=False)
    if has_clusters(own) and not has_clusters(c):
        reason = f"{own.threads} threads are in a cluster of CTAs, and rows of this kernel have none"
        return Refusal("row-threads", ("threads",), reason, f"use at most {MOST_CTA_THREADS}", None, form=False)
    return None


def describe(problem: RowProblem, c: Candidate) -> Numbers:
    """Of the longest rows, or of calls of any size."""
    if is_streamed(problem, c):
        streamed = _describe(problem, c, find_streamed(problem, c), 0)
        return replace(streamed, module=STREAMED if c.bounds else streamed.module)
    return _describe(problem, c, find_instance(problem, c), c.bounds[-1] if c.bounds else 0)


def _describe(problem: RowProblem, c: Candidate, i: RowShare, most: int, clusters: bool | None = None) -> Numbers:
    """most: columns of a row, or elements of a call, that it is for; 0: any. clusters: whether kernels of its module
    may have any, by default as `c` says."""
    rounds = (problem.held_cut if most else problem.streamed_cut).rounds
    reductions = max((len(r.reduced) for r in rounds), default=0)
    totals = reductions * max(1, i.threads // WARP_THREADS) * SLOTS if max(c.threads, i.threads) > WARP_THREADS else 0
    sources = {
        "threads": "threads, or as many as the bound needs",
        "rows": f"{CTA_THREADS} / threads, where these exchange nothing by shared memory",
        "vector": "vector",
        "vectors": "bound / (threads x vector)" if problem.held else "loads of a thread on their way at once",
        "most": "bounds" if problem.held else f"{SM_THREADS} threads of an SM x vector; 0: any",
        "ctas_per_sm": f"by {REGISTER_FILE} registers and {SM_THREADS} threads",
        "smem_bytes": f"{reductions} reductions x warps of a row x {SLOTS} slots x f32",
    }
    says = "f32 total of each reduction and warp; exchanges take turns"
    source = f"{reductions * SLOTS} * max(1, t.threads // {WARP_THREADS})"
    fields: tuple[SmemField, ...] = (SmemField("totals", F32, totals, source, says),) if totals else ()
    if problem.program.reductions:
        sources["smem_bytes"] += " + 2 x i32 + warps of a CTA x columns of a piece x f32"
        joined = i.threads * i.rows // WARP_THREADS * piece_of(problem.vector)
        source = f"t.threads * t.rows // {WARP_THREADS} * piece_of(t.vector)"
        fields += (
            SmemField("ticket", I32, 2, "2", "what this CTA joins, and how many CTAs wait for each other"),
            SmemField("joined", F32, joined, source, "what each warp of a team has joined"),
        )
    if (has_clusters(c) if clusters is None else clusters) and (most or problem.read_once):
        sources["cluster"] = f"CTAs of up to {PART_THREADS} threads, or {MOST_CLUSTER}"
        sources["smem_bytes"] += f" + {reductions} reductions x cluster x {SLOTS} slots x f32"
        peers, source = reductions * i.cluster * SLOTS, f"{reductions * SLOTS} * t.cluster"
        fields += (SmemField("peers", F32, peers, source, "f32 total of each reduction and CTA of the cluster"),)
    size = sum(field.bytes for field in fields)
    numbers = RowTiling(i.threads, i.rows, problem.vector, i.vectors, most, count_ctas(problem, i), size, i.cluster)
    return Numbers(numbers, sources, fields)


def plan_code(resolved: SingleKernel, tiling: ResolvedTiling[RowTiling]) -> CodePlan:
    """Each load and store of what has elements or columns is there, as a loop is unrolled; tensors of elements are
    loaded for the first row and for the next one, where they are prefetched."""
    p, numbers, c = resolved.problem.of_tiling(tiling.name), tiling.numbers, resolved.candidate
    held = bool(numbers.most)
    read = [o.dtype for o in p.operands("tile") * (1 + (c.prefetch and held)) + p.operands("row_vector")]
    stored = [o.dtype for o in p.computed.outputs if o.name in p.elements]
    loads, stores = (
        sum(numbers.vectors * (numbers.vector * dtype.bytes // VECTOR_BYTES) for dtype in dtypes)
        for dtypes in (read, stored)
    )
    return CodePlan(
        resolved.arch,
        numbers.threads * numbers.rows,
        numbers.smem_bytes,
        pdl_wait=c.pdl_wait,
        pdl_trigger=c.pdl_trigger != "none",
        pdl_early=held and bool(early_columns(p, c)),
        wide_loads=loads,
        wide_stores=stores,
        atomics=3 if p.program.reductions else 0,
        row_prefetches=len(asked_for(p, c)) * held,
        fewer_registers="more threads",
    )


class RowKernels(SingleTiling):
    """How row kernels are decided, explained and rendered."""

    def instances(
        self, problem: RowProblem, candidate: Candidate, device: Device
    ) -> Mapping[str, tuple[When | None, Numbers]]:
        """Those that do without optional operands before those that take all."""
        shorter: dict[str, tuple[When | None, Numbers]] = {}
        for omitted in list_omissions(problem.optional):
            own, end = self._instances(problem.without(omitted), candidate, device), suffix(omitted)
            shorter |= {f"{name}{end}": (None, replace(n, module=f"{n.module}{end}")) for name, (_, n) in own.items()}
        return {**shorter, **self._instances(problem, candidate, device)}

    def _instances(
        self, problem: RowProblem, candidate: Candidate, device: Device
    ) -> Mapping[str, tuple[When, Numbers]]:
        """By columns of a row that is reduced, so that its order depends on nothing else; or by elements of a call."""
        p, c = problem, candidate
        if not p.held:
            most = device.sms * SM_THREADS * p.step
            few = _describe(p, c, find_instance(p, c, vectors=FEW_VECTORS), most)
            return {FEW: (((ELEMENTS, "<=", most),), few), NAME: ((), describe(p, c))}
        shorter = {
            f"{p.columns}{bound}": (
                ((p.columns, "<=", bound),),
                _describe(p, c, find_instance(p, c, bound), bound),
            )
            for bound in c.bounds[: None if is_streamed(p, c) else -1]
        }
        return {**shorter, NAME: ((), describe(p, c))}

    def read_tuned(self, spec: KernelSpec, problem: RowProblem, decided: Decided, tuned: Sequence[TunedRow]) -> Reading:
        """A winner is for rows of a range of extents, whatever their number was when it was measured."""
        if not problem.held:
            return super().read_tuned(spec, problem, decided, tuned)
        c, arch = decided.candidate, ARCHS[spec.arch]
        return read_tuned(
            tuned,
            KNOBS,
            {name: v for name, v in written_knobs(spec, KNOBS).items() if name != "bounds"} | read_common(c),
            tuple(problem.dims),
            problem.columns,
            complete=lambda fixed: self._choose(problem, arch, fixed, decided.device),
            refuse=lambda own: refuse_beside(c, own),
            idle=problem.rows,
        )

    def own_candidate(self, candidate: Candidate, own: Numbers) -> Candidate:
        """That of a winner with these numbers: rows up to a bound."""
        t: RowTiling = own.numbers
        return replace(candidate, threads=t.row_threads, bounds=(t.most,)) if candidate.bounds and t.most else candidate

    def join_tuned(
        self,
        problem: RowProblem,
        candidate: Candidate,
        tilings: tuple[SingleInstance, ...],
        tuned: Sequence[Candidate],
    ) -> tuple[tuple[SingleInstance, ...], Mapping[Candidate, str]]:
        names = {t.candidate: t.name for t in tilings if problem.of_tiling(t.name) is problem}
        found: list[SingleInstance] = []
        for c in dict.fromkeys(tuned):
            if c not in names:
                names[c] = f"{problem.columns}{c.bounds[-1]}_threads{c.threads}"
                for omitted in (*list_omissions(problem.optional), ()):
                    end, own = suffix(omitted) if omitted else "", problem.without(omitted)
                    numbers = _describe(own, c, find_instance(own, c), c.bounds[-1], has_clusters(candidate))
                    numbers = replace(numbers, module=f"{numbers.module}{end}")
                    found.append(numbers.tiling(f"{names[c]}{end}", c))
        return (*found, *tilings), names

    def explain_problem(self, resolved: SingleKernel) -> Iterator[Section]:
        """Tensors, rounds, and tilings."""
        p: RowProblem = resolved.problem
        sides = {"input": p.inputs, "output": p.outputs}
        rows = tuple((side, p.describe(a)) for side, args in sides.items() for a in args)
        yield Section(f"{resolved.name}: {resolved.family} for {resolved.arch}", (), ("is", "tensor"), rows)
        yield explain_rounds(p)
        yield self.explain_tilings(resolved)

    def explain_tilings(self, resolved: SingleKernel) -> Section:
        """What each tiling has, and which calls run it."""
        p, c = resolved.problem, resolved.candidate
        rows = []
        when = {row.tiling: row.text for row in resolved.dispatch}
        for tiling in resolved.tilings:
            t, own = tiling.numbers, p.of_tiling(tiling.name)
            flying = bytes_in_flight(own, RowShare(t.threads, t.rows, t.vectors, c.prefetch and t.most > 0))
            rows_of_cta = t.rows if t.cluster == 1 else f"1/{t.cluster}"
            numbers = (
                t.row_threads,
                rows_of_cta,
                f"{t.vectors} x {t.vector}",
                t.ctas_per_sm,
                f"{flying / 1024:.4g} KiB",
            )
            omitted = [a.name for a in p.inputs if a not in own.inputs]
            rows.append((tiling.name, when.get(tiling.name) or f"without {', '.join(omitted)}", *map(str, numbers)))
        line = "the first that holds; bytes are of rows, when all threads of an SM wait for theirs"
        header = (
            "tiling",
            "runs when",
            "threads a row",
            "rows a CTA",
            "elements a thread",
            "CTAs an SM",
            "on their way",
        )
        return Section("Tilings", (line,), header, tuple(rows))

    def facts(self, problem: RowProblem, dims: Mapping[str, int]) -> Mapping[str, int]:
        return dims if problem.held else {ELEMENTS: math.prod(dims.values())}

    def render(self, resolved: SingleKernel) -> dict[str, str]:
        return render_kernel(resolved)


KERNEL = RowKernels(KNOBS, RULES, candidates, describe, RowPlan, Path(__file__).parent, describe_problem)
