"""The statistics of interleaved rounds."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise, permutations

import pytest

from cutegen.run.intervals import median_interval, round_orders, speed_ratio


@pytest.mark.parametrize(
    ("n", "rank", "coverage"),
    [(5, 0, 0.9375), (6, 0, 0.96875), (7, 0, 0.984375), (8, 0, 0.9921875), (9, 1, 0.9609375), (15, 3, 0.96484375)],
)
def test_ranks_and_coverage_are_those_of_the_tables(n: int, rank: int, coverage: float) -> None:
    values = list(range(n))
    random.Random(n).shuffle(values)
    found = median_interval(values)
    assert (found.median, found.low, found.high) == ((n - 1) / 2, rank, n - 1 - rank)
    assert found.coverage == pytest.approx(coverage)


@pytest.mark.parametrize("n", [1030, 10_000])
def test_many_values_have_an_interval_as_well(n: int) -> None:
    """2**n is not a float then; the ends lie sqrt(n) from the middle, nearly."""
    found = median_interval(range(n))
    assert 0.95 <= found.coverage < 0.953
    assert found.high - found.low == pytest.approx(1.96 * n**0.5, rel=0.03)


def test_one_value_encloses_nothing() -> None:
    assert median_interval([3.0]).coverage == 0.0


def test_intervals_cover_the_true_median_as_often_as_they_say() -> None:
    draw = random.Random(1)
    covered = 0
    for _ in range(4000):
        found = median_interval([draw.expovariate(1.0) for _ in range(9)])
        covered += found.low <= 0.6931471805599453 <= found.high
    assert covered / 4000 == pytest.approx(0.9609375, abs=0.012)


def test_ratios_are_taken_round_by_round() -> None:
    # Both slow down together; the ratio does not move.
    drift = [1.0, 1.1, 1.3, 1.2, 1.5, 2.0]
    found = speed_ratio([2.0 * d for d in drift], [1.6 * d for d in drift])
    assert (found.median, found.low, found.high) == pytest.approx((1.25, 1.25, 1.25))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10])
def test_every_candidate_gets_every_position_and_follows_every_other(count: int) -> None:
    orders = list(round_orders(count, 2 * count))
    assert all(sorted(order) == list(range(count)) for order in orders)
    for half in (orders[:count], orders[count:]):
        assert all(sorted(column) == list(range(count)) for column in zip(*half))
    pairs = Counter(pair for order in orders for pair in pairwise(order))
    assert pairs == dict.fromkeys(permutations(range(count), 2), 2)
