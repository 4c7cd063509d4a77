"""A tune from its problems to the lock: for each problem candidates, kernels, the search, and a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutegen.build.kernels import KernelReport, KernelStream, build_kernels
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
from cutegen.tune.budget import BudgetedSearch, Standing
from cutegen.tune.measuring_process import Measuring, Station
from cutegen.tune.pool import Pool, TuningPackage, gather, gather_known
from cutegen.tune.problems_between import Handicaps, measurable, middles
from cutegen.tune.report import TuneReport
from cutegen.tune.search import Clock, ProblemError, Search
from cutegen.tune.stages import BRIEF, STAGES, Stage, planned_samples
from cutegen.tune.store import Place, TimingStore
from cutegen.tune.tune_problems import Attempt, begin, compose_rest, note_failure, recall
from cutegen.tune.tune_winners import (
    check_writable,
    fingerprint,
    is_near,
    left_out,
    legal,
    record,
    verdicts,
    withdraw_defaults,
    withdraw_faulty,
)

# Problems whose kernels are compiled in one go, and measured in one process: starting compilers and a process for each
# would take longer than measuring. What they have in common is compiled once.
BATCH = 16
# With a budget, in seconds: a candidate on average, so no more are rendered than can be looked at; a problem's first
# visit; what has to be left for further candidates to be rendered; the end, for the lock.
LOOK_SECONDS, VISIT_SECONDS, FURTHER_SECONDS, ENDING_SECONDS = 0.3, 1.5, 30.0, 1.5
FEW, MOST = 8, 600  # candidates: of a problem at least, and of one package

OnProgress = Callable[[str, int, int], None]


def silent(text: str, done: int, total: int) -> None:
    """Progress nobody wants to see."""


@dataclass(frozen=True, slots=True)
class Options:
    """budget_s: for everything; inf for no end. candidates: of one problem. jobs: compile processes, None for one a
    CPU. confirm: winners of the lock are measured again, and nothing else. between: problems are those between winners,
    see `Session.divide`. fresh: whatever the store knows. unordered: also candidates whose bits may differ from run to
    run. dry_run: nothing is measured or written. begun: when the budget began to count, by `clock`; None: now."""

    budget_s: float = float("inf")
    candidates: int = MAX_CANDIDATES
    jobs: int | None = None
    confirm: bool = False
    between: bool = False
    fresh: bool = False
    unordered: bool = False
    dry_run: bool = False
    clock: Clock = time.monotonic
    begun: float | None = None


class Session:
    """The tune of one spec. CutegenError before anything is compiled or measured: it cannot be done."""

    def __init__(
        self, spec: Path, measuring: Measuring, store: TimingStore, options: Options, on_progress: OnProgress = silent
    ) -> None:
        self.spec, self.measuring, self.store = spec, measuring, store
        self.options, self.on_progress = options, on_progress
        self.begun = options.clock() if options.begun is None else options.begun
        self.before = fingerprint(spec)
        self.resolution: Resolution = resolve_file(spec)
        self.lock = self.resolution.lock  # with what was found so far
        if not options.dry_run:
            check_writable(lock_path(spec))
        plain = resolve_tuned(self.resolution, ()).resolved
        self.space, self.beside = tuning_space(replace(self.resolution, resolved=plain)), plain.digest[:12]
        self.device, self.software = measuring.identify(plain.arch)
        self.space.settle(self.device)
        self.report = TuneReport(spec, self.device, describe_toolchain(self.software))
        self.report.notes += [*self.resolution.notes, *filter(None, [store.unusable])]
        self._searched: list[Shape] = []  # of the problems asked for: a result, or an error
        self._planned: list[int] = []  # slices of each problem, without a budget
        self._kernels_measured: dict[str, set[tuple[str, str]]] = {}  # by problem: kernels and stages of this tune

    @property
    def answers(self) -> list[Winner]:
        """Of the lock, for this device; problems on which nothing beat the default are among them, but not those that
        no call runs by now."""
        return [w for w in self._measured if not w.unused]

    @property
    def _measured(self) -> list[Winner]:
        """All that the lock has for this device and these dims, those that no call runs among them."""
        dims = {*self.space.dims}
        return [w for w in self.lock.winners if w.device == self.device and dims <= {*w.problem}]

    @property
    def winning_problems(self) -> list[Shape]:
        """Of winners for this device, but for those that a rule refuses: each can be measured again."""
        return measurable(self.resolution, self.lock, self._measured)

    def find_stale(self, lock: Lock) -> list[Winner]:
        """Winners for this device measured with other tools, against another default, or as something else."""
        now = (self.beside, self.report.toolchain)
        mine = [w for w in lock.winners if w.device == self.device]
        return [w for w in mine if (w.beside, w.toolchain) != now or w.unused]

    def run(self, problems: Sequence[Shape]) -> TuneReport:
        """Tunes the problems, and writes the lock.

        CutegenError: nothing can be measured. After the first result it is a fault of the report: what was proved is in
        the lock. So it is after KeyboardInterrupt, which the report notes; before that it is raised.
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
            if not problems or self.report.not_reached or self.report.interrupted:
                return self._finish()
            tried += problems
            self._tune_all(problems)
            self.lock = self._decide()

    def _tune_all(self, problems: Sequence[Shape]) -> None:
        self._searched = []
        try:
            if self.options.budget_s == float("inf"):
                self._planned = [planned_samples(self.options.candidates, self._stages)] * len(problems)
                for first in range(0, len(problems), BATCH):
                    self._tune_batch(problems, first)
            else:
                self._tune_within(problems)
        except KeyboardInterrupt:
            if not self.report.problems:
                raise
            self.report.interrupted = True
        except CutegenError as error:
            if not (self._searched or self.report.problems):
                raise
            self.report.faults.append(error)  # what is proved is proved
            self.report.broken = True
        self.report.not_reached = [dict(p) for p in problems if p not in self._searched]

    def _finish(self) -> TuneReport:
        self._write()
        self.report.stale = self.find_stale(self.report.lock or self.resolution.lock)
        self.report.seconds = self.options.clock() - self.begun
        return self.report

    def pool(self, problem: Shape, limit: int, also: Collection[Any] = ()) -> Pool:
        """The candidates of a problem; winners of its neighbours that are near, and those that are compiled `also`, are
        among them whatever the limit is."""
        lock, default = self.lock, self.space.find_default(problem)
        if not self.options.confirm:
            along = self.space.along
            near = [w for w in self._neighbours(problem) if is_near(w.problem, problem, along)]
            # What was measured on this very problem comes first, stale or not, then what answers now: a search that
            # ends early may not pass it by.
            near.sort(key=lambda w: (w.problem != problem, not w.span(along)[0] <= problem[along] <= w.span(along)[1]))
            names = dict.fromkeys(w.tiling for w in near)
            known = legal(self.resolution, [lock.tilings[name] for name in names if name in lock.tilings])
            return gather(self.space, problem, known, default, limit, self.options.unordered, also)
        won = next(w for w in self._measured if w.problem == problem and w.tiling != DEFAULT)
        winners = legal(self.resolution, [lock.tilings[won.tiling]])
        renewed = legal(self.resolution, [self.space.describe(self.space.renew(c, default)) for c in winners])
        return gather_known(self.space, winners, renewed, default)

    def _neighbours(self, problem: Shape) -> list[Winner]:
        """What was measured on problems that differ in the one dim alone."""
        fixed = [dim for dim in self.space.dims if dim != self.space.along]
        return [w for w in self._measured if all(w.problem[d] == problem[d] for d in fixed)]

    def differences(self, problem: Shape, knobs: Mapping[str, object]) -> Mapping[str, object]:
        """The knobs that are not those of the problem's default."""
        now = self.space.describe(self.space.find_default(problem))
        return {key: value for key, value in knobs.items() if value != now.get(key)}

    # -- without a budget: problems whose kernels are compiled together, one after the other --

    def _tune_batch(self, everything: Sequence[Shape], first: int) -> None:
        """Tunes BATCH problems, from the one of that number."""
        begun, problems = self.options.clock(), everything[first : first + BATCH]
        where = f"{first + 1} to {first + len(problems)} of {len(everything)}"
        self._tell(f"{where}: candidates", 0)
        pools = [self.pool(dict(p), self.options.candidates) for p in problems]
        attempts, package = self._prepare(problems, pools)
        for number, attempt in enumerate(attempts, first):
            self._planned[number] = planned_samples(*self._plan(attempt)) if attempt.is_open else 0
        with temporary_folder() as scratch:
            if package:
                self._build(attempts, package, where)
                write_package(package.rendered, scratch)
            built = (self.options.clock() - begun) / len(problems)
            station = self.measuring.station(scratch / self.resolution.resolved.name) if package else None
            try:
                for number, attempt in enumerate(attempts, first):
                    now = self.options.clock()
                    try:
                        if station and attempt.is_open:
                            self._search(attempt, station, number)
                    except ProblemError as error:
                        attempt.lost = error
                    attempt.report.seconds = built + self.options.clock() - now
                    self._note(attempt)
            finally:
                if station:
                    station.end()

    def _build(self, attempts: Sequence[Attempt], package: TuningPackage, where: str) -> None:
        """Compiles every instance of the package; what breaks its contract has failed."""
        built = build_kernels(
            [package.resolved],
            workers=self.options.jobs,
            on_progress=lambda done, total: self._tell(f"{where}: compiling {done} of {total}", 0),
        )
        unknown = [a for a in attempts if not a.known]
        for kernel in built:
            if not kernel.ok:
                note_failure(unknown, kernel, self.store)

    def _plan(self, attempt: Attempt) -> tuple[int, Sequence[Stage]]:
        """How many candidates are measured in which stages."""
        count = sum(t.fault is None for t in attempt.report.trials)
        # A winner needs a proof only; of two the better one is to be found first.
        return count, self._stages if not self.options.confirm else STAGES[-1:] if count > 1 else ()

    def _search(self, attempt: Attempt, station: Station, number: int) -> None:
        report, (count, stages) = attempt.report, self._plan(attempt)
        self._planned[number], done = planned_samples(count, stages), 0
        text = f"{number + 1} of {len(self._planned)}, {shape_text(report.problem)}: measuring"

        def advance(samples: int) -> None:
            nonlocal done
            done = min(done + samples, self._planned[number])
            self._tell(text, sum(self._planned[:number]) + done)

        advance(0)
        search = self._make_search(attempt, station, advance)
        report.best = search.run(report.trials, stages)
        report.stopped, report.crowded, report.notes = search.stopped, search.crowded, tuple(search.notes)

    def _tell(self, text: str, done: int) -> None:
        """What is being done, and how much of the kernel time of the whole tune is behind it."""
        self.on_progress(text, done, sum(self._planned))

    # -- with a budget --

    def _tune_within(self, problems: Sequence[Shape]) -> None:
        """Tunes what there is time for: a few candidates of all problems first, and further ones while time is left."""
        deadline, most = self.begun + self.options.budget_s - ENDING_SECONDS, self.options.candidates
        if (left := deadline - self.options.clock()) <= 0:
            return
        problems = problems[: max(1, int(left / VISIT_SECONDS))]
        limit = min(most, max(FEW, min(MOST, int(left / LOOK_SECONDS)) // len(problems)))
        self._search_within(problems, limit, deadline)
        while limit < most and deadline - self.options.clock() > FURTHER_SECONDS:
            limit = min(2 * limit, most)
            open_ends = [r.problem for r in self.report.problems if r.problem in problems and r.pool.left_out]
            size = max(1, MOST // limit)
            for first in range(0, len(open_ends), size):
                now = self.options.clock()
                share = (deadline - now) * size / max(size, len(open_ends) - first)
                self._search_within(open_ends[first : first + size], limit, now + share)

    def _search_within(self, problems: Sequence[Shape], limit: int, deadline: float) -> None:
        """A search of some problems with so many candidates each. Processes start while these are chosen."""
        attempts, standings, search = list[Attempt](), list[Standing](), None

        def take(kernel: KernelReport) -> None:
            assert search
            if kernel.ok:
                search.take(kernel.tiling)
            else:
                note_failure([s.attempt for s in standings], kernel, self.store)

        def tell(text: str) -> None:
            budget = int(self.options.budget_s)
            self.on_progress(text, min(budget, int(self.options.clock() - self.begun)), budget)

        # A process measures meanwhile: it needs a CPU of its own.
        workers = self.options.jobs or max(1, default_workers() - 1)
        building = KernelStream(workers, take)
        with temporary_folder() as scratch:
            root = scratch / "generated"
            station = self.measuring.station(root / self.resolution.resolved.name)
            try:
                tell(f"{len(problems)} problem{'s' * (len(problems) > 1)}: candidates")
                building.prepare()
                station.begin()
                defaults = {self.space.find_default(p) for p in problems}
                attempts, package = self._prepare(problems, [self.pool(dict(p), limit, defaults) for p in problems])
                if package:
                    write_package(package.rendered, root)
                    building.open(package.resolved, package.rendered, scratch)
                    standings += [Standing(a, self._make_search(a, station)) for a in attempts if a.is_open]
                    clock = self.options.clock
                    search = BudgetedSearch(standings, building, workers, clock, deadline, self._stages, tell)
                    search.run()
            finally:
                building.end()
                station.end()
                left = [s.attempt.report.problem for s in standings if not s.conclude()]
                for attempt in attempts:
                    if attempt.report.problem not in left or attempt.lost:
                        self._note(attempt)

    # -- problems --

    def _make_search(
        self, attempt: Attempt, station: Station, on_sample: Callable[[int], None] = lambda count: None
    ) -> Search:
        place, keep = attempt.place, self.options.budget_s < float("inf")
        return Search(
            station, self.store, attempt.report.problem, place, attempt.beside,
            fresh=self.options.confirm or self.options.fresh, clock=self.options.clock, on_sample=on_sample, keep=keep,
            measured=self._kernels_measured.setdefault(place.problem, set()),
        )  # fmt: skip

    def _note(self, attempt: Attempt) -> None:
        """The result of a problem, in place of an earlier one."""
        report = attempt.report
        if report.problem not in self._searched:
            self._searched.append(report.problem)
        if attempt.lost:
            self.report.faults.append(attempt.lost)
            return
        best = next((p for p, t in zip(report.pool.tried, report.trials) if t is report.best), None)
        report.differs = self.differences(report.problem, best.knobs) if best else {}
        before = [r.problem for r in self.report.problems]
        if report.problem in before:
            self.report.problems[before.index(report.problem)] = report
        else:
            self.report.problems.append(report)

    def _prepare(self, problems: Sequence[Shape], pools: Sequence[Pool]) -> tuple[list[Attempt], TuningPackage | None]:
        """The problems with what the store knows of them, and the package of what is to be measured, if anything is."""
        defaults = [self.space.find_default(p) for p in problems]
        places = [Place(shape_text(p), self.device, self.software) for p in problems]
        handicaps = Handicaps(self.resolution, self.lock if self.options.between else None, self.space.along)
        attempts = begin(
            self.resolution, problems, pools, defaults, places, lambda p, c: handicaps.find(p, c, self._neighbours(p))
        )
        for attempt in attempts if not self.options.fresh else ():
            recall(attempt, self.store, () if self.options.confirm else self._stages)
        return attempts, compose_rest(self.resolution, attempts)

    @property
    def _stages(self) -> Sequence[Stage]:
        """Of a search for winners."""
        return BRIEF if self.options.between else STAGES

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
        if fingerprint(self.spec) != self.before:
            said = f"{self.spec} or its lock has changed while it was tuned: nothing is written; every measurement is "
            self.report.failed = said + "kept, so the same command again takes seconds"
            return
        self.report.written = write_text(lock_path(self.spec), lock.to_text())

    def _decide(self) -> Lock:
        """The lock of before with all verdicts."""
        if found := list(verdicts(self.report)):
            return record(self.resolution, found, self.space, self.device, self.beside, self.report.toolchain)
        return self.resolution.lock
