"""What the load warp asks TMA for: which boxes, and which of them leave L2 first. On the PTX machine."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import CONSTANTS, COUNTS, EDGES, PLAIN, resolve_text

from cutegen.device.tma import EVICT_FIRST, EVICT_NORMAL
from cutegen.machine import Simulation, assert_passes, load_resolution
from cutegen.machine.host import missing_tool
from cutegen.run.subject import Subject

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
A, B = 0, 1  # numbers of the arguments
BATCHED = """\
cutegen: 1
kernel: gemm
arch: sm_90a
tensors:
  a: bf16[l, m, k]
  b: bf16[n, k]
  d: bf16[l, m, n]
tiling: {tile: [64, 64, 64], cluster: [1, 1]}
"""
OWN = {
    "narrow_swizzle": PLAIN + "tiling: {tile: [256, 32, 32], cluster: [1, 2]}\n",
    "transposed_in_clusters": PLAIN + "tiling: {swap_ab: true, tile: [128, 160, 64], cluster: [2, 2]}\n",
}
# Clusters whose CTAs do not share the operand that comes in pieces: as written, and as 20 rows are not whole slices.
UNSHARED = {
    "written": PLAIN + "tiling: {tile: [128, 64, 64], cluster: [1, 2]}\ntma: {a: {multicast: 1}}\n",
    "slices": PLAIN + "tiling: {tile: [128, 80, 64], swap_ab: true, cluster: [4, 1]}\n",
}
Boxes = dict[tuple[tuple[int, ...], tuple[int, ...]], list[int | None]]


@functools.lru_cache(maxsize=1)
def load(text: str, name: str) -> tuple[Subject, Simulation]:
    simulation = Simulation(sm_count=4, ready=(A, B))
    return load_resolution(resolve_text(text, name=name), simulation), simulation


def observe(text: str, name: str, shape: dict[str, int]) -> dict[str, Boxes]:
    """Of a and of b: for coordinates and extents of each box, from k on, the policies of its loads, None without."""
    subject, simulation = load(text, name)
    assert_passes(subject, shape)
    assert simulation.machine is not None
    boxes = simulation.machine.boxes.items()
    return {
        operand: {
            (start, extents): [p or None for p in policies]
            for (region, start, extents), policies in boxes
            if region.startswith(f"argument {number} ")
        }
        for operand, number in (("a", A), ("b", B))
    }


def summarise(boxes: Boxes) -> tuple[set[int | None], int]:
    """The policies, and how many loads the most loaded box has."""
    return {policy for found in boxes.values() for policy in found}, max(map(len, boxes.values()))


@pytest.mark.parametrize(
    ("name", "m", "n", "streamed"),
    [
        ("loaded_ahead", 512, 264, "b"),
        ("loaded_ahead", 520, 264, ""),
        ("loaded_ahead", 520, 128, "a"),
        ("loaded_ahead", 136, 128, "ab"),
        ("loaded_ahead_transposed", 128, 264, "b"),
        ("loaded_ahead_transposed", 136, 264, ""),
        ("both_loaded_ahead_of_parts", 128, 200, "b"),
    ],
)
def test_what_few_tiles_read_leaves_l2_first(name: str, m: int, n: int, streamed: str) -> None:
    """And is loaded at most twice, which is why. The tiles: 128 x 64 in clusters of 2 x 1, then 32 of m in clusters
    of two, then 64 x 64."""
    found = observe(EDGES[name], name, {"m": m, "n": n, "k": 136})
    for operand in "ab":
        policies, loads = summarise(found[operand])
        assert policies == {EVICT_FIRST if operand in streamed else EVICT_NORMAL}, operand
        assert loads <= 2 or operand not in streamed, operand


def test_two_readers_far_apart_find_it_in_l2() -> None:
    """In bands of 32 tiles along n, the second tile of m comes 32 tiles after the first: b is read twice."""
    text = PLAIN + "tiling: {tile: [64, 64, 64], cluster: [1, 1], raster: {order: along_n, group: 32}}\n"
    policies, loads = summarise(observe(text, "whole", {"m": 128, "n": 136, "k": 72})["b"])
    assert (policies, loads) == ({EVICT_NORMAL}, 2)


def test_what_every_product_of_a_batch_reads_stays_in_l2() -> None:
    """One tile of m in each, but b is loaded for each; a is of one product, and has three tiles of n."""
    found = observe(BATCHED, "batched", {"l": 3, "m": 40, "n": 136, "k": 72})
    assert summarise(found["a"]) == ({EVICT_NORMAL}, 3)
    assert summarise(found["b"]) == ({None}, 3)


@pytest.mark.parametrize(
    ("name", "share", "piece", "half", "rows"),
    [
        ("loaded_ahead", 128, 32, 16, (8, 100, 136)),  # by clusters of two tiles
        ("constant_columns_of_a_tile", 64, 32, 16, (40, 72, 104)),  # a tile for two CTAs, by multicast
        ("both_loaded_ahead_of_parts", 64, 32, 16, (8, 40, 72)),
        ("four_ctas_that_round_to_f16", 64, 32, 16, (8, 328)),
        ("promotion_of_two_parts", 128, 32, 16, (8, 136, 184)),  # of 8 bits
        ("constant_rows_of_a_cluster", 128, 32, 16, (64,)),  # a tile of the cluster has no row
        ("narrow_swizzle", 128, 64, 32, (8, 200, 264)),
        ("transposed_in_clusters", 80, 40, 40, (8, 88, 168)),  # 20 rows would begin amid a swizzle's period
    ],
)
def test_rows_that_do_not_exist_are_not_loaded(
    name: str, share: int, piece: int, half: int, rows: Sequence[int]
) -> None:
    """All half pieces with a row of the tensor are, and no other; what a CTA has all pieces of comes at once, halves
    only where a piece would be too much. share: rows of a tile that a CTA loads."""
    for m in rows:
        boxes = observe({**EDGES, **CONSTANTS, **OWN}[name], name, {"m": m, "n": 96, "k": 80})["a"]
        end = -(-m // half) * half
        assert {row for (_, low), (_, count) in boxes for row in range(low, low + count)} == set(range(end))
        for (_, low), (_, count) in boxes:
            whole = low // share * share + share <= end
            assert count == (share if whole else piece if low // piece * piece + piece <= end else half)


@pytest.mark.parametrize(
    ("text", "tile", "row"),
    [
        (PLAIN.replace("a: bf16[m, k]", "a: bf16[k, m]"), [128, 64, 64], 0),
        (PLAIN, [64, 64, 32], 1),
        (COUNTS, [128, 64, 64], 1),
    ],
    ids=["rows_side_by_side", "pieces_too_small_to_be_worth_a_copy", "rows_of_groups"],
)
def test_tiles_that_are_always_loaded_whole(text: str, tile: list[int], row: int) -> None:
    """row: which coordinate of a box is that of its rows."""
    text += f"tiling: {{tile: {tile}, cluster: [1, 1]}}\n"
    text += "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
    boxes = observe(text, "whole", {"m": 72, "n": 64, "k": 64, "g": 1})["a"]
    rows = {r for start, extents in boxes for r in range(start[row], start[row] + extents[row])}
    assert rows == set(range(128))


@pytest.mark.parametrize("name", UNSHARED)
def test_each_cta_of_a_cluster_loads_pieces_of_its_own(name: str) -> None:
    """Each has all rows of its tile to load, whatever its place in the cluster."""
    subject, _ = load(UNSHARED[name], f"unshared_{name}")
    for m in (70, 200, 256):
        assert_passes(subject, {"m": m, "n": 520, "k": 136})
