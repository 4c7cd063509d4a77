"""What there is to gain by measuring further candidates: by the cost model, and by how wrong it was so far.

Expected improvement (Mockus, 1975; Jones, Schonlau and Welch, "Efficient Global Optimization", 1998) over the fastest
kernel of the problem. The model's error is taken to be normal in the logarithm of time. Part of it is the problem's,
and changes no order; of the rest, a kernel that was measured on other problems is taken to have about the same here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import erf, exp, log, pi, sqrt
from statistics import fmean

from cutegen.tune.search import Trial, scores

# What the model is wrong by before anything was measured, which counts as so many figures; and the limits of what is
# found later.
SPREAD, SPREAD_WEIGHT = 0.08, 6
LEAST_SPREAD, MOST_SPREAD = 0.02, 0.2
# A problem that is behind the baseline counts more: this much for each unit it is behind, so twice at 0.95.
BEHIND = 20.0


class Promise:
    """Of the candidates of some problems, each with its trials."""

    def __init__(self, problems: Sequence[Sequence[Trial]]) -> None:
        self.fastest, self.offsets, self.weights = list[float](), list[float](), list[float]()
        self.deviations: dict[str, list[tuple[int, float]]] = defaultdict(list)
        squares, count = SPREAD**2 * SPREAD_WEIGHT, float(SPREAD_WEIGHT)
        for number, trials in enumerate(problems):
            timed = [t for t in trials if t.timing and not t.fault]
            score = scores(timed)
            costs = {t.kernel: -log(score(t)) for t in timed}
            errors = {t.kernel: costs[t.kernel] - log(t.promised) for t in timed}
            now = _default_cost(timed)
            offset = fmean(errors.values()) if errors else now - log(trials[0].promised) if trials else now
            self.fastest.append(min([now, *costs.values()]))
            self.offsets.append(offset)
            self.weights.append(1 + BEHIND * max(0.0, 1 - _beside_baseline(timed)))
            for kernel, error in errors.items():
                self.deviations[kernel].append((number, error - offset))
            squares += sum((error - offset) ** 2 for error in errors.values())
            count += max(0, len(errors) - 1)
        self.spread = min(MOST_SPREAD, max(LEAST_SPREAD, sqrt(squares / count)))

    def gain(self, problem: int, trial: Trial) -> float:
        """By how much, in the logarithm of time, measuring the trial is expected to improve the problem's fastest."""
        others = [deviation for number, deviation in self.deviations[trial.kernel] if number != problem]
        known = len(others) / (len(others) + 1)
        expected = log(trial.promised) + self.offsets[problem] + (known * fmean(others) if others else 0.0)
        return _improvement(self.fastest[problem] - expected, self.spread * sqrt(1 - known * known))

    def order(self, problem: int, trials: Sequence[Trial]) -> list[Trial]:
        """Most to gain first; equals as they are."""
        return sorted(trials, key=lambda t: -self.gain(problem, t))


def _improvement(ahead: float, spread: float) -> float:
    """E[max(0, x)] of a normal x around `ahead`."""
    z = ahead / spread
    return ahead * (1 + erf(z / sqrt(2))) / 2 + spread * exp(-z * z / 2) / sqrt(2 * pi)


def _default_cost(timed: Sequence[Trial]) -> float:
    """The default's, as candidates have it: its score is 1, or what the baseline is ahead by."""
    beside = [d / b for t in timed if t.timing for d, b in zip(t.timing.default, t.timing.baseline)]
    return max(0.0, log(fmean(beside))) if beside else 0.0


def _beside_baseline(timed: Sequence[Trial]) -> float:
    """The speed of the fastest kernel relative to the baseline; 1 where there is none."""
    own = [t.beside_baseline.median for t in timed if t.beside_baseline]
    return max(own, default=1.0)
