"""The plan of a search: many candidates briefly, few of them long, and a proof of the best on samples of its own.

Successive halving (Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
2016): each stage measures what the one before left, with more rounds and longer slices. Everybody is timed in turn with
the default kernel and the baseline, so drifting clocks fall on all, and what is compared are ratios within a round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

FEWEST = 5  # that a stage leaves, where there are as many
COMPANIONS = 2  # that take turns with the candidates of every heat: the default and the baseline
HEAT = 8  # candidates that take turns; what a killed tune has measured in the heat under way is lost


@dataclass(frozen=True, slots=True)
class Stage:
    """rounds over everyone, slice_seconds of each, and how many candidates go on at most: see `survivors`."""

    name: str
    rounds: int
    slice_seconds: float
    keep: int

    @property
    def key(self) -> str:
        """What figures of this stage are kept under: others are not comparable."""
        return f"{self.rounds} x {self.slice_seconds * 1e3:g} ms"

    @property
    def seconds(self) -> float:
        """Of one candidate."""
        return self.rounds * self.slice_seconds


STAGES = (Stage("first look", 3, 0.005, 16), Stage("second look", 5, 0.02, 5), Stage("final", 9, 0.06, 3))
# The best of many is in part the luckiest of many: its gain is that of rounds which did not choose it.
PROOF = Stage("proof", 15, 0.06, 1)
# Where the proof leaves it open whether a gain of PROMISING and more is one, rounds again, and only these count: near
# the power limit clocks change from round to round, and 15 of them say little.
LONG_PROOF = Stage("proof", 45, 0.06, 1)
PROMISING = 1.02
# With a budget: of a kernel that leads for now, and of winners where there is no time for more. 9 rounds are enough for
# an interval of 95% (run/intervals.py).
BRIEF_PROOF, SHORT_PROOF = Stage("proof", 9, 0.02, 1), Stage("proof", 15, 0.02, 1)
# Between measured problems, where kernels that the lock has are the likely ones, and the proof follows anyway.
BRIEF = STAGES[:2]
# What others have to be ahead of the winner of a range, so that noise divides none; and kernels that the lock lacks, to
# be worth their time to build.
OTHER, NEWCOMER = 1.01, 1.02
# A gain that is less than this, at the lower end of its interval, is not worth a kernel of its own.
WORTHWHILE = 1.005


def heats(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Groups of at most HEAT, in order and of about the same size."""
    count = -(-len(items) // HEAT)
    for i in range(count):
        yield items[i * len(items) // count : (i + 1) * len(items) // count]


def survivors(stage: Stage, candidates: int) -> int:
    """How many of a stage's candidates go on: a third of them, but some in any case."""
    return min(stage.keep, max(FEWEST, candidates // 3))


def samples(stage: Stage, candidates: int) -> int:
    """Slices that a stage takes: the candidates', and in every heat those of its companions; one round more than are
    counted, in which clocks settle."""
    return (candidates + COMPANIONS * -(-candidates // HEAT)) * (stage.rounds + 1)


def planned_samples(candidates: int, stages: Sequence[Stage] = STAGES) -> int:
    """Slices that a search over so many candidates takes."""
    total = samples(PROOF, 1)
    for stage in stages:
        total += samples(stage, candidates)
        candidates = min(candidates, survivors(stage, candidates))
    return total
