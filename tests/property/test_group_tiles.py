"""Every tile of every group is somebody's, once, whatever labels, counts and offsets say.

The table and the order of tiles are those of the device source itself, run by device_source: a CTA of one warp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from device_source import device_functions, run_warp
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE = Path(__file__).parents[2] / "cutegen" / "device" / "gemm"
ANY_I32 = st.integers(-(2**31), 2**31 - 1)
Coordinate = tuple[int, int, int]


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


class Order:
    """TileScheduler, seen from one CTA of a cluster."""

    at = (0, 0)

    def __init__(self, tiles_m: int, tiles_n: int, batches: int, cluster: Any, along_m: bool, group: int) -> None:
        self.tiles_m, self.tiles_n, self.batches, self.cluster = tiles_m, tiles_n, batches, cluster
        self.along_m, self.group = along_m, group

    def tile(self, index: int) -> Coordinate:
        assert 0 <= index < self.tiles_m * self.tiles_n * self.batches
        m, n, batch = BANDS["tile"](self, index)
        return m + self.at[0], n + self.at[1], batch


class Words(dict[tuple[int, int], int]):
    """The table in shared memory: what was not written cannot be read."""

    def __init__(self, entries: int, columns: int) -> None:
        super().__init__()
        self.shape = (entries, columns)

    def __setitem__(self, key: tuple[int, int], value: int) -> None:
        assert all(0 <= i < n for i, n in zip(key, self.shape))
        super().__setitem__(key, value)


class Values(list[int]):
    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __getitem__(self, index: Any) -> Any:
        assert 0 <= index < len(self)
        return super().__getitem__(index)


ARCH = SimpleNamespace(popc=lambda x: x.bit_count(), block_in_cluster_idx=lambda: (0, 0, 0))
CUTE = SimpleNamespace(arch=ARCH, ceil_div=ceil_div)
BANDS = device_functions(DEVICE / "tile_scheduler.py", ["tile"], warp=False, cute=CUTE)
GROUPS = device_functions(DEVICE / "row_groups.py", warp=True, cute=CUTE, TileScheduler=Order)
SHAPES = st.tuples(st.sampled_from(((1, 1), (2, 1), (1, 2))), st.booleans(), st.integers(1, 4), st.booleans())


class Tiles:
    """All tiles that the CTAs of the grid visit."""

    def __init__(self, form: str, values: Sequence[int], groups: int, rows: int, step: int, across: int, how: Any):
        cluster, along_m, band, rows_along_m = how
        self.table = Words(ceil_div(groups, 32) * 32, 1 if form == "counts" else 3)
        limit = groups if form == "labels" else rows
        run_warp(GROUPS[f"tabulate_{form}"], self.table, Values(values), limit, step, 32)
        bound = (
            Order(0, across, 1, cluster, along_m, band) if rows_along_m else Order(across, 0, 1, cluster, along_m, band)
        )
        self.raster = SimpleNamespace(
            bound=bound, table=self.table, groups=groups, rows_along_m=rows_along_m, from_row_0=form == "labels"
        )
        self.cluster, self.rows_along_m = cluster, rows_along_m
        self.count = self.table[self.table.shape[0] - 1, 0] * across

    def visited(self) -> Iterator[tuple[int, int, int]]:
        """(tile along the rows, tile across, group)"""
        for x in range(self.cluster[0]):
            for y in range(self.cluster[1]):
                Order.at = (x, y)
                for index in range(self.count):
                    found: list[Coordinate] = []
                    run_warp(_keep, self.raster, index, found)
                    assert len(set(found)) == 1
                    m, n, group = found[0]
                    yield (m, n, group) if self.rows_along_m else (n, m, group)


def _keep(raster: Any, index: int, found: list[Coordinate]) -> Any:
    found.append((yield from GROUPS["tile"](raster, index)))


def expected(spans: Sequence[tuple[int, int]], across: int, cluster: tuple[int, int], rows_along_m: bool) -> list[Any]:
    """spans: (first, tiles) of each group along the rows, in clusters."""
    high, wide = cluster if rows_along_m else cluster[::-1]
    return sorted(
        (row, column, group)
        for group, (first, tiles) in enumerate(spans)
        for row in range(first * high, (first + tiles) * high)
        for column in range(across * wide)
    )


@settings(max_examples=40)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=70), st.integers(1, 3), SHAPES, st.randoms())
def test_labelled_groups_in_any_order_with_padding_between_them(
    tiles: list[int], across: int, how: Any, rng: Any
) -> None:
    step, labels, spans = 4, [], [(0, 0)] * len(tiles)
    for group in rng.sample(range(len(tiles)), len(tiles)):
        if rng.random() < 0.3:
            labels += [-1] * step * rng.randrange(3)
        spans[group] = (len(labels) // step, tiles[group])
        rows = max(tiles[group] * step - rng.randrange(step), 0)
        labels += [group] * rows + [rng.choice((-1, -7))] * (tiles[group] * step - rows)
    labels += [-1] * rng.randrange(2 * step)
    found = Tiles("labels", labels, len(tiles), 0, step, across, how)
    assert sorted(found.visited()) == expected(spans, across, found.cluster, found.rows_along_m)


@settings(max_examples=40)
@given(st.lists(st.integers(-3, 40), min_size=1, max_size=70), st.integers(1, 3), SHAPES)
def test_counts_are_clipped_to_the_room_of_a_group(counts: list[int], across: int, how: Any) -> None:
    room, step = 30, 8
    found = Tiles("counts", counts, len(counts), room, step, across, how)
    spans = [(0, ceil_div(min(max(count, 0), room), step)) for count in counts]
    assert sorted(found.visited()) == expected(spans, across, found.cluster, found.rows_along_m)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=70), st.integers(1, 3), SHAPES)
def test_offsets_give_each_group_its_rows(sizes: list[int], across: int, how: Any) -> None:
    step, ends = 8, [sum(sizes[: i + 1]) for i in range(len(sizes))]
    found = Tiles("offsets", ends, len(sizes), sum(sizes) + 5, step, across, how)
    spans = [(0, ceil_div(size, step)) for size in sizes]
    assert sorted(found.visited()) == expected(spans, across, found.cluster, found.rows_along_m)
    for group, (size, end) in enumerate(zip(sizes, ends)):
        assert (found.table[group, 1], found.table[group, 2]) == (end - size, end)


@settings(max_examples=40)
@given(st.lists(ANY_I32 | st.integers(-2, 40), min_size=1, max_size=40), st.integers(0, 30))
def test_no_offsets_lead_out_of_the_rows_there_are(ends: list[int], rows: int) -> None:
    found = Tiles("offsets", ends, len(ends), rows, 8, 1, ((1, 1), True, 8, True))
    for group in range(len(ends)):
        assert 0 <= found.table[group, 1] <= found.table[group, 2] <= rows


@settings(max_examples=40)
@given(st.lists(ANY_I32 | st.integers(-1, 4), min_size=1, max_size=60))
def test_no_labels_lead_to_tiles_or_groups_that_do_not_exist(labels: list[int]) -> None:
    groups, step = 4, 2
    found = Tiles("labels", labels, groups, 0, step, 1, ((1, 1), True, 8, True))
    for row, _, group in found.visited():
        assert 0 <= row < ceil_div(len(labels), step)
        assert 0 <= group < groups
