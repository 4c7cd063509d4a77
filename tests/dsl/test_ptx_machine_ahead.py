"""Operands that are loaded before the wait for the kernel in front, executed on the PTX machine."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import DYNAMIC, PINGPONG, PLAIN, resolve_text
from ptx_machine import Simulation, assert_passes, load_resolution, run
from ptx_machine.host import missing_tool

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
A, B = 0, 1  # numbers of the arguments
AHEAD = "tma: {b: {load_ahead: true}}\n"
ONE = "warpgroups: {schedule: cooperative, consumer: {count: 1}}\n"
SPLIT = "tiling: {tile: [64, 64, 64], cluster: [1, 1], split_k: 4, split_k_sum: ordered_parallel}\n"
SCALED = "cutegen: 1\nkernel: gemm\narch: sm_90a\nmainloop: (a * sa) @ (b * sb)\ntensors:\n"
BLOCKS = "  a: e4m3[m, k]\n  b: e4m3[n, k]\n  sa: f32[m, k/128]@m\n  sb: f32[n/128, k/128]\n  d: bf16[m, n]\n"
SPECS = {
    "multicast": PLAIN + AHEAD + "tiling: {tile: [64, 64, 64], cluster: [2, 1]}\n" + ONE,
    "transposed": PLAIN + AHEAD + PINGPONG + "tiling: {tile: [64, 32, 64], cluster: [1, 2], swap_ab: true}\n",
    "dynamic": PLAIN + AHEAD + DYNAMIC + "tiling: {tile: [64, 64, 64], cluster: [1, 1]}\n",
    "split": PLAIN + AHEAD + SPLIT + ONE,
    "scales of blocks": SCALED + BLOCKS + AHEAD + "tiling: {tile: [128, 64, 128], cluster: [1, 1]}\n",
}


@pytest.mark.parametrize("name", SPECS)
def test_one_operand(name: str) -> None:
    """Several tiles a CTA; more steps of k than the ring has slots, and fewer."""
    simulation = Simulation(sm_count=2, settled=(B,))
    subject = load_resolution(resolve_text(SPECS[name]), simulation)
    n, ks = (256, (256, 1152, 2304)) if "sa" in SPECS[name] else (200, (144, 1040, 2192))
    for simulation.seed, k in enumerate(ks):
        assert_passes(subject, {"m": 136, "n": n, "k": k}, seed=simulation.seed)


def test_both_operands() -> None:
    text = PLAIN + "tma: {a: {load_ahead: true}, b: {load_ahead: true}}\ntiling: {tile: [64, 64, 64]}\n"
    subject = load_resolution(resolve_text(text), Simulation(sm_count=2, settled=(A, B)))
    assert_passes(subject, {"m": 136, "n": 200, "k": 1040})


@pytest.mark.parametrize("settled", [(), (A,)])
def test_only_what_is_promised(settled: tuple[int, ...]) -> None:
    """It is b, and not a, that comes before the wait."""
    subject = load_resolution(resolve_text(SPECS["multicast"]), Simulation(sm_count=2, settled=settled))
    result = run(subject, {"m": 64, "n": 64, "k": 64})
    assert result.status == "raised"
    assert "before griddepcontrol.wait" in str(result.detail)
