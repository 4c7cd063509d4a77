"""From a problem, a spec's knobs and locked decisions to a ResolvedGemm with every number and its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from cutegen.arch import ARCHS, Device, default_device
from cutegen.families.decide import Choice, Choose, Decided, Locked, decide, kernel_digest, written_knobs
from cutegen.families.gemm import spec_rules
from cutegen.families.gemm.assembly import Row, assemble
from cutegen.families.gemm.auto import choose
from cutegen.families.gemm.candidate import Candidate, idle_knobs, knobs_of
from cutegen.families.gemm.cores import COST_MODEL
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.held_portfolio import Held, hold_portfolio
from cutegen.families.gemm.invariance import other_sum
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.refusal import Refusal
from cutegen.families.resolved import Outcome, Portfolio
from cutegen.families.tuned import TunedRow, read_tuned
from cutegen.runtime.gemm.cost_model import MODEL

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec
    from cutegen.spec import SpecDocument

OPEN_EXTENTS = (2048, 4096, 8192, 16384)  # of dims that nothing is known of, beside few: as layers have them


def resolve(
    spec: GemmSpec,
    doc: SpecDocument,
    problem: GemmProblem,
    locked: Locked,
    tuned: Sequence[TunedRow] = (),
    portfolio: Portfolio | None = None,
    *,
    rows: Sequence[Row] = (),
) -> Outcome:
    """Decide every knob. Written knobs are constraints, locked ones too until a rule refuses them.

    rows: dispatch rows before the default, with legal candidates; tuned: those before them, less what rules refuse.
    portfolio: that of the lock, less what rules refuse; without one it is decided.
    SpecError with every finding when no candidate with the written knobs is legal.
    """
    found = list(spec_rules.findings(spec, doc, problem))
    knobs, choose = knobs_of(problem), chooser(spec, problem)
    decided = decide(spec, doc, knobs, locked, choose, found, "tensors")
    read = read_tuned(
        tuned,
        knobs,
        written_knobs(spec, knobs),
        [d.name for d in problem.dims],
        problem.m.name,
        complete=lambda fixed: choose(fixed, decided.device),
        refuse=lambda c: other_sum(problem, decided.candidate, c),
        idle=[d.name for d in problem.gathered_dims],
    )
    held = hold_portfolio(spec, doc, problem, knobs, decided, portfolio, choose)
    resolved = _resolved(spec, doc, problem, decided, rows, read.kept, held)
    names = {t.candidate: t.name for t in resolved.tilings}
    instances = {row.name: names[c] for row, c in read.kept}
    return Outcome(resolved, decided.notes + held.notes, read.unfit, instances, held.portfolio)


def chooser(spec: GemmSpec, problem: GemmProblem) -> Choose:
    """`choose` for this problem and what is known of its shapes."""
    arch, (shapes, taken) = ARCHS[spec.arch], known_shapes(spec, problem)
    features = FEATURES if taken else ()
    held = {field: value for feature in features for field, value in feature.fixed_where_open(problem).items()}
    names = " and ".join(taken)

    def run(fixed: Mapping[str, Any], device: Device) -> Choice | tuple[Refusal, ...]:
        choice = choose(problem, {**held, **fixed}, arch, device, shapes)
        if not taken or not isinstance(choice, Choice):
            return choice
        reasons = dict.fromkeys(held.keys() - fixed.keys(), f"{names} {'are' if len(taken) > 1 else 'is'} open")
        for field, reason in choice.reasons.items():
            extents = f", {names} taken as {OPEN_EXTENTS[0]} to {OPEN_EXTENTS[-1]}" * reason.startswith(COST_MODEL)
            reasons[field] = reason + extents
        return replace(choice, reasons=reasons)

    return run


def known_shapes(spec: GemmSpec, problem: GemmProblem) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """Shapes that `dims`, `instances` and `m` make known, and the names of dims whose extents are not. Where rows or
    columns are few, fewer than a tile may have, or promised to be, the others count as OPEN_EXTENTS if they are open;
    elsewhere no shape is known. Of a range of few the upper end counts; a wider one says nothing, or the tile would be
    the best one at its very end. Check and bench have no say."""
    device = default_device(spec.arch)
    if device is None or not device.rates:
        return (), ()  # nothing ranks candidates by their shapes
    dims = [problem.m, problem.n, problem.k, *([problem.batch] if problem.batch else [])]
    shapes: list[Shape] = []
    taken: dict[str, None] = {}
    widest = problem.target.mma_n[1]
    for listed in spec.listed_shapes(problem.m.name) or [{}]:
        values = [dim.value or listed.get(dim.name) for dim in dims]
        values[0] = values[0] or _expected(problem, values)
        extents = [value or (dim.hi if dim.hi and dim.hi < widest else None) for dim, value in zip(dims, values)]
        few = any(extent and extent < widest for extent in extents[:2])
        if None in extents[3:] or (None in extents and not few):
            return (), ()
        taken |= dict.fromkeys(dim.name for dim, extent in zip(dims, extents) if extent is None)
        for other in OPEN_EXTENTS if None in extents else OPEN_EXTENTS[:1]:
            shapes.append(Shape(*(extent or other for extent in extents)))
    return tuple(shapes), tuple(taken)


def describe(value: Any) -> Any:
    """A problem as plain data for its digest: without what follows from the rest or is hashed beside it, and without
    fields that have their default, so that a field for a new feature leaves the digests of kernels without it alone."""
    if is_dataclass(value):
        # An expression's text says what it is.
        own = [f for f in fields(value) if f.name not in ("kernel_epilogue", "expr", "arch")]
        return {f.name: describe(v) for f in own if (v := getattr(value, f.name)) != f.default or f.default is MISSING}
    return [describe(item) for item in value] if isinstance(value, tuple) else value


def _expected(problem: GemmProblem, extents: Sequence[int | None]) -> int | None:
    """The extent of m that `groups: {expected_rows: ...}` makes known."""
    if problem.groups is None or problem.groups.expected_rows is None or extents[-1] is None:
        return None
    return problem.groups.expected_rows * (extents[-1] if problem.groups.flat else 1)


def _resolved(
    spec: GemmSpec,
    doc: SpecDocument,
    problem: GemmProblem,
    decided: Decided,
    rows: Sequence[Row],
    tuned: Sequence[tuple[TunedRow, Candidate]],
    held: Held,
) -> ResolvedGemm:
    c: Candidate = decided.candidate
    idle = {knob.key for knob in knobs_of(problem) if knob.field in idle_knobs(problem, c)}
    decisions = tuple(d for d in decided.decisions if d.key not in idle)
    kernels, dispatch = assemble(problem, c, rows, tuned, held.candidates, "_".join(filter(None, ("kernel", doc.arch))))
    instances = [part for kernel in kernels for t in kernel.tilings for part in (t.candidate, t.numbers)]
    described = describe(problem)
    names = {t.candidate: t.name for kernel in kernels for t in kernel.tilings if not t.omitted}
    picks = tuple(names[x] for x in (c, *held.candidates))
    chosen = [replace(held.portfolio, reason="")] if held.portfolio and len(picks) > 1 else []
    return ResolvedGemm(
        name=doc.name,
        arch=spec.arch,
        device=decided.device.name,
        problem=problem,
        kernels=kernels,
        dispatch=dispatch,
        decisions=decisions,
        digest=kernel_digest(spec, doc.name, described, decisions, *instances, *dispatch, *chosen),
        function=spec.function or doc.name,
        picks=picks,
        model=held.portfolio.model if held.portfolio else MODEL,
        why_picks=held.portfolio.reason if held.portfolio else "",
        archs=doc.archs,
    )
