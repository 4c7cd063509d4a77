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
    """The plan on the machine, its weights ready before the wait for the kernel in front, as the specs promise. It
    refuses what a compiled call does, strides too."""
    simulation = Simulation(sm_count=2)
    simulation.ready = [i for i, argument in enumerate(plan.inputs) if argument.name in ("b", "w")]
    simulated = simulate(plan, simulation)

    def call(*inputs: Any) -> Any:
        simulated._refuse(simulated.inputs, inputs)
        return simulated.kernel_fn(*inputs)

    return call


def test_a_layer_of_compiled_kernels() -> None:
    torch.manual_seed(0)
    kernels = {role: executed(plan) for role, plan in load_plans("e4m3").items()}
    weights, held = make_weights(SMALL, "e4m3", "cpu"), Problem("e4m3", 3, 20).make_cache(SMALL, "cpu")
    attention, x = Attention(SMALL, 21, "cpu"), torch.randn(3, SMALL.hidden).bfloat16()
    wide = held._replace(keys=held.keys.float(), values=held.values.float())
    reference = TorchLayer(widen(weights), attention)(x.float(), wide)
    found = GeneratedLayer(weights, attention, kernels)(x, held)
    assert 0 < error(found, reference, x) <= MOST_ERROR["e4m3"]
