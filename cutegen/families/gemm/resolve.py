"""From a problem, a spec's knobs and locked decisions to a ResolvedGemm with every number and its origin."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from cutegen.diagnostics import Diagnostic, SpecError
from cutegen.families.gemm import spec_rules
from cutegen.families.gemm.auto import Choice, choose
from cutegen.families.gemm.candidate import KNOBS, Candidate, plain
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.refusal import Refusal
from cutegen.families.gemm.resolved import Decision, DispatchRow, Origin, ResolvedGemm, Schedule
from cutegen.families.gemm.tiling import describe_tiling
from cutegen.hardware import ARCHS, DEVICES, Device, default_device

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec
    from cutegen.spec import SpecDocument

Locked = Mapping[str, tuple[object, str]]  # key -> (value, reason)


@dataclass(frozen=True, slots=True)
class Outcome:
    """resolved: the kernel. notes: locked decisions that could not be kept, and why."""

    resolved: ResolvedGemm
    notes: tuple[str, ...]


def resolve(spec: GemmSpec, doc: SpecDocument, problem: GemmProblem, locked: Locked) -> Outcome:
    """Decide every knob. Written knobs are constraints, locked ones too until a rule refuses them.

    SpecError with every finding when no candidate with the written knobs is legal.
    """
    found = list(spec_rules.findings(spec, doc, problem))
    arch = ARCHS[spec.arch]
    device, why_device, notes = _device(spec, locked)
    written = written_knobs(spec, problem)
    kept, unread = _read_locked(problem, locked, written)
    notes += unread
    shapes = known_shapes(spec, problem)
    while True:
        result = choose(problem, {k: v for k, (v, _) in kept.items()} | written, arch, device, shapes)
        if isinstance(result, Choice):
            break
        blamed = next((k for refusal in result for k in refusal.knobs if k in kept), next(reversed(kept), None))
        if blamed is None:
            raise SpecError(found + [_locate(doc, problem, written, r) for r in _about_written(result, written)])
        value = json.dumps(plain(kept.pop(blamed)[0]))
        notes.append(f"{_key(problem, blamed)}: {value} of the lock is decided anew: {result[0].reason}")
    if found:
        raise SpecError(found)
    decisions = [Decision("device", device.name, *why_device)]
    for knob in KNOBS:
        value = getattr(result.candidate, knob.field)
        if knob.field == "load_stages" and not value:
            continue  # no loaded tile, no knob
        if knob.field in written:
            origin, reason = cast(Origin, "spec"), "written"
        elif knob.field in kept:
            origin, reason = "lock", kept[knob.field][1]
        else:
            origin, reason = "auto", result.reasons[knob.field]
        decisions.append(Decision(".".join(knob.path(problem)), value, origin, reason))
    return Outcome(_assemble(spec, doc, problem, result.candidate, tuple(decisions)), tuple(notes))


def written_knobs(spec: GemmSpec, problem: GemmProblem) -> dict[str, Any]:
    """Values that the spec gives, by Candidate field; what is `auto` is absent."""
    written = {}
    for knob in KNOBS:
        value: Any = spec
        for step in knob.path(problem):
            value = value.get(step) if isinstance(value, dict) else getattr(value, step, None)
        if value is not None and value != "auto":
            written[knob.field] = value
    return written


def known_shapes(spec: GemmSpec, problem: GemmProblem) -> tuple[Shape, ...]:
    """Shapes that `dims`, `instances` and `m` make known; empty when an extent is open. Check and bench have no say."""
    dims = [problem.m, problem.n, problem.k, *([problem.batch] if problem.batch else [])]
    shapes = []
    for instance in spec.instances or [{}]:
        values = [dim.value if dim.value is not None else instance.get(dim.name) for dim in dims]
        rows: Sequence[int | None] = spec.m if spec.m and values[0] is None else [values[0]]
        for m, rest in product(rows, [values[1:]]):
            if m is None or None in rest:
                return ()
            shapes.append(Shape(m, *cast(list[int], rest)))
    return tuple(shapes)


def _device(spec: GemmSpec, locked: Locked) -> tuple[Device, tuple[Origin, str], list[str]]:
    default = default_device(spec.arch)
    assert default, f"no device of {spec.arch}"
    written = DEVICES.get(spec.device) if spec.device else None
    if spec.device:
        return written or default, ("spec", "written"), []
    value, reason = locked.get("device", (None, ""))
    kept = DEVICES.get(value) if isinstance(value, str) else None
    if kept and kept.arch == spec.arch:
        return kept, ("lock", reason), []
    notes = [f"device: {json.dumps(value)} of the lock is no device of {spec.arch}; decided anew"] if value else []
    return default, ("auto", f"the default of {spec.arch}"), notes


def _read_locked(
    problem: GemmProblem, locked: Locked, written: Mapping[str, Any]
) -> tuple[dict[str, tuple[Any, str]], list[str]]:
    """Locked decisions by Candidate field, without those that the spec writes; and notes about those of no use."""
    kept: dict[str, tuple[Any, str]] = {}
    notes = []
    keys = {".".join(knob.path(problem)): knob for knob in KNOBS}
    for key, (value, reason) in locked.items():
        if key == "device":
            continue
        knob = keys.get(key)
        if knob is None:
            notes.append(f"{key}: the lock decides it, but this spec has no such knob; dropped")
            continue
        try:
            read = knob.read(value)
        except ValueError as error:
            notes.append(f"{key}: {json.dumps(value)} of the lock is not {error}; decided anew")
            continue
        if knob.field not in written:
            kept[knob.field] = (read, reason)
        elif written[knob.field] != read:
            now = json.dumps(plain(written[knob.field]))
            notes.append(f"{key}: the spec now says {now}, the lock had {json.dumps(value)}")
    return kept, notes


def _about_written(refusals: Sequence[Refusal], written: Mapping[str, Any]) -> Sequence[Refusal]:
    """Refusals that involve a written knob; the others are consequences, unless there is nothing else to say."""
    return [r for r in refusals if any(k in written for k in r.knobs)] or refusals


def _locate(doc: SpecDocument, problem: GemmProblem, written: Mapping[str, Any], refusal: Refusal) -> Diagnostic:
    """The finding at the knob most to blame among those that are written."""
    field = next((k for k in refusal.knobs if k in written), None)
    path: tuple[str | int, ...] = tuple(_key(problem, field).split(".")) if field else ("tensors",)
    if field == refusal.knobs[0] and refusal.element is not None:
        path += (refusal.element,)
    return doc.diagnostic(refusal.rule, path, refusal.reason, refusal.remedy, key=field is None)


def _key(problem: GemmProblem, field: str) -> str:
    return next(".".join(knob.path(problem)) for knob in KNOBS if knob.field == field)


def _assemble(
    spec: GemmSpec, doc: SpecDocument, problem: GemmProblem, c: Candidate, decisions: tuple[Decision, ...]
) -> ResolvedGemm:
    tiling = describe_tiling(problem, c)
    described = asdict(problem)
    for statement in described["epilogue"]["statements"]:
        del statement["expr"]  # its text says the same, without columns
    meaning = {
        "cutegen": spec.cutegen,
        "kernel": spec.kernel,
        "name": doc.name,
        "arch": spec.arch,
        "problem": described,
        "decisions": {d.key: plain(d.value) for d in decisions},
        "numbers": asdict(tiling.numbers),
    }
    return ResolvedGemm(
        name=doc.name,
        arch=spec.arch,
        device=str(decisions[0].value),
        problem=problem,
        schedule=cast(Schedule, c.schedule),
        scheduler=c.scheduler,
        multicast_a=c.multicast_a,
        multicast_b=c.multicast_b,
        swizzle_a=c.swizzle_a,
        swizzle_b=c.swizzle_b,
        pdl_wait=c.pdl_wait,
        pdl_trigger=c.pdl_trigger != "none",
        tilings=(tiling,),
        dispatch=(DispatchRow((), tiling.name),),
        decisions=decisions,
        digest=hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest(),
    )
