"""A tune from its problems to the lock: for each problem candidates, kernels, the search, and a verdict."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cutegen.build import build_kernels
from cutegen.build.pool import default_workers
from cutegen.defaults import MAX_CANDIDATES
from cutegen.diagnostics import CutegenError
from cutegen.files import write_text
from cutegen.render import write_package
from cutegen.resolve import Lock, Resolution, lock_path, resolve_file, resolve_tuned, tuning_space
from cutegen.resolve.toolchain import describe_toolchain
from cutegen.resolve.winners import DEFAULT, Winner
from cutegen.run.shapes import Shape, shape_text
from cutegen.runtime.temporary import temporary_folder
from cutegen.tune.attempt import Attempt, begin, compose_rest, recall
from cutegen.tune.between import middles
from cutegen.tune.pool import Pool, TuningPackage, gather, gather_known
from cutegen.tune.report import TuneReport
from cutegen.tune.search import Clock, ProblemError, Search
from cutegen.tune.stages import BRIEF, NEWCOMER, OTHER, STAGES, Stage, planned_samples
from cutegen.tune.station import Station
from cutegen.tune.store import NOWHERE, Fault, FaultKind, Place, TimingStore
from cutegen.tune.verdicts import is_near, left_out, legal, record, verdicts, withdraw_defaults, withdraw_faulty

# With a budget: seconds that a compile takes one process, and candidates that are compiled in any case.
COMPILE_SECONDS, FEW = 1.5, 8
# Problems whose kernels are compiled in one go, and measured in one process: starting compilers and a process for each
# would take longer than measuring. What they have in common is compiled once.
BATCH = 16

OnProgress = Callable[[str, int, int], None]


def silent(text: str, done: int, total: int) -> None:
    """Progress nobody wants to see."""


class Measuring(Protocol):
    """Where kernels are timed."""

    def identify(self, arch: str) -> tuple[str, str]:
        """(device, what software is around kernels). CutegenError (exit 2): kernels for the arch do not run here."""
        ...

    def station(self, package: Path) -> Station:
        """For the kernels of the generated package in a folder."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """budget_s: for everything; inf for no end. candidates: of one problem. jobs: compile processes, None for one a
    CPU. confirm: winners of the lock are measured again, and nothing else. between: problems are those between winners,
    see `Session.divide`. fresh: whatever the store knows. unordered: also candidates whose bits may differ from run to
    run. dry_run: nothing is measured or written."""

    budget_s: float = float("inf")
    candidates: int = MAX_CANDIDATES
    jobs: int | None = None
    confirm: bool = False
    between: bool = False
    fresh: bool = False
    unordered: bool = False
    dry_run: bool = False
    clock: Clock = time.monotonic


class Session:
    """The tune of one spec. CutegenError before anything is compiled or measured: it cannot be done."""

    def __init__(
        self, spec: Path, measuring: Measuring, store: TimingStore, options: Options, on_progress: OnProgress = silent
    ) -> None:
        self.spec, self.measuring, self.store, self.options, self.on_progress = (
            spec,
            measuring,
            store,
            options,
            on_progress,
        )
        self.begun = options.clock()
        self.before = _fingerprint(spec)
        self.resolution: Resolution = resolve_file(spec)
        self.lock = self.resolution.lock  # with what was found so far
        if not options.dry_run:
            _check_writable(lock_path(spec))
        plain = resolve_tuned(self.resolution, ()).resolved
        self.space, self.beside = tuning_space(replace(self.resolution, resolved=plain)), plain.digest[:12]
        self.device, self.software = measuring.identify(plain.arch)
        self.report = TuneReport(spec, self.device, describe_toolchain(self.software))
        self.report.notes += [*self.resolution.notes, *filter(None, [store.unusable])]
        self._enough = 0.0  # seconds that a problem seems to need for a verdict
        self._total = self._reached = 0  # problems: all, and those that were searched, or could not be

    @property
    def answers(self) -> list[Winner]:
        """Of the lock, for this device; problems on which nothing beat the default are among them, but not those of a
        day when the spec had other dims."""
        dims = {*self.space.dims}
        return [w for w in self.lock.winners if w.device == self.device and dims <= {*w.problem}]

    @property
    def winning_problems(self) -> list[Shape]:
        """Of winners for this device."""
        return [dict(w.problem) for w in self.answers if w.tiling != DEFAULT]

    def find_stale(self, lock: Lock) -> list[Winner]:
        """Winners for this device that were measured with other tools, or beside another default."""
        now = (self.beside, self.report.toolchain)
        return [w for w in lock.winners if w.device == self.device and (w.beside, w.toolchain) != now]

    def run(self, problems: Sequence[Shape]) -> TuneReport:
        """Tunes the problems one by one, and writes the lock. Kernels of several problems are compiled together.

        CutegenError: nothing can be measured. After the first problem it is a fault of the report: what was proved is
        in the lock. KeyboardInterrupt: nothing is written; what was measured is in the store.
        """
        self._tune_all(problems)
        return self._finish()

    def divide(self, asked: Sequence[Shape], step: int) -> TuneReport:
        """Tunes problems in the middle of what winners range over, again and again until no range is to be divided,
        and writes the lock; in the ranges of some problems, or of all if none is asked for. step: what the extents are
        multiples of. Errors: see `run`."""
        space, tried = self.space, list[Shape]()
        within = [w for w in self.answers if not asked or w.problem in asked]
        while True:
            found = middles(self.answers, space.dims, space.along, step, within)
            problems = [p for p in found if p not in tried]  # one that could not be searched stays in the middle
            if not problems and not tried:
                self.report.notes.append("no range of the lock is left to look into")
            if not problems or self.report.not_reached:
                return self._finish()
            tried += problems
            self._tune_all(problems)
            self.lock = self._decide()

    def _tune_all(self, problems: Sequence[Shape]) -> None:
        deadline = self.begun + self.options.budget_s
        self._total, self._reached = len(problems), 0
        while self._reached < len(problems):
            now = self.options.clock()
            if now + self._enough >= deadline:
                break
            goal = self._reached + min(self._batch_size(deadline - now), len(problems) - self._reached)
            try:
                self._tune(problems[self._reached : goal], deadline)
            except CutegenError as error:
                if not (self._reached or self.report.problems):
                    raise
                self.report.faults.append(error)  # what is proved is proved
                self.report.broken = True
            if self._reached < goal:
                break
        self.report.not_reached = [dict(p) for p in problems[self._reached :]]

    def _finish(self) -> TuneReport:
        self._write()
        self.report.stale = self.find_stale(self.report.lock or self.resolution.lock)
        self.report.seconds = self.options.clock() - self.begun
        return self.report

    def pool(self, problem: Shape, limit: int) -> Pool:
        """The candidates of a problem; winners of its neighbours that are near are among them whatever the limit is."""
        lock, default = self.lock, self.space.find_default(problem)
        if not self.options.confirm:
            along = self.space.along
            near = [w for w in self._neighbours(problem) if is_near(w.problem, problem, along)]
            # What answers now comes first: a search that ends early may not pass it by.
            near.sort(key=lambda w: not w.span(along)[0] <= problem[along] <= w.span(along)[1])
            names = dict.fromkeys(w.tiling for w in near)
            known = legal(self.resolution, [lock.tilings[name] for name in names if name in lock.tilings])
            return gather(self.space, problem, known, default, limit, self.options.unordered)
        won = next(w for w in lock.winners if w.device == self.device and w.problem == problem)
        winners = legal(self.resolution, [lock.tilings[won.tiling]])
        renewed = legal(self.resolution, [self.space.describe(self.space.renew(c, default)) for c in winners])
        return gather_known(self.space, winners, renewed, default)

    def _neighbours(self, problem: Shape) -> list[Winner]:
        """Answers to problems that differ in the one dim alone."""
        fixed = [dim for dim in self.space.dims if dim != self.space.along]
        return [w for w in self.answers if all(w.problem[d] == problem[d] for d in fixed)]

    def _handicaps(self) -> Callable[[Shape, Any], float]:
        """Of a candidate on a problem: between problems the winner of the range has none, other kernels of the lock
        less than new ones."""
        if not self.options.between:
            return lambda problem, candidate: 1.0
        built = {name: legal(self.resolution, [knobs]) for name, knobs in self.lock.tilings.items()}
        everyone = [c for candidates in built.values() for c in candidates]

        def handicap(problem: Shape, candidate: Any) -> float:
            along = problem[self.space.along]
            near = [w for w in self._neighbours(problem) if w.problem[self.space.along] >= along]
            now = min(near, key=lambda w: w.problem[self.space.along]).tiling
            return 1.0 if candidate in built.get(now, []) else OTHER if candidate in everyone else NEWCOMER

        return handicap

    def differences(self, problem: Shape, knobs: Mapping[str, object]) -> Mapping[str, object]:
        """The knobs that are not those of the problem's default."""
        now = self.space.describe(self.space.find_default(problem))
        return {key: value for key, value in knobs.items() if value != now.get(key)}

    # -- problems whose kernels are compiled together --

    def _tune(self, problems: Sequence[Shape], deadline: float) -> None:
        """Tunes some of the problems, as many as there is time for."""
        begun, first = self.options.clock(), self._reached
        share = (deadline - begun) / (self._total - first)
        self.on_progress(f"{self._where(first, len(problems))}: candidates", 0, 0)
        pools = [self.pool(dict(p), self._affordable(share)) for p in problems]
        attempts, package = self._prepare(problems, pools)
        with temporary_folder() as scratch:
            if package:
                self._build(attempts, package, self._where(first, len(problems)))
                write_package(package.rendered, scratch)
            built = (self.options.clock() - begun) / len(problems)
            folder = scratch / self.resolution.resolved.name
            station = self.measuring.station(folder) if package else None
            try:
                for number, attempt in enumerate(attempts):
                    now = self.options.clock()
                    if number and now + self._enough >= deadline:
                        return
                    # A problem whose kernels are still to be compiled takes twice the time.
                    left = 2 * (self._total - first - len(problems)) + len(problems) - number
                    until = now + max(self._enough, (deadline - now) / left)
                    self._attempt(attempt, station, until, self._where(first + number, 1), built)
                    self._reached += 1
            finally:
                if station:
                    station.end()

    def _attempt(self, attempt: Attempt, station: Station | None, until: float, where: str, built: float) -> None:
        """Measures what is to be measured, and notes the result. CutegenError: nothing can be measured any more."""
        now, report = self.options.clock(), attempt.report
        try:
            if station and attempt.is_open:
                self._search(attempt, station, until, where)
        except ProblemError as error:
            self.report.faults.append(error)
            return
        measured = self.options.clock() - now
        report.seconds = measured + built
        if report.best and not report.best.stored:
            self._enough = min(self._enough or measured, measured)
        elif report.stopped:
            self._enough = max(self._enough, 2 * measured)
        best = next((p for p, t in zip(report.pool.tried, report.trials) if t is report.best), None)
        report.differs = self.differences(report.problem, best.knobs) if best else {}
        self.report.problems.append(report)

    def _prepare(self, problems: Sequence[Shape], pools: Sequence[Pool]) -> tuple[list[Attempt], TuningPackage | None]:
        """The problems with what the store knows of them, and the package of what is to be measured, if anything is."""
        defaults = [self.space.find_default(p) for p in problems]
        places = [Place(shape_text(p), self.device, self.software) for p in problems]
        attempts = begin(self.resolution, problems, pools, defaults, places, self._handicaps())
        for attempt in attempts if not self.options.fresh else ():
            recall(attempt, self.store, () if self.options.confirm else self._stages)
        return attempts, compose_rest(self.resolution, attempts)

    def _batch_size(self, seconds: float) -> int:
        """Problems that are compiled together: not so many that a few candidates of each take over half of the time."""
        if seconds == float("inf"):
            return BATCH
        return min(BATCH, max(1, int(seconds / 2 * self._workers / (COMPILE_SECONDS * FEW))))

    def _affordable(self, seconds: float) -> int:
        """Candidates whose compiling takes half of the time; a few in any case."""
        if seconds == float("inf"):
            return self.options.candidates
        return min(self.options.candidates, max(FEW, int(seconds / 2 * self._workers / COMPILE_SECONDS)))

    @property
    def _stages(self) -> Sequence[Stage]:
        """Of a search for winners."""
        return BRIEF if self.options.between else STAGES

    @property
    def _workers(self) -> int:
        return self.options.jobs or default_workers()

    def _where(self, first: int, count: int) -> str:
        """Of which problems progress is told."""
        if self._total == 1:
            return "the problem"
        return f"{first + 1} of {self._total}" if count == 1 else f"{first + 1} to {first + count} of {self._total}"

    def _build(self, attempts: Sequence[Attempt], package: TuningPackage, where: str) -> None:
        """Compiles every instance of the package; what breaks its contract has failed."""
        built = build_kernels(
            [package.resolved],
            workers=self.options.jobs,
            on_progress=lambda done, total: self.on_progress(f"{where}: compiling", done, total),
        )
        unknown = [a for a in attempts if not a.known]
        for kernel in built:
            if kernel.ok:
                continue
            broken = [f"{c.id}: planned {c.planned}, found {c.found}" for c in kernel.checks if c.ok is False]
            reason = kernel.outcome.error or "; ".join(broken)
            if any(kernel.tiling == a.beside.name for a in unknown):
                raise CutegenError(f"the default kernel does not build: {reason}", f"run `cutegen build {self.spec}`")
            for trial in (t for a in unknown for t in a.report.trials if t.name == kernel.tiling and not t.fault):
                out = kernel.outcome
                kind: FaultKind = "killed" if out.killed else "starved" if out.starved else "failed"
                trial.fault, trial.stored = Fault(kind, reason.splitlines()[0]), False
                if trial.fault.lasting:
                    self.store.keep_fault(trial.kernel, NOWHERE, trial.fault)

    def _search(self, attempt: Attempt, station: Station, until: float, where: str) -> None:
        report = attempt.report
        confirm, count = self.options.confirm, sum(t.fault is None for t in report.trials)
        # A winner needs a proof only; of two the better one is to be found first.
        stages = self._stages if not confirm else STAGES[-1:] if count > 1 else ()
        total, done = planned_samples(count, stages), 0

        def advance(samples: int) -> None:
            nonlocal done
            done = min(done + samples, total)
            self.on_progress(f"{where}, {shape_text(report.problem)}: measuring", done, total)

        advance(0)
        search = Search(
            station, self.store, report.problem, attempt.place, attempt.beside, until,
            confirm or self.options.fresh, self.options.clock, advance,
        )  # fmt: skip
        report.best = search.run(report.trials, stages)
        report.stopped, report.crowded, report.notes = search.stopped, search.crowded, tuple(search.notes)

    # -- the lock --

    def _write(self) -> None:
        """The verdicts into the lock, when neither it nor the spec has changed since the tune began."""
        lock = self._decide()
        self.report.notes += left_out(self.report, lock)
        lock = withdraw_faulty(self.resolution, lock, self.report)
        if self.options.confirm:
            lock = withdraw_defaults(self.resolution, lock, self.report, self.space)
        self.report.lock = lock
        if lock == self.resolution.lock:
            return
        if _fingerprint(self.spec) != self.before:
            self.report.failed = (
                f"{self.spec} or its lock has changed while it was tuned: nothing is written; every measurement is "
                "kept, so the same command again takes seconds"
            )
            return
        self.report.written = write_text(lock_path(self.spec), lock.to_text())

    def _decide(self) -> Lock:
        """The lock of before with all verdicts."""
        if found := list(verdicts(self.report)):
            return record(self.resolution, found, self.space, self.device, self.beside, self.report.toolchain)
        return self.resolution.lock


def _fingerprint(spec: Path) -> tuple[str, ...]:
    """Hashes of the spec and its lock; "" for what is not there."""
    return tuple(
        hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "" for path in (spec, lock_path(spec))
    )


def _check_writable(path: Path) -> None:
    """CutegenError (exit 2): the lock could not be written in the end."""
    for place in (path, path.parent) if path.exists() else (path.parent,):
        if not os.access(place, os.W_OK):
            raise CutegenError(f"{place} cannot be written", "winners go into the lock: change its permissions", 2)
