"""The search on one problem: stages of interleaved rounds, then a proof; what fails is put aside with its reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cutegen.diagnostics import CutegenError
from cutegen.run.intervals import Interval, round_orders, speed_ratio
from cutegen.run.shapes import Shape, shape_text
from cutegen.tune.measuring_process import CandidateFault, Opened, Station
from cutegen.tune.stages import (
    LONG_PROOF,
    PROMISING,
    PROOF,
    STAGES,
    WORTHWHILE,
    Stage,
    heats,
    samples,
    survivors,
)
from cutegen.tune.store import Fault, Place, Timing, TimingStore


class ProblemError(CutegenError):
    """A problem on which nothing can be compared; others may do."""


MAX_LOST = 8  # measuring processes lost on one problem before the rest is left alone
Clock = Callable[[], float]


@dataclass
class Trial:
    """A candidate on one problem. kernel: as the store knows it. timing: of the stage it came to, the last of those
    that it was measured in; stored: without measuring anything now. handicap: what it has to be ahead by to count as
    equal. promised: clocks by the cost model, to compare candidates of one problem by; 1 where there is no model."""

    name: str
    kernel: str
    fault: Fault | None = None
    stage: str = ""
    timing: Timing | None = None
    stored: bool = True
    handicap: float = 1.0
    promised: float = 1.0

    @property
    def speed(self) -> Interval | None:
        """Relative to the default in the same rounds."""
        return speed_ratio(self.timing.default, self.timing.own) if self.timing else None

    @property
    def beside_baseline(self) -> Interval | None:
        """Relative to the baseline in the same rounds."""
        return speed_ratio(self.timing.baseline, self.timing.own) if self.timing and self.timing.baseline else None

    @property
    def score(self) -> float:
        """Speed relative to the default or the baseline, whichever is the faster: the one that is more like the kernels
        that matter. The other's time depends on who else is in the heat (docs/tuning.md, the plan of a search)."""
        speeds = [s.median for s in (self.speed, self.beside_baseline) if s]
        return min(speeds, default=0.0) / self.handicap

    @property
    def least(self) -> float:
        """What the lower end of its speed has to be for a winner."""
        return WORTHWHILE * self.handicap

    @property
    def wins(self) -> bool:
        """It is proved to beat the default."""
        return not self.fault and self.stage == PROOF.name and self.speed is not None and self.speed.low >= self.least

    @property
    def gain(self) -> float:
        """Speed relative to the default."""
        return self.speed.median / self.handicap if self.speed else 0.0


def scores(trials: Sequence[Trial]) -> Callable[[Trial], float]:
    """What trials are compared by: their scores, where all were timed beside the same baseline; else by what all were
    timed beside, the default. The store may know figures beside another baseline, or beside none."""
    alike = len({t.timing.baseline_name for t in trials if t.timing}) < 2
    return lambda trial: trial.score if alike else trial.gain


@dataclass
class Search:
    """What there is to search with. default: the kernel that everything is timed beside. deadline: of `clock`, after
    which no heat begins. fresh: measure whatever earlier tunes have measured. on_sample(n): n slices are done, or not
    needed; 0: something else is done. keep: other problems stay open in the process. measured: kernels and stages of
    this tune."""

    station: Station
    store: TimingStore
    problem: Shape
    place: Place
    default: Trial
    deadline: float = float("inf")
    fresh: bool = False
    clock: Clock = time.monotonic
    on_sample: Callable[[int], None] = lambda count: None
    keep: bool = False
    measured: set[tuple[str, str]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    opened: Opened | None = None
    stopped: str = ""
    crowded: bool = False
    _lost: int = 0
    _admitted: set[str] = field(default_factory=set)

    def run(self, trials: Sequence[Trial], stages: Sequence[Stage] = STAGES) -> Trial | None:
        """The candidate that beats the default, proved; None when none does. The trials hold what was found.

        ProblemError: the default itself does not run, or is wrong. CutegenError (exit 2): nothing runs here.
        """
        left = [t for t in trials if not self.known_fault(t)]
        for stage in stages:
            self.look(stage, left)
            kept = survivors(stage, len(left))
            score = scores(left)
            left = sorted((t for t in left if not t.fault and t.timing), key=lambda t: -score(t))[:kept]
            if self.stopped:
                break
        score = scores(left)
        for best in sorted((t for t in trials if not t.fault), key=lambda t: (t not in left, -score(t))):
            speed = best.speed
            if stages and (best not in left or speed is None or speed.high < best.least):
                return None
            self.prove(best)
            if self.leaves_open(best):
                self.on_sample(-samples(LONG_PROOF, 1))  # which nobody planned
                self.prove(best, LONG_PROOF)
            if not best.fault:
                return best if best.wins else None
        return None

    def leaves_open(self, best: Trial) -> bool:
        """Whether the proof promises a gain that its interval does not hold, and there is time to ask again."""
        if best.fault or best.stage != PROOF.name or best.speed is None or self.clock() >= self.deadline:
            return False
        return best.speed.low < best.least and best.gain >= PROMISING

    def resume(self) -> None:
        """Goes on after other problems were searched in the same process."""
        self.opened = None
        self._admitted.clear()

    # -- stages --

    def look(self, stage: Stage, trials: Sequence[Trial]) -> None:
        """Figures of the stage for each trial that has no fault, from the store or now."""
        missing = [t for t in trials if not self.stored(stage, t)]
        self.on_sample(samples(stage, len(trials)) - samples(stage, len(missing)))
        for heat in heats(missing):
            if self.clock() >= self.deadline:
                self.stopped = "the budget is spent"
            if self.stopped:
                return
            self._run_heat(stage, heat)

    def prove(self, best: Trial, stage: Stage = PROOF) -> None:
        """The proof of one candidate: rounds of its own, and its results after them."""
        if self.stored(stage, best):
            self.on_sample(samples(stage, 1))
            return
        timing = self._run_heat(stage, [best], keep=False)
        if not timing or best.fault:
            return
        for trial in (best, self.default):
            if reason := self._attempt(trial, lambda t=trial: self.station.recheck(t.name)):  # type: ignore[misc]
                self._blame(trial, Fault("wrong", f"after timing: {reason}"))
            if best.fault:  # it may have taken the process along: the default cannot be asked
                return
        self._keep(stage, best, timing)

    def _run_heat(self, stage: Stage, heat: Sequence[Trial], keep: bool = True) -> Timing | None:
        """Everyone of the heat, the default and the baseline in turn; again without a candidate that fails."""
        while True:
            members = [t for t in heat if not t.fault]
            if self._lost >= MAX_LOST:
                self.stopped = f"{self._lost} measuring processes were lost"
                return None
            if not members:
                return None
            try:
                figures = self._take_turns(stage, members)
            except CandidateFault:
                continue  # noted; the heat begins again without it
            timings = [self._keep(stage, t, self._timing(t, figures), keep) for t in members]
            return timings[0]

    def _take_turns(self, stage: Stage, members: Sequence[Trial]) -> dict[str, list[float]]:
        """Seconds per launch by name and round. CandidateFault: somebody is out, or the process is gone."""
        baseline = self._ready([self.default, *members])
        everyone = [self.default.name, *([baseline] if baseline else []), *(t.name for t in members)]
        figures: dict[str, list[float]] = {name: [] for name in everyone}
        by_name = {t.name: t for t in (self.default, *members)}
        for number, order in enumerate(round_orders(len(everyone), stage.rounds + 1)):
            for i in order:
                name = everyone[i]
                try:
                    seconds = self.station.sample(name, stage.slice_seconds)
                except CandidateFault as fault:
                    self._put_aside(by_name.get(name), fault)
                    raise
                if number:  # in the first round clocks settle
                    figures[name].append(seconds)
                self.on_sample(1)
        try:
            others = self.station.others()
        except CandidateFault:
            self._lost += 1  # nobody's fault, and there may be no end of it
            raise
        if others:
            self._crowd(others)
        return figures

    # -- the process --

    def _ready(self, trials: Sequence[Trial]) -> str:
        """Everyone admitted in a process that has the problem open; the baseline's name. CandidateFault: see above."""
        if not self.station.alive:
            self._admitted.clear()
            self.opened = None
            setup = self.station.start()
            if setup.device != self.place.device:
                found = f"the measuring process is on {setup.device}, the tune is for {self.place.device}"
                raise CutegenError(found, "set CUDA_VISIBLE_DEVICES to one device", exit_code=2)
            if setup.others:
                self._crowd(setup.others)
        if self.opened is None:
            try:
                self.opened = self.station.open(self.problem, self.default.name, self.keep)
                self._admitted = {*self.opened.admitted}
            except CandidateFault as fault:
                raise ProblemError(
                    f"{shape_text(self.problem)}: the problem cannot be set up: {fault.reason}"
                ) from None
            if self.opened.reason:
                self._note(f"no baseline: {self.opened.reason}")
        for trial in trials:
            if trial.name in self._admitted:
                continue
            try:
                wrong = self.station.admit(trial.name)
            except CandidateFault as fault:
                self._put_aside(trial, fault)
                raise
            if wrong:
                self._blame(trial, Fault("wrong", wrong))
                raise CandidateFault("wrong", wrong, lost=False)
            self._admitted.add(trial.name)
            self.on_sample(0)
        return self.opened.baseline

    def _attempt(self, trial: Trial, action: Callable[[], str]) -> str:
        try:
            return action()
        except CandidateFault as fault:
            self._put_aside(trial, fault)
            return ""

    def _put_aside(self, trial: Trial | None, fault: CandidateFault) -> None:
        """A candidate that failed, and what it took with it; None: the baseline."""
        self._lost += fault.lost
        if trial is None:
            reason = f"the baseline {fault.kind}: {fault.reason}"
            raise ProblemError(
                f"{shape_text(self.problem)}: {reason}", "run `cutegen doctor`, and look at `nvidia-smi`"
            )
        self._blame(trial, Fault(fault.kind, fault.reason))

    def _blame(self, trial: Trial, fault: Fault) -> None:
        if trial is self.default:
            remedy = "run `cutegen check` on the spec: the tuner compares with the default, which must work"
            raise ProblemError(f"{shape_text(self.problem)}: the default kernel: {fault.kind}: {fault.reason}", remedy)
        trial.fault, trial.stored = fault, False
        if fault.lasting and not self.crowded:  # else it may be the other process's doing
            self.store.keep_fault(trial.kernel, self.place, fault)

    def _crowd(self, others: int) -> None:
        self.crowded = True
        self._note(f"{others} other process{'es' * (others > 1)} on the GPU: these figures are not trusted, nor kept")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # -- the store --

    def known_fault(self, trial: Trial) -> bool:
        if trial.fault is None and not self.fresh:
            trial.fault = self.store.find_fault(trial.kernel, self.place)
        return trial.fault is not None

    def stored(self, stage: Stage, trial: Trial) -> bool:
        """Whether the store knows this stage's figures; then the trial has them."""
        if self.fresh and (trial.kernel, stage.key) not in self.measured:
            return False
        timing = self.store.find_timing(trial.kernel, self.default.kernel, self.place, stage.key)
        if timing:
            trial.timing, trial.stage = timing, stage.name
        return timing is not None

    def _timing(self, trial: Trial, figures: dict[str, list[float]]) -> Timing:
        baseline = self.opened.baseline if self.opened else ""
        return Timing(
            tuple(figures[trial.name]), tuple(figures[self.default.name]), tuple(figures.get(baseline, ())), baseline
        )

    def _keep(self, stage: Stage, trial: Trial, timing: Timing, keep: bool = True) -> Timing:
        trial.timing, trial.stage, trial.stored = timing, stage.name, False
        if keep and not self.crowded:
            self.measured.add((trial.kernel, stage.key))
            self.store.keep_timing(trial.kernel, self.default.kernel, self.place, stage.key, timing)
        return timing


def iterate_ranked(trials: Sequence[Trial]) -> Iterator[Trial]:
    """Fastest first as far as they came, then those that are out."""
    order = {stage.name: i for i, stage in enumerate((*STAGES, PROOF))}
    score = scores(trials)
    yield from sorted(trials, key=lambda t: (t.fault is not None, -order.get(t.stage, -1), -score(t)))
