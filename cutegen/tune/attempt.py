"""Problems on their way through a tune: what the store knows, and the package of what is still to be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cutegen.resolve import Resolution
from cutegen.run.shapes import Shape
from cutegen.tune.pool import Pool, TuningPackage, compose
from cutegen.tune.report import ProblemReport
from cutegen.tune.search import Search, Trial
from cutegen.tune.stages import Stage
from cutegen.tune.store import NOWHERE, Place, TimingStore


@dataclass
class Attempt:
    """A problem. default: the candidate that others are timed beside, and the trial that stands for it. known: the
    store gave the verdict."""

    report: ProblemReport
    place: Place
    default: Any
    beside: Trial
    known: bool = False

    @property
    def is_open(self) -> bool:
        """Something is to be measured."""
        return not self.known and any(t.fault is None for t in self.report.trials)


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
        trials = [replace(trial(c), handicap=handicap(problem, c)) for c in (p.candidate for p in pool.tried)]
        report = ProblemReport(dict(problem), pool, trials)
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
