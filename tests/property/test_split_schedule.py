"""Every key of every request is decoded by one part, and the parts that share a request agree about it; where two CTAs
share the columns of a part, both do.

What finds the parts and what reads the result is the device source itself, run by device_source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from device_source import device_functions, run_warp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cutegen.runtime.mla import KEY_BLOCK, shares_columns

ROOT = Path(__file__).parents[2]
DEVICE = ROOT / "cutegen" / "device"
CUTS = {"_take", "_take_aligned", "_take_even", "_take_single", "_take_whole"}


class Part:
    """What one part does; stands for the kernel's `self`, `o` and split_join where its functions name them."""

    def __init__(self, lengths: Sequence[int], work: Work, unit: int, halves: int) -> None:
        self.seq_lens, self.work, self.tiling = lengths, work, SimpleNamespace(unit=unit)
        self.columns = KERNEL["HALF"] // halves
        self.number = KERNEL["part"](self, self.columns)
        self.shared = Shared()
        self.started: list[tuple[int, int]] = []  # counter, parts that share the request
        self.published: list[int] = []  # counters
        self.awaited: list[int] = []
        self.joined: list[tuple[int, int, int]] = []  # request, first and last part
        first, end = KERNEL["requests"](self, self)
        self.pieces = [(request, *KERNEL["span"](self, self, request)[1:]) for request in range(first, end)]
        for _, lo, hi in self.pieces:
            self.check_steps(lo, hi, unit)

    def check_steps(self, lo: int, hi: int, unit: int) -> None:
        """Steps take every block once, and past the end only one behind a request that is cut by pairs."""
        blocks = []
        for single, first, end in KERNEL["steps"](self, lo, hi):
            for step in range(first, end):
                blocks += [lo + 2 * step + i for i in range(1 if single else 2)]
        assert blocks == list(range(lo, hi + (hi - lo) % 2 * (unit == 2)))

    def part(self, columns: int) -> int:
        return int(KERNEL["part"](self, columns))

    def column_block(self, columns: int) -> int:
        return int(KERNEL["column_block"](self, columns))

    def counter(self, o: Part, columns: int, first: int) -> int:
        return int(KERNEL["counter"](self, SimpleNamespace(semaphores=SEMAPHORES), columns, first))

    def join_request(self, o: Part, columns: int, turn: int, thread: int) -> None:
        if thread == turn:
            request, lo, splits, _ = self.shared[None, turn]
            self.joined.append((request, lo, lo + splits - 1))
            self.awaited.append(self.counter(o, columns, lo))


class Shared:
    """Fields of a first and of a last request, in shared memory: one of them, or all as a column."""

    def __init__(self) -> None:
        self.columns: list[list[int]] = [[], []]

    def __getitem__(self, at: tuple[int | None, int]) -> Any:
        field, turn = at
        return self.columns[turn] if field is None else self.columns[turn][field]


class Work(dict[int, int]):
    """Words in shared memory: reading one that was not written fails, and so do two lanes that write the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.again = {SCHEDULE[name] for name in ("FIRST", "START", "LAST", "END")}  # written over once

    def __setitem__(self, key: int, value: int) -> None:
        assert key not in self or key in self.again
        if key in self:
            self.again.discard(key)
        super().__setitem__(key, value)


class Lengths(list[int]):
    @property
    def shape(self) -> tuple[int]:
        return (len(self),)


class Registers(list[int]):
    @property
    def shape(self) -> int:
        return len(self)

    def fill(self, value: int) -> None:
        self[:] = [value] * len(self)


now = SimpleNamespace(cta=0, lane=0, part=None)
SEMAPHORES = SimpleNamespace(iterator=0, layout=None)
SCHEDULE = device_functions(
    DEVICE / "split_schedule.py",
    warp=True,
    cute=SimpleNamespace(make_rmem_tensor=lambda size, dtype: Registers([0] * size), size=len),
)
JOIN = device_functions(DEVICE / "split_join.py", ("slot_of", "_begins"), warp=False)
KERNEL = device_functions(
    ROOT / "generated" / "mla_decode_bf16_sm90a" / "kernel.py",
    ("requests", "span", "steps", "meet", "join", "part", "column_block", "counter"),
    warp=False,
    KEY_BLOCK=KEY_BLOCK,
    KEY_SHIFT=KEY_BLOCK.bit_length() - 1,
    cute=SimpleNamespace(
        arch=SimpleNamespace(
            block_idx=lambda: (0, now.cta, 0), barrier=lambda **_: None, barrier_arrive=lambda **_: None,
            lane_idx=lambda: now.lane, make_warp_uniform=int, sync_warp=lambda: None,
        ),
        crd2idx=lambda at, layout: at[1],  # of one row block
        make_rmem_tensor=lambda size, dtype: [0] * size,
        autovec_copy=lambda values, column: column.extend(values),
    ),
    FOUND=None,
    MET=None,
    HALF=512 // 2,
    split_schedule=SimpleNamespace(**{name: SCHEDULE[name] for name in SCHEDULE if name.isupper()}),
    split_join=SimpleNamespace(
        NONE=0,
        meet=lambda counter, splits: now.part.started.append((counter, splits)),
        publish=lambda counter, joins: now.part.published.append(counter),
    ),
)  # fmt: skip


Shares = Callable[[int, int, int, int], bool]


def run_ctas(
    lengths: Sequence[int],
    parts: int,
    unit: int,
    overhead: int,
    join_ratio: int,
    max_splits: int,
    rows: int = 64,
    shares: Shares | None = None,
    find: Callable[..., None] = SCHEDULE["find_part"],
    more: Sequence[object] = (),
) -> Iterator[Part]:
    for now.cta in range(parts):
        work = Work()
        run_warp(
            find,
            *(Lengths(lengths), now.cta, parts, unit * KEY_BLOCK, overhead, join_ratio, max_splits, rows, shares, work),
            *more,
        )
        part = Part(lengths, work, unit, work[SCHEDULE["COLUMN_BLOCKS"]] if shares else 1)
        now.part = part
        for now.lane in (0, 1, 2):  # those above have nothing either
            KERNEL["meet"](part, part, part.columns)
        for thread in (0, 1, 2):
            KERNEL["join"](part, part, part.columns, thread)
        yield part


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
    for request, length in enumerate(max(length, 0) for length in lengths):
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


@settings(max_examples=200)
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
def test_cut(lengths: list[int], parts: int, unit: int, overhead: int, join_ratio: int, max_splits: int) -> None:
    check_cut(lengths, parts, unit, overhead, join_ratio, max_splits)


@settings(max_examples=200)
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
    """What was the quicker on an H200, by docs/performance/mla-decode.md; with one part there is no second CTA."""
    work = Work()
    run_warp(SCHEDULE["find_part"], Lengths(lengths), 0, parts, KEY_BLOCK, 2, 100, 0, rows, shares_columns, work)
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
    given = (Lengths(lengths), number % parts, parts, unit * KEY_BLOCK, overhead, join_ratio, max_splits, 64, None)
    found, compared = Work(), Work()
    run_warp(SCHEDULE["find_part"], *given, found)
    run_warp(SCHEDULE["_find_among"], *given, compared, SCHEDULE["HELD" if unit == 2 or len(lengths) <= 32 else "FEW"])
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
