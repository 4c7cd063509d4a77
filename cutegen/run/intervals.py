"""Statistics of interleaved rounds: medians, and intervals that assume no distribution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, fsum, log
from statistics import median
from typing import Protocol

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the order statistics low, high around it, which enclose the true one with probability coverage."""

    median: float
    low: float
    high: float
    coverage: float


class Bounded(Protocol):
    """An Interval, or one that was read from a file."""

    @property
    def median(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def ratio_text(ratio: Bounded) -> str:
    """A ratio of speeds as all tables have it: `1.038 [1.011, 1.057]`."""
    return f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def median_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The narrowest symmetric pair of order statistics with at least this coverage of the median; with less than 6
    values none has 95 %, and it is the smallest and the largest.

    The k-th smallest and k-th largest of n independent values enclose the median of their distribution with
    probability 1 - 2 P(B < k), B binomial (n, 1/2): David, Nagaraja, "Order Statistics", section 7.1.
    """
    ordered, n = sorted(values), len(values)
    rank, coverage = _narrowest_pair(n, level)
    return Interval(median(ordered), ordered[rank], ordered[n - 1 - rank], coverage)


@cache
def _narrowest_pair(n: int, level: float) -> tuple[int, float]:
    """The rank from both ends, from 0, and its coverage. In integers: a float has no room for 2**1024."""
    rank, ways, tail = 0, 1, 1  # ways: to choose `rank` of n; tail: the sum of those up to it
    coverage = (2**n - 2) / 2**n
    while rank + 1 < n // 2:
        ways = ways * (n - rank) // (rank + 1)
        tail += ways
        if (wider := (2**n - 2 * tail) / 2**n) < level:
            break
        rank, coverage = rank + 1, wider
    return rank, coverage


def speed_ratio(reference: Sequence[float], times: Sequence[float]) -> Interval:
    """Speed relative to a reference measured in the same rounds: the median of the rounds' ratios reference / time."""
    return median_interval([r / t for r, t in zip(reference, times, strict=True)])


@dataclass(frozen=True, slots=True)
class Summary:
    """Speeds over problems. geomean: of the problems' ratios, by round, and its median over the rounds. least, most: of
    the problems' medians. below_one: how many of them are below 1."""

    problems: int
    geomean: Interval
    least: float
    most: float
    below_one: int


def summarise_speeds(references: Sequence[Sequence[float]], times: Sequence[Sequence[float]]) -> Summary:
    """references, times: seconds by problem and round. Where problems have more rounds than others, these count in
    groups, as many as the others have rounds, each by its median."""
    ratios = [[r / t for r, t in zip(ref, own, strict=True)] for ref, own in zip(references, times, strict=True)]
    rounds = min(map(len, ratios))
    columns = zip(*(_grouped(row, rounds) for row in ratios), strict=True)
    by_round = [exp(fsum(map(log, column)) / len(column)) for column in columns]
    speeds = [median(row) for row in ratios]
    return Summary(len(speeds), median_interval(by_round), min(speeds), max(speeds), sum(s < 1 for s in speeds))


def _grouped(values: Sequence[float], count: int) -> list[float]:
    """Medians of so many groups of values that follow one another, of about the same size."""
    size = len(values)
    return [median(values[i * size // count : (i + 1) * size // count]) for i in range(count)]


def round_orders(count: int, rounds: int) -> Iterator[list[int]]:
    """The order of candidates in each round. In 2 * count of them everyone gets every position twice and comes right
    behind every other equally often (the Latin squares of Williams, 1949), so that what one candidate does to clocks
    and caches falls on all."""
    zigzag = [-(i // 2) - 1 if i % 2 else i // 2 for i in range(count)]  # neighbours lie 1, 2, 3, ... apart
    for r in range(rounds):
        order = [(i + r) % count for i in zigzag]
        yield order if r // count % 2 == 0 else order[::-1]
