"""Problems on their way through a tune: what the store knows, and the package of what is still to be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cutegen.build.kernels import KernelReport
from cutegen.diagnostics import CutegenError
from cutegen.resolve import Resolution
from cutegen.run.shapes import Shape, shape_text
from cutegen.tune.pool import Pool, TuningPackage, compose
from cutegen.tune.report import TunedProblem
from cutegen.tune.search import ProblemError, Search, Trial
from cutegen.tune.stages import Stage
from cutegen.tune.store import NOWHERE, Fault, FaultKind, Place, TimingStore


@dataclass
class Attempt:
    """A problem. default: the candidate that others are timed beside, and the trial that stands for it. known: the
    store gave the verdict. lost: why nothing can be compared."""

    report: TunedProblem
    place: Place
    default: Any
    beside: Trial
    known: bool = False
    lost: CutegenError | None = None

    @property
    def is_open(self) -> bool:
        """Something is to be measured."""
        return not self.known and not self.lost and any(t.fault is None for t in self.report.trials)


def begin(
    resolution: Resolution,
    problems: Sequence[Shape],
    pools: Sequence[Pool],
    defaults: Sequence[Any],
    places: Sequence[Place],
    handicap: Callable[[Shape, Any], float],
) -> list[Attempt]:
    """An attempt for each problem, with its candidates, their handicaps, its default and its place."""
    package = _compose(resolution, pools, defaults)

    def trial(candidate: Any) -> Trial:
        name = package.names[candidate]
        return Trial(name, package.keys[name])

    attempts = []
    for problem, pool, default, place in zip(problems, pools, defaults, places):
        trials = [
            replace(trial(p.candidate), handicap=handicap(problem, p.candidate), promised=p.clocks or 1.0)
            for p in pool.tried
        ]
        report = TunedProblem(dict(problem), pool, trials)
        attempts.append(Attempt(report, place, default, trial(default)))
    return attempts


def recall(attempt: Attempt, store: TimingStore, stages: Sequence[Stage]) -> None:
    """What the store knows: which candidates do not compile, and the verdict of a search by these stages, if any."""
    report = attempt.report
    for trial in report.trials:
        trial.fault = store.find_fault(trial.kernel, NOWHERE)
    if not stages or not report.trials:
        return
    trials = [replace(t) for t in report.trials]
    search = Search(_Nowhere(), store, report.problem, attempt.place, attempt.beside)  # type: ignore[arg-type]
    try:
        report.best = search.run(trials, stages)
    except _MeasuringNeededError:
        return
    report.trials, attempt.known = trials, True


def compose_rest(resolution: Resolution, attempts: Sequence[Attempt]) -> TuningPackage | None:
    """The package of all that is to be measured, without candidates that are known to fail; None: nothing is. Trials
    are called as in it from now on."""
    left = [a for a in attempts if a.is_open]
    if not left:
        return None
    pools = [
        replace(a.report.pool, tried=tuple(p for p, t in zip(a.report.pool.tried, a.report.trials) if not t.fault))
        for a in left
    ]
    package = _compose(resolution, pools, [a.default for a in left])
    for a in left:
        a.beside.name = package.names[a.default]
        for p, t in zip(a.report.pool.tried, a.report.trials):
            t.name = package.names.get(p.candidate, t.name)
    return package


def note_failure(attempts: Sequence[Attempt], kernel: KernelReport, store: TimingStore) -> None:
    """A kernel that does not build, or breaks its contract, is out, and known to be; so are the problems that it is the
    default of."""
    broken = [f"{c.id}: planned {c.planned}, found {c.found}" for c in kernel.checks if c.ok is False]
    reason, out = kernel.outcome.error or "; ".join(broken), kernel.outcome
    kind: FaultKind = "killed" if out.killed else "starved" if out.starved else "failed"
    fault = Fault(kind, reason.splitlines()[0])
    for attempt in attempts:
        if attempt.beside.name == kernel.tiling:
            said = f"{shape_text(attempt.report.problem)}: the default kernel does not build: {reason}"
            attempt.lost = ProblemError(said, "run `cutegen build` on the spec: others are timed against the default")
        for trial in attempt.report.trials:
            if trial.name == kernel.tiling and not trial.fault:
                trial.fault, trial.stored = fault, False
                if fault.lasting:
                    store.keep_fault(trial.kernel, NOWHERE, fault)


def _compose(resolution: Resolution, pools: Sequence[Pool], defaults: Sequence[Any]) -> TuningPackage:
    """One package of all candidates of the pools: what they have in common is in it once."""
    proposals = {p.candidate: p for pool in pools for p in pool.tried if p.candidate not in defaults}
    return compose(resolution, list(proposals.values()), list(dict.fromkeys(defaults)))


class _MeasuringNeededError(Exception):
    """The store does not know all that a search asks for."""


class _Nowhere:
    """In place of a station, where nothing is to be measured."""

    alive = False

    def start(self) -> Any:
        raise _MeasuringNeededError
