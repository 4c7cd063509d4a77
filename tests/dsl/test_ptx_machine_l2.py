"""Which operands leave L2 first, and how often their boxes are loaded: on the PTX machine."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import EDGES, resolve_text
from ptx_machine import Simulation, assert_passes, load_resolution
from ptx_machine.host import missing_tool

from cutegen.device.tma import EVICT_FIRST, EVICT_NORMAL

pytestmark = [
    pytest.mark.dsl,
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


def observe(text: str, name: str, shape: dict[str, int]) -> dict[str, tuple[set[int | None], int]]:
    """Of a and of b: the policies of the loads, None without, and how many loads the most loaded box has."""
    simulation = Simulation(sm_count=4, ready=(A, B))
    assert_passes(load_resolution(resolve_text(text, name=name), simulation), shape)
    assert simulation.machine is not None
    found = {}
    for operand, number in (("a", A), ("b", B)):
        loads = [f for (region, _), f in simulation.machine.boxes.items() if region.startswith(f"argument {number} ")]
        found[operand] = {policy or None for f in loads for policy in f}, max(map(len, loads))
    return found


@pytest.mark.parametrize(
    ("name", "m", "n", "streamed"),
    [
        ("loaded_ahead", 8, 520, "b"),
        ("loaded_ahead", 512, 520, "b"),
        ("loaded_ahead", 520, 520, ""),
        ("loaded_ahead", 520, 128, "a"),
        ("loaded_ahead", 136, 128, "ab"),
        ("loaded_ahead_transposed", 128, 520, "b"),
        ("loaded_ahead_transposed", 136, 520, ""),
        ("both_loaded_ahead_of_parts", 128, 200, "b"),
    ],
)
def test_what_few_tiles_read_leaves_l2_first(name: str, m: int, n: int, streamed: str) -> None:
    """And is loaded at most twice, which is why. The tiles: 128 x 64 in clusters of 2 x 1, then 32 of m in clusters
    of two, then 64 x 64."""
    found = observe(EDGES[name], name, {"m": m, "n": n, "k": 264})
    for operand in "ab":
        policies, loads = found[operand]
        assert policies == {EVICT_FIRST if operand in streamed else EVICT_NORMAL}, operand
        assert loads <= 2 or operand not in streamed, operand


def test_what_every_product_of_a_batch_reads_stays_in_l2() -> None:
    """One tile of m in each, but b is loaded for each; a is of one product, and has three tiles of n."""
    found = observe(BATCHED, "kernel", {"l": 3, "m": 40, "n": 136, "k": 72})
    assert found == {"a": ({EVICT_NORMAL}, 3), "b": ({None}, 3)}
