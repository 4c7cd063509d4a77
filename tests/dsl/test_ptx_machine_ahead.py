"""Operands that are loaded before the wait for the kernel in front, executed on the PTX machine."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import AHEAD, EDGES, resolve_text

from cutegen.machine import Simulation, assert_passes, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.run.subject import Subject

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
A, B = 0, 1  # numbers of the arguments; those of an index come between
BLOCKS = """\
cutegen: 1
kernel: gemm
arch: sm_90a
mainloop: (a * sa) @ (b * sb)
tensors:
  a: e4m3[m, k]
  b: e4m3[n, k]
  sa: f32[m, k/128]@m
  sb: f32[n/128, k/128]
  d: bf16[m, n]
tiling: {tile: [128, 64, 128], cluster: [1, 1]}
"""


def load(name: str, *ready: int) -> tuple[Subject, Simulation]:
    simulation = Simulation(sm_count=2, ready=ready)
    resolution = resolve_text(EDGES[name], name=name)  # under its name: test_register_limits.py builds the same kernel
    return load_resolution(resolution, simulation), simulation


@pytest.mark.parametrize("name", [name for name in EDGES if "loaded_ahead" in name])
def test_loaded_ahead(name: str) -> None:
    """Several tiles a CTA; fewer steps of k than the ring has slots, and more."""
    ready = (A, B) if name.startswith("both") else (B + 1,) if name.startswith("gathered") else (B,)
    subject, simulation = load(name, *ready)
    for simulation.seed, k in enumerate((144, 1040)):
        shape = {"m": 136, "n": 104, "k": k, "t": 90}
        assert_passes(subject, {dim: shape[dim] for dim in subject.dims}, seed=simulation.seed)


def test_the_scales_of_what_is_loaded_ahead_come_after_the_wait() -> None:
    subject = load_resolution(resolve_text(BLOCKS + AHEAD), Simulation(sm_count=2, ready=(B,)))
    assert_passes(subject, {"m": 136, "n": 256, "k": 1152})


@pytest.mark.parametrize("ready", [(), (A,)])
def test_only_what_is_promised(ready: tuple[int, ...]) -> None:
    """It is b, and not a, that comes before the wait."""
    subject, _ = load("loaded_ahead", *ready)
    result = run(subject, {"m": 64, "n": 64, "k": 64})
    assert result.status == "raised"
    assert f"before griddepcontrol.wait: argument {B} " in str(result.detail)
