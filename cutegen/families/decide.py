"""Every knob gets a value with its origin: written ones are constraints, locked ones too until a rule refuses them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from cutegen.arch import DEVICES, Device, default_device
from cutegen.diagnostics import Diagnostic, SpecError, cut
from cutegen.families.knobs import Knob, plain
from cutegen.families.refusal import Refusal
from cutegen.families.resolved import Decision, Origin
from cutegen.runtime.base import SILENT
from cutegen.spec.base import list_names

if TYPE_CHECKING:
    from cutegen.spec import KernelSpec, SpecDocument

WRITTEN = "written"  # the reason of what a spec writes
# key -> (value, reason). What has the reason WRITTEN stood in the spec: a spec without it has given it up.
Locked: TypeAlias = Mapping[str, tuple[object, str]]


@dataclass(frozen=True, slots=True)
class Choice:
    """A legal candidate, and why each knob that was not fixed has its value (by candidate field)."""

    candidate: Any
    reasons: dict[str, str]


# The first legal candidate with some knobs fixed (by candidate field), for a device; else what refuses the nearest.
Choose: TypeAlias = Callable[[Mapping[str, Any], Device], "Choice | tuple[Refusal, ...]"]


def first_legal(
    choices: Iterable[Choice], refusals: Callable[[Any], Iterable[Refusal]]
) -> Choice | tuple[Refusal, ...]:
    """The first choice whose candidate nothing refuses; else what refuses the nearest."""
    nearest: tuple[Refusal, ...] = ()
    for choice in choices:
        found = tuple(refusals(choice.candidate))
        if not found:
            return choice
        if not nearest or len(found) < len(nearest):
            nearest = found
    return nearest


@dataclass(frozen=True, slots=True)
class Decided:
    """decisions: the device, then every knob in the table's order. notes: locked decisions that were not kept, and
    why."""

    candidate: Any
    device: Device
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...]


def decide(
    spec: KernelSpec, doc: SpecDocument, knobs: Sequence[Knob], locked: Locked, choose: Choose,
    found: Sequence[Diagnostic], anchor: str,
) -> Decided:  # fmt: skip
    """SpecError with every finding, those already `found` among them, when no candidate with the written knobs is
    legal. anchor: the key at which a finding stands that involves no written knob.

    What a lock has around a core is kept with that core only: beside another one it would be a hybrid that nobody
    chose, with reasons that speak of what is gone."""
    device, why_device, notes = _device(spec, locked)
    written = written_knobs(spec, knobs)
    keys = {knob.field: knob.key for knob in knobs}
    read, unread = _read_locked(knobs, locked, written)
    notes += unread
    kept = {field: value for field, value in read.items() if field not in written}
    lost = _lost_core(knobs, read, written) if locked else []
    again = _free(knobs, kept, lost) if lost else {}
    while True:
        result = choose({k: v for k, (v, _) in kept.items()} | written, device)
        if isinstance(result, Choice):
            break
        blamed = next((k for refusal in result for k in refusal.knobs if k in kept), next(reversed(kept), None))
        if blamed is None:
            located = [_locate(doc, keys, anchor, written, r) for r in _about_written(result, written)]
            raise SpecError([*found, *located])
        again[blamed] = kept.pop(blamed)[0], result[0].reason
        if any(knob.part == "core" for knob in knobs if knob.field == blamed):
            lost.append(keys[blamed])
            again |= _free(knobs, kept, lost)
    if found:
        raise SpecError(found)
    for field, (old, why) in again.items():
        if (new := getattr(result.candidate, field)) != old:
            was, now = json.dumps(plain(old)), json.dumps(plain(new))
            notes.append(f"{keys[field]}: {was} of the lock is decided again: {why}; now {now}")
    decisions = [Decision("device", device.name, *why_device)]
    for knob in knobs:
        origin: Origin
        if knob.field in written:
            origin, reason = "spec", WRITTEN
        elif knob.field in kept:
            origin, reason = "lock", kept[knob.field][1]
        else:
            origin, reason = "auto", result.reasons[knob.field]
        decisions.append(Decision(knob.key, getattr(result.candidate, knob.field), origin, reason))
    return Decided(result.candidate, device, tuple(decisions), tuple(notes))


def written_knobs(spec: KernelSpec, knobs: Iterable[Knob]) -> dict[str, Any]:
    """Values that the spec gives, by candidate field; what is `auto` is absent."""
    written = {}
    for knob in knobs:
        value: Any = spec
        for step in knob.path:
            value = value.get(step) if isinstance(value, dict) else getattr(value, step, None)
        if value is not None and value != "auto":
            written[knob.field] = value
    return written


def kernel_digest(
    spec: KernelSpec, name: str, problem: Mapping[str, object], decisions: Iterable[Decision], *numbers: object
) -> str:
    """Hash of what a kernel is. problem: in plain data. numbers: of the instances, and what chooses among them."""
    meaning = {
        "cutegen": spec.cutegen,
        "kernel": spec.kernel,
        "name": name,
        "arch": spec.arch,
        "problem": problem,
        "decisions": {d.key: plain(d.value) for d in decisions},
        "numbers": [_said(n) for n in numbers],
    }
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


def _said(numbers: Any) -> dict[str, object]:
    """The fields of a dataclass, but for those that are silent about their default."""
    silent = [f.name for f in fields(numbers) if f.metadata == SILENT and getattr(numbers, f.name) == f.default]
    return {name: value for name, value in asdict(numbers).items() if name not in silent}


def _device(spec: KernelSpec, locked: Locked) -> tuple[Device, tuple[Origin, str], list[str]]:
    if spec.device:
        return DEVICES[spec.device], ("spec", WRITTEN), []
    default = default_device(spec.arch)
    assert default, f"no device of {spec.arch}"
    value, reason = locked.get("device", (None, ""))
    kept = DEVICES.get(value) if isinstance(value, str) else None
    if kept and kept.arch == spec.arch:
        return kept, ("lock", reason), []
    notes = (
        [f"device: {cut(json.dumps(value))} of the lock is not a device of {spec.arch}; decided again"] if value else []
    )
    return default, ("auto", f"the default of {spec.arch}"), notes


def _read_locked(
    knobs: Iterable[Knob], locked: Locked, written: Mapping[str, Any]
) -> tuple[dict[str, tuple[Any, str]], list[str]]:
    """Locked decisions by candidate field, and notes about those of no use, among them those that the spec
    contradicts."""
    kept: dict[str, tuple[Any, str]] = {}
    notes: list[str] = []
    unknown: list[str] = []
    keys = {knob.key: knob for knob in knobs}
    for key, (value, reason) in locked.items():
        if key == "device":
            continue
        knob = keys.get(key)
        if reason == WRITTEN and (knob is None or knob.field not in written):
            continue
        if knob is None:
            unknown.append(key)
            continue
        try:
            read = knob.read(value)
        except ValueError as error:
            notes.append(f"{key}: {cut(json.dumps(value))} of the lock is not {error}; decided again")
            continue
        kept[knob.field] = (read, reason)
        if written.get(knob.field, read) != read:
            now = json.dumps(plain(written[knob.field]))
            notes.append(f"{key}: the spec now says {now}, the lock had {cut(json.dumps(value))}")
    if unknown:
        it, knob_s = ("them", "knobs") if len(unknown) > 1 else ("it", "knob")
        notes.append(f"{list_names(unknown)}: the lock decides {it}, but this spec has no such {knob_s}; dropped")
    return kept, notes


def _lost_core(knobs: Iterable[Knob], read: Mapping[str, tuple[Any, str]], written: Mapping[str, Any]) -> list[str]:
    """Keys of the core that are not as they were when the lock was made: the spec contradicts it, or has given them
    up. One that the lock lacks because the spec wrote it then, and does still, counts as it was."""
    core = [knob for knob in knobs if knob.part == "core"]
    contradicted = [
        k.key for k in core if k.field in read and written.get(k.field, read[k.field][0]) != read[k.field][0]
    ]
    return contradicted + [k.key for k in core if k.field not in read and k.field not in written]


def _free(knobs: Iterable[Knob], kept: dict[str, tuple[Any, str]], lost: Iterable[str]) -> dict[str, tuple[Any, str]]:
    """Take the core and what is around it out of `kept`: by candidate field the value, and why it goes."""
    why = f"it goes with {', '.join(lost)}"
    return {k.field: (kept.pop(k.field)[0], why) for k in knobs if k.part != "apart" and k.field in kept}


def _about_written(refusals: Sequence[Refusal], written: Mapping[str, Any]) -> Sequence[Refusal]:
    """Refusals that involve a written knob; the others are consequences, unless there is nothing else to say."""
    return [r for r in refusals if any(k in written for k in r.knobs)] or refusals


def _locate(
    doc: SpecDocument, keys: Mapping[str, str], anchor: str, written: Mapping[str, Any], refusal: Refusal
) -> Diagnostic:
    """The finding at the knob most to blame among those that are written."""
    field = next((k for k in refusal.knobs if k in written), None)
    path: tuple[str | int, ...] = tuple(keys[field].split(".")) if field else (anchor,)
    if field == refusal.knobs[0] and refusal.element is not None:
        path += (refusal.element,)
    return doc.diagnostic(refusal.rule, path, refusal.reason, refusal.remedy, key=field is None)
