"""Every key of every request is decoded by one part, and the parts that share a request agree about it; where two CTAs
share the columns of a part, both do.

The device source itself runs, by schedule_parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from device_source import run_warp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from schedule_parts import JOIN, KERNEL, ROOM, SCHEDULE, Lengths, Part, Shares, Work, run_ctas

from cutegen.runtime.mla_decode.tiling import KEY_BLOCK, shares_columns

CUTS = {"_take", "_take_aligned", "_take_even", "_take_single", "_take_whole"}


def check_cut(
    lengths: Sequence[int], parts: int, unit: int, overhead: int, join_ratio: int, max_splits: int, *shares: Any
) -> None:
    ctas = list(run_ctas(lengths, parts, unit, overhead, join_ratio, max_splits, *shares))
    assert len({cta.columns for cta in ctas}) == 1
    if ctas[0].columns == KERNEL["HALF"]:
        ran = ctas
    else:
        ran, others = ctas[: len(ctas) // 2 * 2 : 2], ctas[1::2]
        assert [(a.number, a.pieces, a.joined) for a in ran] == [(b.number, b.pieces, b.joined) for b in others]
        assert not any(cta.pieces or cta.joined for cta in ctas[2 * len(ran) :])  # an odd one has nothing
    slots = set()
    for request, length in enumerate(min(max(length, 0), ROOM) for length in lengths):
        takers = [(number, lo, hi) for number, part in enumerate(ran) for r, lo, hi in part.pieces if r == request]
        blocks = -(-length // KEY_BLOCK)
        assert takers[0][1] == 0
        assert takers[-1][2] == blocks
        assert all(hi == lo and hi % unit == 0 for (_, _, hi), (_, lo, _) in pairwise(takers))  # whole units
        assert all(lo < hi for _, lo, hi in takers) or length == 0
        assert len(takers) <= (max_splits or parts)
        first, last = takers[0][0], takers[-1][0]
        assert [number for number, _, _ in takers] == list(range(first, last + 1))
        shared = first < last
        for number, lo, hi in takers:
            assert shared == (lo > 0 or hi * KEY_BLOCK < length)  # as `finish` of the kernel decides
            joins = [join for join in ran[number].joined if join[0] == request]
            assert joins == [(request, first, last)] * shared
            if shared:
                slot = JOIN["slot_of"](number, int(lo == 0))  # where `finish` leaves it, and `join` looks for it
                assert slot == JOIN["slot_of"](number, JOIN["_begins"](number - first))
                assert slot not in slots
                slots.add(slot)
    for part in ctas:
        assert part.started == [(at, hi - lo + 1) for at, (_, lo, hi) in zip(part.awaited, part.joined)]
        assert part.published == part.awaited  # each counter once
        assert len({request for request, _, _ in part.joined}) == len(part.joined)
    owners = {(at, request, i % (KERNEL["HALF"] // part.columns)) for i, part in enumerate(ctas)
              for at, (request, _, _) in zip(part.awaited, part.joined)}  # fmt: skip
    assert len({at for at, *_ in owners}) == len(owners)  # a counter is of one request, and of one half of the columns
    assert all(at < parts for at, *_ in owners)


SHORT = st.integers(0, 700)
LENGTHS = st.one_of(
    st.lists(
        SHORT | st.integers(0, 40_000) | st.sampled_from((-2_000, -1, 0, 1, 64, 128, 129)), min_size=1, max_size=40
    ),
    st.tuples(SHORT, st.integers(1, 400)).map(lambda equal: [equal[0]] * equal[1]),
    st.tuples(st.lists(SHORT, min_size=1, max_size=7), st.integers(1, 50)).map(lambda drawn: drawn[0] * drawn[1]),
)


@settings(max_examples=120)
@given(
    LENGTHS,
    st.integers(1, 24) | st.integers(1, 132),
    st.sampled_from((1, 2)),
    st.integers(1, 8),
    st.sampled_from((1, 25)),
    st.integers(0, 5),
)
@example([0] * 400, 132, 2, 2, 25, 0)
@example([131_072] + [0] * 399, 132, 2, 2, 25, 0)
@example([1], 132, 2, 1, 1, 0)
@example([0] * 7 + [12_800], 10, 2, 2, 1, 0)
@example([1_000_000], 132, 2, 2, 25, 0)
@example([300, 40_000] * 80, 132, 2, 2, 25, 0)
@example([4096], 132, 1, 2, 100, 0)
@example([-2_000, 9_000, 4_000], 7, 2, 2, 25, 0)
@example([2**31 - 1, 9_000, -(2**31)], 7, 2, 2, 25, 0)  # more than the table has room for
def test_cut(lengths: list[int], parts: int, unit: int, overhead: int, join_ratio: int, max_splits: int) -> None:
    check_cut(lengths, parts, unit, overhead, join_ratio, max_splits)


@settings(max_examples=120)
@given(
    LENGTHS,
    st.integers(1, 24) | st.integers(1, 132),
    st.sampled_from((1, 2)),
    st.integers(1, 8),
    st.sampled_from((1, 25)),
    st.integers(0, 5).filter(lambda most: most != 1),
    st.integers(1, 300),
    st.sampled_from((shares_columns, lambda batch, rows, parts, blocks: parts >= 2)),
)
@example([4096], 132, 1, 2, 100, 0, 64, shares_columns)
@example([4096], 33, 1, 2, 100, 0, 64, lambda *_: True)
@example([1024] * 8, 132, 1, 2, 100, 0, 64, shares_columns)
def test_cut_for_two_ctas_a_part(
    lengths: list[int],
    parts: int,
    unit: int,
    overhead: int,
    join_ratio: int,
    max_splits: int,
    rows: int,
    shares: Shares,
) -> None:
    check_cut(lengths, parts, unit, overhead, join_ratio, max_splits, rows, shares)


@pytest.mark.parametrize(
    ("lengths", "rows", "parts", "shared"),
    [
        ([4096], 64, 132, True),
        ([16384], 64, 132, True),
        ([16960], 64, 132, False),
        ([1024], 16, 132, True),
        ([4096], 16, 132, False),
        ([4096], 128, 66, True),
        ([4096], 256, 33, False),
        ([1024] * 8, 64, 132, True),
        ([1024] * 8, 32, 132, False),
        ([1024] * 4, 32, 132, True),
        ([1024] * 8, 128, 66, False),
        ([64] * 100, 64, 132, False),  # each request has a CTA of its own
        ([0], 64, 1, False),
    ],
)
def test_which_parts_two_ctas_share(lengths: list[int], rows: int, parts: int, shared: bool) -> None:
    """What was the quicker on an H200, by docs/lab/2026-11-mla-decode.md; with one part there is no second CTA."""
    work = Work()
    columns = (rows, shares_columns, work, None)
    run_warp(SCHEDULE["find_part"], Lengths(lengths), ROOM, 0, parts, KEY_BLOCK, 2, 100, 0, *columns)
    assert (work[SCHEDULE["COLUMN_BLOCKS"]] == 2) == shared


@settings(max_examples=300)
@given(
    st.lists(SHORT | st.integers(-2, 200_000), min_size=1, max_size=40) | st.integers(-2, 200_000).map(lambda n: [n]),
    st.integers(1, 132),
    st.integers(0, 131),
    st.sampled_from((1, 2)),
    st.integers(1, 8),
    st.sampled_from((1, 25, 100)),
    st.integers(0, 5),
)
@example([64 * n for n in range(33)], 132, 40, 2, 2, 25, 0)
def test_short_ways_find_the_same(
    lengths: list[int], parts: int, number: int, unit: int, overhead: int, join_ratio: int, max_splits: int
) -> None:
    """As comparing all cuts with room for 160 lengths does; a short way may write fields that mean nothing there.
    Single key blocks have but one way for many requests; and where a request costs more than a cut, a comparison may
    cut a single one evenly."""
    assume(len(lengths) > 1 or overhead <= SCHEDULE["CUT"])
    knobs = (unit * KEY_BLOCK, overhead, join_ratio, max_splits)
    given = (Lengths(lengths), ROOM, number % parts, parts, *knobs, 64, None)
    found, compared = Work(), Work()
    run_warp(SCHEDULE["find_part"], *given, found, None)
    held = SCHEDULE["HELD" if unit == 2 or len(lengths) <= 32 else "FEW"]
    run_warp(SCHEDULE["_find_among"], *given, compared, None, held)
    assert compared.items() <= found.items()


@settings(max_examples=100)
@given(
    st.integers(-2, 200_000),
    st.integers(1, 24),
    st.sampled_from((1, 2)),
    st.integers(1, 64),
    st.sampled_from((1, 25, 100)),
    st.integers(0, 5),
)
@example(40_000, 20, 2, 8, 25, 0)  # 313 pairs: the even cut counts the request among them, and has parts of 17
def test_no_cut_of_a_single_request_has_shorter_parts(
    length: int, parts: int, unit: int, overhead: int, join_ratio: int, max_splits: int
) -> None:
    def longest(ctas: Iterable[Part]) -> int:
        """In units, of which the last one may be half used."""
        return max((-(-(hi - lo) // unit) for cta in ctas for _, lo, hi in cta.pieces), default=0)

    knobs = (unit, overhead, join_ratio, max_splits)
    compared = run_ctas([length], parts, *knobs, find=SCHEDULE["_find_among"], more=(SCHEDULE["FEW"],))
    assert longest(run_ctas([length], parts, *knobs)) <= longest(compared)


def test_what_a_single_request_costs_does_not_move_its_cut() -> None:
    first, *others = ([cta.pieces for cta in run_ctas([40_000], 20, 2, cost, 25, 0)] for cost in (1, 4, 5, 64))
    assert others == [first] * 3


@pytest.mark.parametrize(
    ("cut", "lengths", "parts", "max_splits"),
    [
        ("_take_single", [4096], 16, 0),
        ("_take_aligned", [4096] * 5, 16, 0),
        ("_take_aligned", [4096, 0, 9000], 3, 1),
        ("_take", [1024] * 16, 8, 0),
        ("_take_even", [20_000, 100, 7000, 0, 3000, 64, 31_000, 128, 5000], 6, 0),
        ("_take_whole", [20_000, 100, 7000, 0, 3000, 64, 31_000, 128, 5000], 6, 1),
    ],
)
def test_every_way_to_cut(
    cut: str, lengths: list[int], parts: int, max_splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CUTS - {cut, "_take" if cut == "_take_whole" else cut}:  # which takes by it
        monkeypatch.delitem(SCHEDULE, name)
    check_cut(lengths, parts, 2, 2, 25, max_splits)
