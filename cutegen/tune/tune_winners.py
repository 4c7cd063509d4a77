"""From what was measured to the winners of a lock: which tiling answers for which calls."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from cutegen.diagnostics import CutegenError
from cutegen.families.tuned import TunedRow
from cutegen.families.tuning import TuningSpace
from cutegen.resolve import Lock, Resolution, bind_winner, lock_path, resolve_tuned
from cutegen.resolve.binding import dsl_series
from cutegen.resolve.winners import DEFAULT, Bounds, Winner
from cutegen.roots import read_file
from cutegen.run.intervals import Interval, speed_ratio
from cutegen.run.shapes import Shape, shape_text
from cutegen.spec.text_rules import MAX_BYTES
from cutegen.tune.report import TuneReport
from cutegen.tune.search import Trial

# A problem answers for calls with fewer rows, down to this share of its own, where nothing nearer was measured; and up
# to this many rows all are alike, since a tile is at least that high.
REACH, ALIKE = 4, 16


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to run on a problem. knobs: of the candidate that won; None: the default stands. trial: the measurements,
    of the winner or of what came nearest."""

    problem: Shape
    knobs: Mapping[str, object] | None
    trial: Trial


def record(
    resolution: Resolution,
    verdicts: Sequence[Verdict],
    space: TuningSpace,
    device: str,
    beside: str,
    toolchain: str,
) -> Lock:
    """The lock with these verdicts in place of earlier ones for the same problems on this device. What no call runs
    stays as it is.

    space: says which dims decide, and which one ranges run over. beside, toolchain: as Winner has them.
    """
    lock = resolution.lock
    tilings: dict[str, Mapping[str, object]] = dict(lock.tilings)
    names = {_frozen(knobs): name for name, knobs in tilings.items()}
    fresh: list[Winner] = []
    for number, verdict in enumerate(verdicts):
        name = DEFAULT
        if verdict.knobs is not None:
            name = names.setdefault(_frozen(verdict.knobs), f"new {number}")
            tilings.setdefault(name, verdict.knobs)
        measured = bind_winner(resolution, verdict.knobs)
        fresh.append(_winner(verdict, name, device, beside, toolchain, measured))
    problems = [w.problem for w in fresh]
    kept = [w for w in lock.winners if w.device != device or w.problem not in problems]
    mine = reach([w for w in (*kept, *fresh) if w.device == device and not w.unused], space.dims, space.along)
    others = [w for w in kept if w.device != device or w.unused]
    tuned = replace(lock.with_winners(tilings, [*others, *mine]), dsl=dsl_series(toolchain))
    return _renamed(resolution, tuned)


def verdicts(report: TuneReport) -> Iterator[Verdict]:
    """Of its problems; of none where too little time was left, or somebody else used the device."""
    for found in report.problems:
        if found.crowded or found.nearest is None or (found.stopped and not found.best):
            continue
        knobs = None
        if found.best:
            knobs = next(p.knobs for p, t in zip(found.pool.tried, found.trials) if t is found.best)
        yield Verdict(found.problem, knobs, found.nearest)


def left_out(report: TuneReport, lock: Lock) -> list[str]:
    """Notes about verdicts for whose calls another problem's answer stands."""
    standing = [w.problem for w in lock.winners if w.device == report.device]
    why = "left out of the lock: the same calls were measured with more rows to gather from"
    return [f"{shape_text(v.problem)}: {why}" for v in verdicts(report) if v.problem not in standing]


def legal(resolution: Resolution, tilings: Iterable[Mapping[str, object]]) -> list[Any]:
    """The candidates of tilings, in the words of a lock, that no rule refuses."""
    rows = [TunedRow("", {}, f"tiling {i}", knobs) for i, knobs in enumerate(tilings)]
    outcome = resolve_tuned(resolution, rows)
    candidates = {t.name: t.candidate for t in outcome.resolved.tilings}
    return [candidates[outcome.instances[row.name]] for row in rows if row.name in outcome.instances]


def withdraw_faulty(resolution: Resolution, lock: Lock, report: TuneReport) -> Lock:
    """The lock without winners that fail by now, which become faults of the report: such a one may not go on answering
    for its problem, whatever else could be measured there."""
    for found in (p for p in report.problems if not p.crowded):
        faulty = {p.candidate for p, t in zip(found.pool.tried, found.trials) if t.fault and t.fault.lasting}
        if (left := _withdraw(resolution, lock, found.problem, faulty, report.device)) is not lock:
            text = f"{shape_text(found.problem)}: the winner of the lock fails, and is taken out"
            report.faults.append(CutegenError(text, "run `cutegen check` on the spec"))
        lock = left
    return lock


def withdraw_defaults(resolution: Resolution, lock: Lock, report: TuneReport, space: TuningSpace) -> Lock:
    """The lock without winners that the default has become, with notes in the report: they say nothing more, and would
    be found stale for ever."""
    for found in report.problems:
        default = space.find_default(found.problem)
        if (left := _withdraw(resolution, lock, found.problem, {default}, report.device)) is not lock:
            said = f"{shape_text(found.problem)}: the default is by now what won there: the winner is taken out"
            report.notes.append(said)
        lock = left
    return lock


def _withdraw(resolution: Resolution, lock: Lock, problem: Shape, candidates: Collection[Any], device: str) -> Lock:
    """The lock without this problem's winner on this device, if that is one of these candidates. By candidate: an older
    lock may lack knobs that have a value by now."""
    gone = {
        name for name, knobs in lock.tilings.items() if candidates and {*legal(resolution, [knobs])} & {*candidates}
    }
    left = [w for w in lock.winners if (w.device, w.problem) != (device, problem) or w.tiling not in gone]
    return lock.with_winners(lock.tilings, left) if len(left) < len(lock.winners) else lock


def reach(winners: Iterable[Winner], dims: Collection[str], along: str) -> list[Winner]:
    """Winners of one device with their ranges: from beyond the next smaller measured problem that agrees in all other
    `dims`, but no further than REACH and ALIKE say, up to the problem itself. Of several for the same calls the
    one that had more to gather from counts, as less of that was in a cache; of equals the last."""
    groups: dict[tuple[tuple[str, int], ...], dict[int, Winner]] = {}
    for winner in sorted(winners, key=lambda w: [extent for dim, extent in w.problem.items() if dim not in dims]):
        point = tuple((dim, extent) for dim, extent in winner.problem.items() if dim in dims and dim != along)
        groups.setdefault(point, {})[winner.problem[along]] = winner
    found: list[Winner] = []
    for _, group in sorted(groups.items()):
        last = 0
        for extent, winner in sorted(group.items()):
            low = max(last + 1, 1 if extent <= ALIKE else extent // REACH + 1)
            found.append(replace(winner, calls={**winner.problem, along: (low, extent)}))
            last = extent
    return found


def is_near(one: Mapping[str, int], other: Mapping[str, int], along: str) -> bool:
    """Whether two problems, which differ in the dim `along` alone, are within a factor of REACH, all up to ALIKE being
    alike."""
    low, high = sorted(max(problem[along], ALIKE) for problem in (one, other))
    return high <= REACH * low


def _winner(verdict: Verdict, name: str, device: str, beside: str, toolchain: str, measured: str) -> Winner:
    timing = verdict.trial.timing
    assert timing
    own = timing.own if name != DEFAULT else timing.default
    return Winner(
        device=device,
        calls=dict(verdict.problem),
        tiling=name,
        us=round(median(own) * 1e6, 3),
        gain=_bounds(speed_ratio(timing.default, own)) if name != DEFAULT else None,
        baseline=timing.baseline_name if timing.baseline else "",
        speed=_bounds(speed_ratio(timing.baseline, own)) if timing.baseline else None,
        beside=beside,
        toolchain=toolchain,
        measured=measured,
    )


def _bounds(interval: Interval) -> Bounds:
    return round(interval.low, 4), round(interval.median, 4), round(interval.high, 4)


def _renamed(resolution: Resolution, lock: Lock) -> Lock:
    """With tilings called what the generated plan calls them. One that a rule refuses keeps its name, unless another
    one has it now."""
    rows = [TunedRow("", {}, name, knobs) for name, knobs in lock.tilings.items()]
    names = dict(resolve_tuned(resolution, rows).instances)
    taken = {*names.values(), DEFAULT}
    for old in lock.tilings.keys() - names.keys():
        names[old] = next(name for i in count() if (name := f"{old}_unused_{i}" if i else old) not in taken)
        taken.add(names[old])
    winners = [replace(w, tiling=names.get(w.tiling, w.tiling)) for w in lock.winners]
    return replace(lock, tilings={names[n]: knobs for n, knobs in lock.tilings.items()}, winners=tuple(winners))


def _frozen(knobs: Mapping[str, object]) -> str:
    return repr(sorted(knobs.items()))


def fingerprint(spec: Path) -> tuple[str, ...]:
    """Hashes of the spec and its lock; "" for what cannot be read, of which whoever uses it tells why."""
    return tuple(map(_hash, (spec, lock_path(spec))))


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(read_file(path, MAX_BYTES)).hexdigest()
    except (OSError, CutegenError):
        return ""


def check_writable(path: Path) -> None:
    """CutegenError (exit 2): the lock could not be written in the end."""
    for place in (path, path.parent) if path.exists() else (path.parent,):
        if not os.access(place, os.W_OK):
            raise CutegenError(f"{place} cannot be written", "winners go into the lock: change its permissions", 2)
