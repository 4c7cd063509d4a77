"""The portfolio of a spec: what its lock holds, as far as it is legal still, or what is decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cutegen.arch import ARCHS, DEVICES
from cutegen.diagnostics import SpecError
from cutegen.families.decide import Choice, Choose, Decided, written_knobs
from cutegen.families.gemm.candidate import Candidate, idle_knobs
from cutegen.families.gemm.invariance import other_sum
from cutegen.families.gemm.portfolio import MOST, Chosen, choose_portfolio, grid_of
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.knobs import Knob, plain
from cutegen.families.refusal import Refusal
from cutegen.families.resolved import Portfolio
from cutegen.families.tuned import read_candidate
from cutegen.runtime.gemm.cost_model import MODEL, MODELS

LEFT = "some of these were dropped later:"  # how the reason begins then

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec
    from cutegen.spec import SpecDocument

WRITTEN_OUT = "listed in the spec"


@dataclass(frozen=True, slots=True)
class Held:
    """candidates: of the portfolio, besides that of the decisions. portfolio: for the lock; None where calls leave
    nothing to choose. notes: what of a lock was not kept, and why."""

    candidates: tuple[Candidate, ...]
    portfolio: Portfolio | None
    notes: tuple[str, ...] = ()


def hold_portfolio(
    spec: GemmSpec,
    doc: SpecDocument,
    problem: GemmProblem,
    knobs: Sequence[Knob],
    decided: Decided,
    locked: Portfolio | None,
    choose: Choose,
) -> Held:
    """The portfolio that the spec lists, else that of the lock, else a new one. SpecError: what it lists is illegal."""
    default: Candidate = decided.candidate

    def refuse(c: Candidate) -> Refusal | None:
        return other_sum(problem, default, c)

    written = written_knobs(spec, knobs)
    most = spec.portfolio if isinstance(spec.portfolio, int) else MOST
    if isinstance(spec.portfolio, list):
        model = locked.model if locked and locked.model in MODELS else MODEL
        return Held(_listed(spec, doc, knobs, decided, choose, refuse), Portfolio(model, WRITTEN_OUT, ()))
    if locked and locked.reason != WRITTEN_OUT:
        return _kept(
            locked, problem, knobs, written, default, most, lambda fixed: choose(fixed, decided.device), refuse
        )
    if not decided.device.rates:
        return Held((), None)
    arch = ARCHS[spec.arch]
    devices = [DEVICES[spec.device]] if spec.device else [d for d in DEVICES.values() if d.arch == spec.arch]
    shapes = grid_of(problem, spec.listed_shapes(problem.m.name))
    chosen = choose_portfolio(problem, written, default, arch, devices, shapes, most)
    return Held(chosen.candidates, _portfolio(problem, knobs, chosen, MODEL))


def _kept(
    locked: Portfolio,
    problem: GemmProblem,
    knobs: Sequence[Knob],
    written: Mapping[str, Any],
    default: Candidate,
    most: int,
    complete: Any,
    refuse: Any,
) -> Held:
    found: dict[Candidate, None] = {}
    notes: dict[str, None] = {}
    model = locked.model
    if model not in MODELS:
        notes[f"portfolio: version {model} of the cost model is not known here; picks are by version {MODEL}"] = None
        model = MODEL
    for number, tiling in enumerate(locked.tilings, 1):
        c = read_candidate(tiling, knobs, written, complete, refuse)
        if isinstance(c, str):
            notes[f"portfolio: tiling {number} is dropped: {c}"] = None
        elif c != default:
            found[c] = None
    if len(found) >= most:
        notes[
            f"portfolio: the spec allows {most} tiling{'s' * (most > 1)}; "
            f"the last {len(found) + 1 - most} of the lock are dropped"
        ] = None
    candidates, reason = tuple(found)[: most - 1], locked.reason
    if notes and candidates:  # what it says of all that were chosen does not hold for these
        reason = reason if reason.startswith(LEFT) else f"{LEFT} {reason}"
    return Held(candidates, _portfolio(problem, knobs, Chosen(candidates, reason), model), tuple(notes))


def _listed(
    spec: GemmSpec, doc: SpecDocument, knobs: Sequence[Knob], decided: Decided, choose: Choose, refuse: Any
) -> tuple[Candidate, ...]:
    """What the spec lists, each completed by `auto`."""
    written, keys = written_knobs(spec, knobs), {k.field: k.short for k in knobs}
    found: dict[Candidate, None] = {}
    findings = []
    for index, entry in enumerate(spec.portfolio if isinstance(spec.portfolio, list) else []):
        fixed = entry.fixed(knobs)  # type: ignore[attr-defined]
        result = choose({**written, **fixed}, decided.device)
        refusals = (r,) if isinstance(result, Choice) and (r := refuse(result.candidate)) else ()
        for refusal in refusals if isinstance(result, Choice) else result[:1]:
            blamed = next((keys[k] for k in refusal.knobs if k in fixed), None)
            path: tuple[str | int, ...] = ("portfolio", index, *([blamed] if blamed else []))
            findings.append(doc.diagnostic(refusal.rule, path, refusal.reason, refusal.remedy))
        if isinstance(result, Choice) and result.candidate != decided.candidate:
            found[result.candidate] = None
    if findings:
        raise SpecError(findings)
    return tuple(found)


def _portfolio(problem: GemmProblem, knobs: Sequence[Knob], chosen: Chosen, model: int) -> Portfolio | None:
    if not chosen.candidates:
        return Portfolio(model, chosen.reason, ()) if chosen.reason else None
    return Portfolio(model, chosen.reason, tuple(_describe(problem, knobs, c) for c in chosen.candidates))


def _describe(problem: GemmProblem, knobs: Sequence[Knob], c: Candidate) -> dict[str, object]:
    idle = idle_knobs(problem, c)
    return {k.key: plain(getattr(c, k.field)) for k in knobs if k.field not in idle}
