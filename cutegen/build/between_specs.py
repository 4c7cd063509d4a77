"""How two resolved specs differ: keys, decisions, tilings with their compiled code, and winners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cutegen.build.cubin import read_cubin
from cutegen.build.kernels import KernelReport, build_kernels
from cutegen.families.registry import load_family
from cutegen.resolve import Resolution
from cutegen.resolve.winners import Winner
from cutegen.runtime.by_arch import name_for_arch
from cutegen.runtime.cache import KernelCache, default_root
from cutegen.runtime.compile import CUBIN, find_compiled

# Facts of a kernel, by the names of their changes.
BUILD, CONTRACT, HOLDS = "build", "contract", "holds"
SPILLS = ("spill stores", "spill loads")  # bytes, which not every version of the DSL tells
GROWING = ("registers", "stack bytes", *SPILLS)  # of a thread: worse where they grow
IDENTICAL, CHANGED, ADDED, REMOVED, UNKNOWN = "identical", "changed", "added", "removed", "not compared"


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A value before and after; None where there is none."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class TilingChange:
    """One tiling. code: whether its SASS is identical, changed, added, removed, or not compared. changes: its numbers
    and the facts of its code, as far as they differ."""

    tiling: str
    code: str
    changes: tuple[ValueChange, ...]

    @property
    def same(self) -> bool:
        return self.code in (IDENTICAL, UNKNOWN) and not self.changes

    @property
    def worse(self) -> tuple[str, ...]:
        """What got worse: the build, its contract, or the registers and local memory that a thread needs."""
        found = []
        for change in self.changes:
            grows = change.name in GROWING and (change.new or 0) > (change.old or 0)
            breaks = change.name == CONTRACT and change.new not in (HOLDS, None)
            if grows or breaks or (change.name == BUILD and change.new is not None):
                found.append(f"{change.name} {'-' if change.old is None else change.old} -> {change.new}")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class WinnerChange:
    """One winner. state: kept, stale, dropped or added. calls: what it answers for. why: it is stale."""

    device: str
    calls: str
    tiling: str
    us: float
    gain: float | None
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class TimeChange:
    """Microseconds of one problem. how: "predicted" by the cost model for the fastest tiling, or "measured on" a
    device, as the lock's winner for it says. old, new: (us, tiling), None where there is none."""

    shape: str
    how: str
    old: tuple[float, str] | None
    new: tuple[float, str] | None


@dataclass(frozen=True, slots=True)
class Difference:
    name: str
    keys: tuple[ValueChange, ...]
    decisions: tuple[ValueChange, ...]
    tilings: tuple[TilingChange, ...]
    winners: tuple[WinnerChange, ...]
    times: tuple[TimeChange, ...] = ()

    @property
    def same(self) -> bool:
        changed = any(w.state != "kept" for w in self.winners) or not all(t.same for t in self.tilings)
        return not (self.keys or self.decisions or changed)


def compare_resolutions(
    old: Resolution,
    new: Resolution,
    *,
    build: bool = True,
    shapes: Sequence[Mapping[str, int]] = (),
    workers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    on_current: Callable[[Sequence[str]], None] = lambda names: None,
) -> Difference:
    """The difference of two specs, or of two states of one. build: compile what the cache lacks, and compare code.
    shapes: problems to compare times of.
    CutegenError: there is no compiler or no disassembler."""
    sides: list[Sequence[KernelReport]] = []
    for resolution in (old, new):
        reports: Sequence[KernelReport] = ()
        if build:
            reports = build_kernels(
                [resolution.resolved], workers=workers, on_progress=on_progress, on_current=on_current
            )
        sides.append(reports)
    tilings = _compare_tilings(old.resolved, _by_tiling(sides[0]), new.resolved, _by_tiling(sides[1]), build)
    return Difference(
        _title(new),
        _changes(_flat(old.document.data), _flat(new.document.data)),
        _changes(*({d.key: d.value for d in r.resolved.decisions if d.origin != "spec"} for r in (old, new))),
        tuple(tilings),
        tuple(_compare_winners(old.lock.winners, new.lock.winners)),
        tuple(time for shape in shapes for time in _compare_times(old, new, shape)),
    )


def _compare_times(old: Resolution, new: Resolution, shape: Mapping[str, int]) -> Iterator[TimeChange]:
    text = " ".join(f"{dim}={extent}" for dim, extent in shape.items())
    predicted = [_predict(side, shape) for side in (old, new)]
    if any(predicted):
        yield TimeChange(text, "predicted", *predicted)
    sides = [{w.device: (w.us, w.tiling) for w in side.lock.winners if _answers(w, shape)} for side in (old, new)]
    for device in dict.fromkeys((*sides[0], *sides[1])):
        yield TimeChange(text, f"measured on {device}", sides[0].get(device), sides[1].get(device))


def _predict(resolution: Resolution, shape: Mapping[str, int]) -> tuple[float, str] | None:
    """The fastest tiling by the cost model; None: the family has none. CutegenError: the spec has no such problem."""
    resolved = resolution.resolved
    estimate = load_family(resolution.spec.kernel).estimate
    found = [
        (seconds * 1e6, t.name) for t in resolved.tilings if (seconds := estimate(resolved, t.name, shape)) is not None
    ]
    return min(found, default=None)


def _answers(winner: Winner, shape: Mapping[str, int]) -> bool:
    """Whether calls of this shape run it."""
    spans = {dim: winner.span(dim) for dim in winner.calls}
    return not winner.unused and all(low <= shape.get(dim, -1) <= high for dim, (low, high) in spans.items())


def compare_builds(resolution: Resolution, old: Sequence[KernelReport], new: Sequence[KernelReport]) -> Difference:
    """The difference of one spec's kernels that were built by two compilers, of those tilings that were."""
    resolved, before, after = resolution.resolved, _by_tiling(old), _by_tiling(new)
    tilings = _compare_tilings(resolved, before, resolved, after, True)
    compared = tuple(t for t in tilings if t.tiling in before.keys() | after.keys())
    return Difference(_title(resolution), (), (), compared, ())


def _title(resolution: Resolution) -> str:
    return name_for_arch(resolution.resolved.name, resolution.document.arch)


def _by_tiling(reports: Sequence[KernelReport]) -> dict[str, KernelReport]:
    return {report.tiling: report for report in reports}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[ValueChange, ...]:
    names = [*old, *(name for name in new if name not in old)]
    return tuple(ValueChange(n, old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n))


def _flat(data: Any, path: str = "") -> dict[str, Any]:
    """Scalars and lists of a spec by dotted key."""
    if not isinstance(data, Mapping) or not data:
        return {path: data}
    return {k: v for key, value in data.items() for k, v in _flat(value, f"{path}.{key}" if path else str(key)).items()}


def _compare_tilings(
    old: Any, old_reports: Mapping[str, KernelReport], new: Any, new_reports: Mapping[str, KernelReport], built: bool
) -> list[TilingChange]:
    before, after = ({t.name: t for t in resolved.built} for resolved in (old, new))
    found = []
    for name in dict.fromkeys((*before, *after)):
        if name not in after or name not in before:
            side, reports = (before, old_reports) if name in before else (after, new_reports)
            own = _describe(side[name], reports.get(name))
            changes = _changes(own, {}) if name in before else _changes({}, own)
            found.append(TilingChange(name, REMOVED if name in before else ADDED, changes))
            continue
        was, now = old_reports.get(name), new_reports.get(name)
        changes = tuple(
            c
            for c in _changes(_describe(before[name], was), _describe(after[name], now))
            if c.name not in SPILLS or None not in (c.old, c.new)
        )
        found.append(TilingChange(name, _compare_code(was, now) if built else UNKNOWN, changes))
    return found


def _describe(tiling: Any, report: KernelReport | None) -> dict[str, Any]:
    """Numbers of a tiling, and what came out of the compiler."""
    numbers = {f.name: getattr(tiling.numbers, f.name) for f in fields(tiling.numbers)} if tiling.numbers else {}
    if report is None:
        return numbers
    if (facts := report.outcome.facts) is None:
        return numbers | {BUILD: report.outcome.error}
    broken = [check.id for check in report.checks if check.ok is False]
    return numbers | {
        "registers": facts.registers,
        "set registers": facts.set_registers,
        "stack bytes": facts.stack_bytes,
        "spill stores": facts.spill_store_bytes,
        "spill loads": facts.spill_load_bytes,
        "instructions": facts.instructions,
        CONTRACT: f"broken: {', '.join(broken)}" if broken else HOLDS,
    }


def _compare_code(old: KernelReport | None, new: KernelReport | None) -> str:
    if old is None or new is None or old.outcome.facts is None or new.outcome.facts is None:
        return UNKNOWN
    if old.key == new.key:
        return IDENTICAL
    cache = KernelCache(default_root())
    entries = [find_compiled(cache, report.key) for report in (old, new)]
    codes = [[k.code for k in read_cubin(entry.files[CUBIN])] for entry in entries if entry]
    if len(codes) < 2:  # nothing is kept without a cache
        return UNKNOWN
    return IDENTICAL if codes[0] == codes[1] else CHANGED


def _compare_winners(old: Sequence[Winner], new: Sequence[Winner]) -> list[WinnerChange]:
    def name(winner: Winner) -> tuple[str, str, str]:
        calls = ", ".join(
            f"{dim}={low}" if low == high else f"{dim}={low}..{high}"
            for dim in winner.calls
            for low, high in [winner.span(dim)]
        )
        return winner.device, calls, winner.tiling

    before, after = {name(w): w for w in old}, {name(w): w for w in new}
    found = []
    for key in dict.fromkeys((*before, *after)):
        winner = after.get(key, before.get(key))
        assert winner
        state = "dropped" if key not in after else "stale" if winner.unused else "kept" if key in before else "added"
        found.append(WinnerChange(*key, winner.us, winner.gain[1] if winner.gain else None, state, winner.unused))
    return found
