"""Load, parse, bind and decide; the lock is honoured, and whatever is decided again is reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from cutegen.diagnostics import CutegenError, SpecError, raised_together
from cutegen.families.decide import WRITTEN
from cutegen.families.family import Family
from cutegen.families.knobs import plain
from cutegen.families.registry import has_family, load_family, load_spec_model
from cutegen.families.resolved import Outcome
from cutegen.families.tuned import TunedRow
from cutegen.families.tuning import TuningSpace
from cutegen.files import holds, write_text
from cutegen.resolve.binding import bind, staleness
from cutegen.resolve.lock import Lock, lock_path, meaning, read_lock
from cutegen.resolve.winners import REASONS_SHOWN
from cutegen.spec import KernelSpec, SchemaError, SpecDocument, load_document, parse_spec
from cutegen.spec.several_archs import FOR, FOR_ARCH, each_arch, refuse_several, split_archs

NAMES_SHOWN = 3  # tilings of winners that a note is about


@dataclass(frozen=True, slots=True)
class Resolution:
    """resolved: the family's resolved kernel. lock: what the lock is to hold now; read: what it held. notes: what was
    decided again, and winners that no call runs."""

    document: SpecDocument
    spec: KernelSpec
    resolved: Any
    lock: Lock
    notes: tuple[str, ...]
    read: Lock | None


def resolve_file(
    path: Path,
    *,
    locked: bool = False,
    upgrade: bool = False,
    raw: bytes | None = None,
    drop_winners: bool = False,
) -> Resolution:
    """Resolve a spec of one architecture with the lock next to it. Writes nothing; `save_lock` does. raw: the spec's
    text where that is not what the file holds.

    locked: a missing, stale or illegal lock is an error. upgrade: decisions are made again, winners stay, and a damaged
    lock is replaced. drop_winners: those that no call runs leave the lock. CutegenError: it is of several.
    """
    found = resolve_archs(path, locked=locked, upgrade=upgrade, raw=raw, drop_winners=drop_winners)
    refuse_several(path, [r.resolved.arch for r in found])
    return found[0]


def resolve_archs(
    path: Path,
    *,
    locked: bool = False,
    upgrade: bool = False,
    raw: bytes | None = None,
    drop_winners: bool = False,
) -> tuple[Resolution, ...]:
    """As `resolve_file`, of each architecture that a spec is for, in its order."""
    document = load_document(path, raw)

    def resolve(part: SpecDocument) -> Resolution:
        file = lock_path(path, part.arch)
        lock, damaged = _look(file) if upgrade else (read_lock(file), False)
        resolution = resolve_document(part, lock, locked=locked, upgrade=upgrade, drop_winners=drop_winners)
        if damaged:
            lost = f"{file} could not be read: nothing that it held is kept, winners among it"
            resolution = replace(resolution, notes=(lost, *resolution.notes))
        return resolution

    with raised_together(document.faults):
        return resolve_parts(split_document(document), resolve)


def split_document(document: SpecDocument) -> tuple[SpecDocument, ...]:
    """What a spec says for each of its architectures. SpecError: of `arch` and `for`."""
    family = document.data.get("kernel")
    if not has_family(family) or not (isinstance(document.data.get("arch"), list) or FOR in document.data):
        return (document,)  # what is wrong with the family is said with the rest
    return split_archs(document, load_spec_model(str(family)).by_arch)


def resolve_parts(
    parts: Sequence[SpecDocument], resolve: Callable[[SpecDocument], Resolution]
) -> tuple[Resolution, ...]:
    """What each part of a spec resolves to; notes say for which of several architectures they are. SpecError: findings
    about any of them, or their calls differ."""
    found = each_arch(parts, resolve)
    if len(found) == 1:
        return found
    first, described = found[0], [_describe_problem(r) for r in found]
    if other := next((r for r, problem in zip(found, described) if problem != described[0]), None):
        doc, archs = other.document, (first.document.arch, other.document.arch)
        said = f"calls for {archs[0]} and {archs[1]} pass or promise something else: one plan is for both"
        remedy = "write how outputs are stored, and what is promised of operands, for all of them"
        raise SpecError([doc.diagnostic(FOR_ARCH.id, ("arch",), said, remedy, key=True)])
    return tuple(replace(r, notes=tuple(f"{r.document.arch}: {note}" for note in r.notes)) for r in found)


def _describe_problem(resolution: Resolution) -> object:
    return load_family(resolution.spec.kernel).describe_problem(resolution.resolved.problem)


def _look(file: Path) -> tuple[Lock | None, bool]:
    """The lock, None where it is missing or damaged, and whether it is damaged: one look at the file tells both."""
    try:
        return read_lock(file), False
    except CutegenError:
        return None, True


def resolve_document(
    doc: SpecDocument, lock: Lock | None, *, locked: bool = False, upgrade: bool = False, drop_winners: bool = False
) -> Resolution:
    """Resolve a loaded spec. SpecError for findings in it, CutegenError when `locked` and the lock does not hold."""
    spec, problem = _parse_and_bind(doc)
    family: Family = load_family(spec.kernel)
    decisions = lock.decisions if lock and not upgrade else {}
    beside = {key: (value, WRITTEN) for key, value in lock.written.items()} if lock and not upgrade else {}
    rows, unused = lock.tuned() if lock else (), find_stale(lock, spec, problem) if lock else {}
    used = [i for i in range(len(rows)) if i not in unused]
    held = lock.portfolio if lock and not upgrade else None
    outcome = family.resolve(spec, doc, problem, {**beside, **decisions}, [rows[i] for i in used], held)
    unused |= {used[i]: reason for i, reason in outcome.unfit.items()}
    notes = list(outcome.notes)
    digest = meaning(doc)
    made = {d.key: (plain(d.value), d.reason) for d in outcome.resolved.decisions if d.origin != "spec"}
    if lock and not upgrade:
        known = {note.partition(":")[0] for note in notes}
        notes += [
            f"{key}: not in the lock; decided: {json.dumps(value)}"
            for key, (value, _) in made.items()
            if key not in decisions and key not in known
        ]
        if outcome.portfolio and not held:
            notes.append(f"portfolio: not in the lock; decided: {len(outcome.portfolio.tilings)} tilings")
    kept = lock.mark(unused) if lock else Lock(digest, made)
    said = _describe_unused(kept, drop_winners)
    if lock and (back := [w.tiling for w, now in zip(lock.winners, kept.winners) if w.unused and not now.unused]):
        notes.append(
            f"winners: {', '.join(dict.fromkeys(back))}: the lock has them as unused, and calls run them again"
        )
    if locked:
        _check_locked(doc, lock, digest, notes if lock and kept.winners == lock.winners else [*notes, *said])
    kept = kept.without_unused() if drop_winners else kept
    if not lock or upgrade or lock.spec != digest:  # a lock of this very spec stays as it is, if it is an older one
        written = {d.key: plain(d.value) for d in outcome.resolved.decisions if d.origin == "spec"}
        kept = replace(kept, written={key: value for key, value in written.items() if key != "device"})
    kept = replace(kept, spec=digest, decisions=made, portfolio=outcome.portfolio)
    return Resolution(doc, spec, outcome.resolved, kept, (*notes, *said), lock)


def find_stale(lock: Lock, spec: KernelSpec, problem: Any) -> dict[int, str]:
    """Winners that were measured as something else than what the spec and this cutegen make of them, by index, and
    why. problem: what the spec computes."""
    plain_problem = load_family(spec.kernel).describe_problem(problem)
    found = {}
    for index, winner in enumerate(lock.winners):
        digest = bind(spec.kernel, spec.arch, plain_problem, lock.tilings.get(winner.tiling))
        if reason := staleness(winner, digest, lock.dsl):
            found[index] = reason
    return found


def bind_winner(resolution: Resolution, knobs: Mapping[str, object] | None) -> str:
    """What a winner with these knobs, None for the default, is bound to."""
    spec, problem = _parse_and_bind(resolution.document)
    return bind(spec.kernel, spec.arch, load_family(spec.kernel).describe_problem(problem), knobs)


def _describe_unused(lock: Lock, dropped: bool) -> list[str]:
    """A note for each reason, with the tilings of the winners that it is about."""
    about: dict[str, list[str]] = {}
    for winner in lock.winners:
        if winner.unused:
            about.setdefault(winner.unused, []).append(winner.tiling)
    what = "dropped" if dropped else "in the lock, and no call runs {}"
    notes = []
    for reason, tilings in islice(about.items(), REASONS_SHOWN):
        names = list(dict.fromkeys(tilings))
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        many = len(tilings) > 1
        subject = f"{len(tilings)} winners ({', '.join(names[:NAMES_SHOWN])}{more}) are" if many else f"{names[0]} is"
        notes.append(f"winners: {subject} {what.format('them' if many else 'it')}: {reason}")
    if left := [*about.values()][REASONS_SHOWN:]:
        notes.append(f"winners: {sum(map(len, left))} more are {what.format('them')}, for {len(left)} other reasons")
    return notes


def resolve_tuned(resolution: Resolution, rows: Sequence[TunedRow]) -> Outcome:
    """The same kernel with other tuned rows than those of its lock."""
    spec, problem = _parse_and_bind(resolution.document)
    family: Family = load_family(spec.kernel)
    lock = resolution.lock
    return family.resolve(spec, resolution.document, problem, lock.decisions, rows, lock.portfolio)


def find_tuning_space(resolution: Resolution) -> TuningSpace | None:
    """What there is to tune in a kernel, if there is anything."""
    family: Family = load_family(resolution.spec.kernel)
    return family.tuning_space(resolution.spec, resolution.resolved)


def tuning_space(resolution: Resolution) -> TuningSpace:
    """What there is to tune in a kernel. CutegenError: nothing."""
    if (space := find_tuning_space(resolution)) is None:
        said = f"kernels of family `{resolution.spec.kernel}` have nothing to tune"
        raise CutegenError(said, "write its knobs into the spec, and compare with `cutegen bench`", exit_code=2)
    return space


def _parse_and_bind(doc: SpecDocument) -> tuple[KernelSpec, Any]:
    """The typed spec and what it computes; findings about keys and about expressions come together."""
    try:
        spec = parse_spec(doc)
    except SchemaError as error:
        if error.partial is not None:
            try:
                load_family(error.partial.kernel).bind(error.partial, doc)
            except SpecError as more:
                raise SpecError(error.diagnostics + more.diagnostics, error.more + more.more) from None
        raise
    return spec, load_family(spec.kernel).bind(spec, doc)


def save_lock(resolution: Resolution, path: Path) -> bool:
    """Write the lock of the spec at `path`; False when it is up to date. CutegenError: it is no longer what was read,
    as when a tune has ended meanwhile."""
    lock, text = lock_path(path, resolution.document.arch), resolution.lock.to_text()
    if not holds(lock, text) and _look(lock)[0] not in (resolution.read, resolution.lock):
        raise CutegenError(f"{lock} has changed since it was read: it is left as it is", "run the same command again")
    return write_text(lock, text)


def _check_locked(doc: SpecDocument, lock: Lock | None, digest: str, notes: list[str]) -> None:
    remedy = f"run `cutegen lock {doc.path}` and commit the lock"
    if lock is None:
        raise CutegenError(f"{doc.path} has no lock", remedy)
    if notes:
        raise CutegenError(f"the lock of {doc.path} does not hold:", remedy, details=notes)
    if lock.spec != digest:
        raise CutegenError(f"the lock of {doc.path} is stale: the spec has changed since it was written", remedy)
