"""A tune from its problems to the lock: for each problem candidates, kernels, the search, and a verdict."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cutegen import __version__
from cutegen.build import build_kernels
from cutegen.build.pool import default_workers
from cutegen.diagnostics import CutegenError
from cutegen.files import write_text
from cutegen.render import write_package
from cutegen.resolve import Lock, Resolution, lock_path, resolve_file, resolve_tuned, tuning_space
from cutegen.resolve.winners import DEFAULT, Winner
from cutegen.run.shapes import Shape
from cutegen.runtime.sources import distribution_versions
from cutegen.tune.pool import MAX_CANDIDATES, Pool, TuningPackage, compose, gather
from cutegen.tune.report import ProblemReport, TuneReport
from cutegen.tune.search import Clock, ProblemError, Search, Trial
from cutegen.tune.stages import STAGES, planned_samples
from cutegen.tune.station import Station
from cutegen.tune.store import NOWHERE, Fault, Place, TimingStore
from cutegen.tune.verdicts import Verdict, record

# With a budget: seconds that a compile takes one process, and candidates that are compiled in any case.
COMPILE_SECONDS, FEW = 1.5, 8

OnProgress = Callable[[str, int, int], None]


def silent(text: str, done: int, total: int) -> None:
    """Progress nobody wants to see."""


class Measuring(Protocol):
    """Where kernels are timed."""

    def identify(self, arch: str) -> tuple[str, str]:
        """(device, driver). CutegenError (exit 2): kernels for the arch do not run here."""
        ...

    def station(self, package: Path) -> Station:
        """For the kernels of the generated package in a folder."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """budget_s: for everything; inf for no end. candidates: of one problem. jobs: compile processes, None for one a
    CPU. confirm: winners of the lock are measured again, and nothing else. fresh: whatever the store knows. unordered:
    also candidates whose bits may differ from run to run."""

    budget_s: float = float("inf")
    candidates: int = MAX_CANDIDATES
    jobs: int | None = None
    confirm: bool = False
    fresh: bool = False
    unordered: bool = False
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
        _check_writable(lock_path(spec))
        plain = resolve_tuned(self.resolution, ()).resolved
        self.space, self.beside = tuning_space(replace(self.resolution, resolved=plain)), plain.digest[:12]
        self.device, driver = measuring.identify(plain.arch)
        self.report = TuneReport(spec, self.device, driver, describe_toolchain(driver))
        self.report.notes += [*self.resolution.notes, *filter(None, [store.unusable])]

    @property
    def winning_problems(self) -> list[Shape]:
        """Of winners for this device."""
        won = (w for w in self.resolution.lock.winners if w.device == self.device and w.tiling != DEFAULT)
        return [dict(w.problem) for w in won]

    def find_stale(self, lock: Lock) -> list[Winner]:
        """Winners for this device that were measured with other tools, or beside another default."""
        now = (self.beside, self.report.toolchain)
        return [w for w in lock.winners if w.device == self.device and (w.beside, w.toolchain) != now]

    def run(self, problems: Sequence[Shape]) -> TuneReport:
        """Tunes the problems one by one, and writes the lock. CutegenError: no more can be measured; what was proved is
        in the lock. KeyboardInterrupt: nothing is written; what was measured is in the store."""
        deadline = self.begun + self.options.budget_s
        enough = 0.0  # seconds that a problem seems to need for a verdict
        for number, problem in enumerate(problems):
            now = self.options.clock()
            if now + enough >= deadline:
                self.report.not_reached = [dict(p) for p in problems[number:]]
                break
            until = now + max(enough, (deadline - now) / (len(problems) - number))
            where = f"{_text(problem)}" + (f" ({number + 1} of {len(problems)})" if len(problems) > 1 else "")
            try:
                report = self._tune(dict(problem), until, where)
            except ProblemError as error:
                self.report.faults.append(error)
                continue
            except CutegenError:
                self._write()  # what is proved is proved
                raise
            report.seconds = self.options.clock() - now
            if report.best and not report.best.stored:
                enough = min(enough or report.seconds, report.seconds)
            elif report.stopped:
                enough = max(enough, 2 * report.seconds)
            best = next((p for p, t in zip(report.pool.tried, report.trials) if t is report.best), None)
            report.differs = self.differences(problem, best.knobs) if best else {}
            self.report.problems.append(report)
        self._write()
        self.report.stale = self.find_stale(self.report.lock or self.resolution.lock)
        self.report.seconds = self.options.clock() - self.begun
        return self.report

    def pool(self, problem: Shape, limit: int) -> Pool:
        """The candidates of a problem; winners of the lock are among them whatever the limit is."""
        lock = self.resolution.lock
        if self.options.confirm:
            won = next(w for w in lock.winners if w.device == self.device and w.problem == problem)
            rows = [row for row in lock.tuned() if row.name == won.tiling][:1]
        else:
            rows = list({row.name: row for row in lock.tuned()}.values())
        default = self.space.find_default(problem)
        outcome = resolve_tuned(self.resolution, rows)
        names = set(outcome.instances.values())
        known = [t.candidate for t in outcome.resolved.tilings if t.name in names]
        limit = 0 if self.options.confirm else limit
        return gather(self.space, problem, known, default, limit, self.options.unordered)

    def differences(self, problem: Shape, knobs: Mapping[str, object]) -> Mapping[str, object]:
        """The knobs that are not those of the problem's default."""
        now = self.space.describe(self.space.find_default(problem))
        return {key: value for key, value in knobs.items() if value != now.get(key)}

    # -- one problem --

    def _tune(self, problem: Shape, deadline: float, where: str) -> ProblemReport:
        self.on_progress(f"{where}: candidates", 0, 0)
        pool = self.pool(problem, self._affordable(deadline - self.options.clock()))
        place = Place(_text(problem), self.device, self.report.driver)
        package = compose(self.resolution, pool.tried, self.space.find_default(problem))
        report = ProblemReport(problem, pool, self._trials(package))
        if (
            report.trials
            and not self.options.confirm
            and not self.options.fresh
            and self._replay(report, place, package)
        ):
            return report
        package = self._without_faults(report, package)
        if not any(t.fault is None for t in report.trials):
            return report
        with tempfile.TemporaryDirectory(prefix="cutegen-tune-", ignore_cleanup_errors=True) as scratch:
            self._build(report, package, where)
            write_package(package.rendered, Path(scratch))
            station = self.measuring.station(Path(scratch) / package.resolved.name)
            try:
                self._search(report, place, package, station, deadline, where)
            finally:
                station.end()
        return report

    def _affordable(self, seconds: float) -> int:
        """Candidates whose compiling takes half of the time; a few in any case."""
        if seconds == float("inf"):
            return self.options.candidates
        workers = self.options.jobs or default_workers()
        return min(self.options.candidates, max(FEW, int(seconds / 2 * workers / COMPILE_SECONDS)))

    def _trials(self, package: TuningPackage) -> list[Trial]:
        """A trial for each candidate, with faults of compiling that are known."""
        trials = [Trial(name, package.keys[name]) for name in package.names]
        for trial in trials if not self.options.fresh else ():
            trial.fault = self.store.find_fault(trial.kernel, NOWHERE)
        return trials

    def _without_faults(self, report: ProblemReport, package: TuningPackage) -> TuningPackage:
        """The package of the candidates that are not known to fail, and their trials named as in it."""
        left = [(p, t) for p, t in zip(report.pool.tried, report.trials) if t.fault is None]
        if len(left) == len(report.trials):
            return package
        smaller = compose(self.resolution, [p for p, _ in left], self.space.find_default(report.problem))
        for (_, trial), name in zip(left, smaller.names):
            trial.name = name
        return smaller

    def _replay(self, report: ProblemReport, place: Place, package: TuningPackage) -> bool:
        """Whether the store alone gives the verdict; then the report has it."""
        search = Search(_Nowhere(), self.store, report.problem, place, self._default_trial(package))  # type: ignore[arg-type]
        trials = self._trials(package)
        try:
            report.best = search.run(trials)
        except _MeasuringNeeded:
            return False
        report.trials = trials
        return True

    def _build(self, report: ProblemReport, package: TuningPackage, where: str) -> None:
        """Compiles every instance of the package; what breaks its contract has failed."""
        by_name = {t.name: t for t in report.trials if t.fault is None}
        built = build_kernels(
            [package.resolved],
            workers=self.options.jobs,
            on_progress=lambda done, total: self.on_progress(f"{where}: compiling", done, total),
        )
        for kernel in built:
            if kernel.ok:
                continue
            broken = [f"{c.id}: planned {c.planned}, found {c.found}" for c in kernel.checks if c.ok is False]
            reason = kernel.outcome.error or "; ".join(broken)
            if kernel.tiling == package.default:
                raise CutegenError(f"the default kernel does not build: {reason}", f"run `cutegen build {self.spec}`")
            trial = by_name.get(kernel.tiling)
            if trial is None:  # another default, which this problem does not run
                continue
            trial.fault, trial.stored = Fault("failed", reason.splitlines()[0]), False
            self.store.keep_fault(trial.kernel, NOWHERE, trial.fault)

    def _search(
        self, report: ProblemReport, place: Place, package: TuningPackage, station: Station, deadline: float, where: str
    ) -> None:
        count = sum(t.fault is None for t in report.trials)
        total, done = planned_samples(count), 0

        def advance(samples: int) -> None:
            nonlocal done
            done = min(done + samples, total)
            self.on_progress(f"{where}: measuring", done, total)

        advance(0)
        confirm = self.options.confirm
        search = Search(
            station, self.store, report.problem, place, self._default_trial(package), deadline,
            confirm or self.options.fresh, self.options.clock, advance,
        )  # fmt: skip
        report.best = search.run(report.trials, () if confirm else STAGES)
        report.stopped, report.crowded, report.notes = search.stopped, search.crowded, tuple(search.notes)

    @staticmethod
    def _default_trial(package: TuningPackage) -> Trial:
        return Trial(package.default, package.keys[package.default])

    # -- the lock --

    def _write(self) -> None:
        """The verdicts into the lock, when neither it nor the spec has changed since the tune began."""
        verdicts = [v for v in map(_verdict, self.report.problems) if v]
        lock = self.resolution.lock
        if verdicts:
            lock = record(self.resolution, verdicts, self.space.along, self.device, self.beside, self.report.toolchain)
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


class _MeasuringNeeded(Exception):
    """The store does not know all that a search asks for."""


class _Nowhere:
    """In place of a station, where nothing is to be measured."""

    alive = False

    def start(self) -> Any:
        raise _MeasuringNeeded


def describe_toolchain(driver: str) -> str:
    """Versions that times depend on, in a line: dsl 4.8.1 cu13, driver 580.65.06, cutegen 0.1."""
    found = distribution_versions()
    flavours = sorted(name.rpartition("_")[2] for name in found if name.startswith("nvidia_cutlass_dsl_libs_cu"))
    dsl = " ".join(["dsl", found.get("nvidia_cutlass_dsl", "none"), *flavours])
    return f"{dsl}, driver {driver}, cutegen {__version__}"


def _verdict(report: ProblemReport) -> Verdict | None:
    """None: nothing can be said, because of too little time or because somebody else used the device."""
    if report.crowded or report.nearest is None or (report.stopped and not report.best):
        return None
    knobs = None
    if report.best:
        knobs = next(p.knobs for p, t in zip(report.pool.tried, report.trials) if t is report.best)
    return Verdict(report.problem, knobs, report.nearest)


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


def _text(problem: Shape) -> str:
    return " ".join(f"{d}={n}" for d, n in problem.items())
