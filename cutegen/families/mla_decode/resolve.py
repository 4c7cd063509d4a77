"""From a problem, a spec's knobs and locked decisions to a ResolvedMla with every number and its origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from cutegen.arch import ARCHS, Device
from cutegen.families.decide import Choice, Choose, Decided, Locked, decide, kernel_digest, written_knobs
from cutegen.families.mla_decode.auto import choose, choose_instance
from cutegen.families.mla_decode.candidate import KEYS_ON_M, SINGLE_BLOCKS, Candidate, keep_single, list_knobs
from cutegen.families.mla_decode.lowering import lowering_of
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.resolved import CALL_DIMS, ResolvedMla
from cutegen.families.mla_decode.rules import other_cut
from cutegen.families.refusal import Refusal
from cutegen.families.resolved import DeviceRow, DispatchRow, Outcome, Portfolio, When
from cutegen.families.tuned import TunedRow, read_tuned

if TYPE_CHECKING:
    from cutegen.families.mla_decode.spec import MlaSpec
    from cutegen.spec import SpecDocument

# Sharing loads pays from a batch on that fills the GPU, and with row blocks that pair up: of (more rows than, up to).
# Measured on an H200: 2 to 7% faster at batch 32 and 128 with 128 heads, 4% slower at batch 1.
SHARED_BATCH = 16
SHARED_ROWS: tuple[tuple[int, int | None], ...] = ((64, 128), (192, None))


def resolve(
    spec: MlaSpec,
    doc: SpecDocument,
    problem: MlaProblem,
    locked: Locked,
    tuned: Sequence[TunedRow] = (),
    portfolio: Portfolio | None = None,
) -> Outcome:
    """Decide every knob. Written knobs are constraints, locked ones too until a rule refuses them. tuned: dispatch rows
    of single devices, before all others, less what rules refuse.

    SpecError with every finding when no candidate with the written knobs is legal.
    """
    arch = ARCHS[spec.arch]
    knobs = list_knobs(arch)
    decided = decide(spec, doc, knobs, locked, chooser(spec, problem), (), "kernel")
    read = read_tuned(
        tuned,
        knobs,
        keep_single(written_knobs(spec, knobs), decided.candidate),
        (*CALL_DIMS, problem.length),
        problem.length,
        complete=lambda fixed: choose_instance(problem, {"variant": decided.candidate.variant, **fixed}, arch),
        refuse=lambda c: other_cut(problem, decided.candidate, c),
    )
    resolved = _assemble(spec, doc, problem, decided, read.kept)
    names = {t.candidate: t.name for t in resolved.tilings}
    instances = {row.name: names[c] for row, c in read.kept}
    return Outcome(resolved, decided.notes, read.unfit, instances)


def chooser(spec: MlaSpec, problem: MlaProblem) -> Choose:
    """`choose` for this problem."""
    arch = ARCHS[spec.arch]

    def run(fixed: Mapping[str, Any], device: Device) -> Choice | tuple[Refusal, ...]:
        return choose(problem, fixed, arch)

    return run


def _assemble(
    spec: MlaSpec,
    doc: SpecDocument,
    problem: MlaProblem,
    decided: Decided,
    tuned: Sequence[tuple[TunedRow, Candidate]],
) -> ResolvedMla:
    c: Candidate = decided.candidate
    instances = tuple(dict.fromkeys((*c.instances(), *(own for _, own in tuned))))
    names = dict(zip(instances, _instance_names(instances)))
    describe = lowering_of(spec.arch).describe_tiling
    tilings = tuple(replace(describe(problem, i, names[i]), module=_module(i, c, doc.arch)) for i in instances)
    numbers = tuple(t.numbers for t in tilings)
    measured = tuple(DeviceRow(row.when, names[own], row.device) for row, own in tuned if row.device)
    return ResolvedMla(
        name=doc.name,
        arch=spec.arch,
        device=decided.device.name,
        problem=problem,
        variant=c.variant,
        tilings=tilings,
        dispatch=(*measured, *_default_rows(c, names, problem)),
        decisions=decided.decisions,
        digest=kernel_digest(spec, doc.name, _said(problem), decided.decisions, *numbers, *measured),
        function=spec.function or doc.name,
        archs=doc.archs,
    )


def _module(c: Candidate, decided: Candidate, arch: str) -> str:
    """The generated module of a kernel: products with keys on M are other source than those with rows on M."""
    other = (c.variant == KEYS_ON_M) != (decided.variant == KEYS_ON_M)
    return "_".join(filter(None, ("kernel", arch, c.variant * other)))


def _said(problem: MlaProblem) -> dict[str, object]:
    """Its fields, but for a format of the cache, sparse keys, a sink and pieces where it has none."""
    optional = ("cache", "topk", "sink", "piece", "extra")
    said = {name: value for name, value in asdict(problem).items() if name not in optional or value}
    return {**said, "cache": problem.cache.said} if problem.cache else said


def _default_rows(c: Candidate, names: Mapping[Candidate, str], problem: MlaProblem) -> Iterator[DispatchRow]:
    """Which of the instances that are built without winners runs a call."""
    default, *others = c.instances()
    given = (*problem.rows, problem.requests)
    for other in others:
        for when in _shared_loads(*given) if other.cluster > 1 else _few_rows(*given):
            yield DispatchRow(when, names[other])
    yield DispatchRow((), names[default])


def _shared_loads(fewest: int, most: int, batch: str) -> Iterator[When]:
    """Calls for two CTAs that share loads: those that somebody makes, without bounds that all of them keep."""
    for above, upto in SHARED_ROWS:
        if most > above and (upto is None or fewest <= upto):
            low: When = (("rows", ">", above),) if fewest <= above else ()
            high: When = (("rows", "<=", upto),) if upto is not None and upto < most else ()
            yield (*low, *high, (batch, ">=", SHARED_BATCH))


def _few_rows(fewest: int, most: int, batch: str) -> Iterator[When]:
    """Calls for single key blocks: those that somebody makes, up to the first of any rows, which has more requests than
    the ones behind it."""
    for rows, requests in SINGLE_BLOCKS:
        if rows >= fewest:
            yield ("rows", "<=", rows), (batch, "<=", requests)
        if rows >= most:
            return


def _instance_names(instances: Sequence[Candidate]) -> Iterator[str]:
    """The variant, and the knobs in which an instance is not the first one of it: seesaw, seesaw_overhead_4."""
    first: dict[str, Candidate] = {}
    for c in instances:
        known = first.setdefault(c.variant, c)
        others = {f.name: getattr(c, f.name) for f in fields(Candidate) if getattr(c, f.name) != getattr(known, f.name)}
        yield "_".join((c.variant, *(_word(name, value) for name, value in others.items())))


def _word(knob: str, value: object) -> str:
    return f"{knob}_{value}" if not isinstance(value, bool) else knob if value else f"no_{knob}"
