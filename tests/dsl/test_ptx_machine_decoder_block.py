"""The decoder layer of examples/decoder_block in fp8, each of its kernels compiled and executed on the PTX machine:
what one stores, with the strides of its scales, the next one reads."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

import decoder_block  # noqa: F401
import torch
from layer import Attention, GeneratedLayer, Sizes, TorchLayer, error, load_plans, make_weights, widen
from measure import MOST_ERROR, Problem

from cutegen.machine import Simulation
from cutegen.machine.host import missing_tool
from cutegen.machine.package import simulate

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SMALL = Sizes(hidden=128, heads=2, kv_heads=1, head_dim=64, feed_forward=128)


def executed(plan: Any) -> Any:
    """The plan on the machine, its weights ready before the wait for the kernel in front, as the specs promise."""
    simulation = Simulation(sm_count=2)
    simulation.ready = [i for i, argument in enumerate(plan.inputs) if argument.name in ("b", "w")]
    return simulate(plan, simulation)


def test_a_layer_of_compiled_kernels() -> None:
    torch.manual_seed(0)
    kernels = {role: executed(plan).kernel_fn for role, plan in load_plans("e4m3").items()}
    weights, held = make_weights(SMALL, "e4m3", "cpu"), Problem("e4m3", 3, 20).make_cache(SMALL, "cpu")
    attention, x = Attention(SMALL, 21, "cpu"), torch.randn(3, SMALL.hidden).bfloat16()
    wide = held._replace(keys=held.keys.float(), values=held.values.float())
    reference = TorchLayer(widen(weights), attention)(x.float(), wide)
    found = GeneratedLayer(weights, attention, kernels)(x, held)
    assert 0 < error(found, reference, x) <= MOST_ERROR["e4m3"]


def test_what_a_compiled_call_refuses_is_not_executed() -> None:
    """Scales of 3 rows without a gap behind them, which TMA cannot read."""
    qkv = executed(load_plans("e4m3")["qkv"])
    a, sa, b, sb = qkv.prepare_inputs(m=3, n=128, k=256)
    with pytest.raises(ValueError, match=r"sa: stride\(1\) is 3 elements = 12 bytes; the kernel needs multiples of 16"):
        qkv.kernel_fn(a, sa.t().contiguous().t(), b, sb)
