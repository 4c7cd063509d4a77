"""How good a cost model is: its estimates beside what was measured, by `bench -o` or by `tune --json`.

What counts is the choice: on each problem with several measured kernels, how much slower than the fastest the one is
that the model would have chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import Field, ValidationError

from cutegen.diagnostics import CutegenError
from cutegen.report.result import Part, describe_fault, is_tuned, load_result, read_json
from cutegen.run.shapes import shape_text

# The tiling's name, or knobs by dotted path in place of the default's.
Instance = str | Mapping[str, object]
Estimate = Callable[[str, Instance, Mapping[str, int]], "float | None"]
"""(kernel, instance, shape) -> seconds, or None for a kernel that is not asked about"""

WITHIN = (0.02, 0.05, 0.1)


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel and what it took. kernel: the name of its spec."""

    label: str
    kernel: str
    instance: Instance
    seconds: float


@dataclass(frozen=True, slots=True)
class TimedProblem:
    title: str
    shape: Mapping[str, int]
    kernels: tuple[Timed, ...]


@dataclass(frozen=True, slots=True)
class Pick:
    """Of one problem. count: kernels with an estimate. picked, best: (label, seconds measured). estimated: seconds that
    the model gave what it picked."""

    title: str
    count: int
    picked: tuple[str, float]
    best: tuple[str, float]
    estimated: float

    @property
    def loss(self) -> float:
        """By what the pick is slower than the best; 0 where it is the best."""
        return self.picked[1] / self.best[1] - 1


@dataclass(frozen=True, slots=True)
class Score:
    """picks: of the problems with at least two kernels. errors: estimate / measured - 1 of every kernel."""

    picks: tuple[Pick, ...]
    errors: tuple[float, ...]

    def within(self, share: float) -> int:
        return sum(p.loss <= share for p in self.picks)


def score_model(problems: Sequence[TimedProblem], estimate: Estimate) -> Score:
    """Equal estimates are a tie; then the slowest of them counts as the pick."""
    picks, errors = [], []
    for problem in problems:
        known = [(s, k) for k in problem.kernels if (s := estimate(k.kernel, k.instance, problem.shape)) is not None]
        errors += [seconds / kernel.seconds - 1 for seconds, kernel in known]
        if len(known) < 2:
            continue
        estimated, picked = min(known, key=lambda pair: (pair[0], -pair[1].seconds))
        best = min((kernel for _, kernel in known), key=lambda k: k.seconds)
        pick = (picked.label, picked.seconds), (best.label, best.seconds)
        picks.append(Pick(problem.title, len(known), *pick, estimated))
    return Score(tuple(picks), tuple(errors))


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Ratio(Part):
    median: Seconds


class _Samples(Part):
    default: list[Seconds]


class _TunedCandidate(Part):
    name: str
    knobs: dict[str, object]
    seconds: Seconds | None
    speed: _Ratio | None
    samples: _Samples | None


class _TunedProblem(Part):
    problem: dict[str, int]
    candidates: list[_TunedCandidate]


class _Tuned(Part):
    spec: str
    problems: list[_TunedProblem]


def load_timed(path: Path) -> tuple[TimedProblem, ...]:
    """Of a result of `bench -o`, or of what `tune --json` prints. CutegenError (exit 2): it is neither."""
    data = read_json(path)
    if is_tuned(data):
        try:
            return tuple(_tuned_problems(_Tuned.model_validate(data)))
        except ValidationError as error:
            raise CutegenError(
                f"{path} is not a result of `tune --json`: {describe_fault(error)}", exit_code=2
            ) from error
    problems = []
    for p in load_result(path).problems:
        kernels = (
            Timed(f"{c.name} {c.tiling}", c.name.partition(" #")[0], c.tiling, c.seconds.median)
            for c in p.kernels()
            if c.tiling
        )
        problems.append(TimedProblem(p.title, p.shape, tuple(kernels)))
    return tuple(problems)


def _tuned_problems(tuned: _Tuned) -> Iterator[TimedProblem]:
    """Candidates are put into the same rounds by their speeds relative to the default, which ran beside each."""
    kernel = Path(tuned.spec).stem
    for problem in tuned.problems:
        timed = [c for c in problem.candidates if c.speed and c.samples]
        found: list[Timed] = []
        if timed and (samples := [t for c in timed if c.samples for t in c.samples.default]):
            default = median(samples)
            found = [Timed("default", kernel, {}, default)]
            found += [Timed(c.name, kernel, c.knobs, default / c.speed.median) for c in timed if c.speed]
        title = shape_text(problem.problem)
        yield TimedProblem(title, problem.problem, tuple(found))


def score_header() -> tuple[str, ...]:
    return ("problem", "kernels", "the model's pick", "us", "model us", "the fastest", "us", "behind")


def score_rows(score: Score) -> Iterator[tuple[str, ...]]:
    for p in score.picks:
        picked, best = (f"{pair[1] * 1e6:.2f}" for pair in (p.picked, p.best))
        estimated = f"{p.estimated * 1e6:.2f}"
        yield (p.title, str(p.count), p.picked[0], picked, estimated, p.best[0], best, f"{p.loss:.1%}")


def describe_score(score: Score) -> Iterator[str]:
    count = len(score.picks)
    if count:
        within = ", ".join(f"{s:.0%} on {score.within(s)} ({score.within(s) / count:.0%})" for s in WITHIN)
        most = max(p.loss for p in score.picks)
        yield f"the model's pick is behind the fastest by at most {within} of {count} problems; by {most:.1%} at most"
    else:
        yield "nothing to score: no problem has two measured kernels of the given specs; the model covers GEMMs only"
    if score.errors:
        sizes = [abs(e) for e in score.errors]
        off = f"{median(sizes):.1%} in the median and {max(sizes):.1%} at most"
        yield f"its times are off by {off}, over {len(sizes)} kernels"


def score_to_json(score: Score) -> dict[str, object]:
    picks = [
        {"problem": p.title, "kernels": p.count, "picked": p.picked[0], "best": p.best[0], "loss": p.loss}
        for p in score.picks
    ]
    within = {f"{s:.0%}": score.within(s) for s in WITHIN}
    return {"problems": len(picks), "within": within, "picks": picks, "errors": score.errors}
