"""Reductions over columns, rows and both, executed on the PTX machine: in batches, groups, transposed, k split."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text

from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load_resolution
from cutegen.machine.host import missing_tool
from cutegen.runtime.gemm.row_groups import Deal

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors:\n"
ALL_KINDS = """\
  a: bf16[m, k]
  b: bf16[n, k]
  amax: f32[]
  by_row: f32[m]
  by_column: f32[n]
  largest: f32[n]
  total: f32[]
  d: bf16[m, n]
epilogue:
  d: acc
  by_row: sum(acc, n)
  by_column: sum(square(acc) + 1, m)
  largest: max(acc, m)
  amax: max_abs(acc, m, n)
  total: sum(square(acc) + 1, n, m)
"""
GROUPS = """\
  a: bf16[m, k]
  ends: i32[g]
  b: bf16[g, n, k]
  d: bf16[m, n]
  r: f32[m]
  s: f32[m]
groups: {offsets: ends}
epilogue:
  d: acc
  r: max_abs(acc, n)
  s: sum(square(acc), n)
"""
SPECS = {
    # 16 columns of an epilogue tile: lanes hold fewer columns than they exchange.
    "pingpong": (ALL_KINDS + "warpgroups: {schedule: pingpong}\ntiling: {tile: [64, 48, 64], cluster: [1, 2]}\n", 3),
    "transposed": (ALL_KINDS + "tiling: {swap_ab: true, tile: [128, 32, 64], cluster: [1, 2]}\n", 2),
    "batch, pairs, split k": (
        """\
  a: bf16[l, m, k]
  b: bf16[n, k]
  amax: f32[]
  each: f32[l]
  by_row: f32[l, m]
  by_column: f32[n/2, l]
  d: bf16[l, m, n/2]
epilogue:
  d: acc[..., 0::2] * acc[..., 1::2]
  by_row: max(d, n)
  by_column: sum(square(d), m)
  amax: max_abs(d, l, m, n)
  each: sum(square(d), m, n)
tiling: {tile: [128, 96, 64], split_k: 2}
scheduler: dynamic_persistent
""",
        2,
    ),
    "groups whose ends are ends of tiles": (GROUPS + "tiling: {tile: [128, 64, 64], cluster: [2, 1]}\n", 2),
    "transposed groups": (GROUPS + "tiling: {swap_ab: true, tile: [128, 64, 64], cluster: [1, 1]}\n", 2),
}
SHAPE = {"m": 136, "n": 144, "k": 136, "l": 2, "g": 3}


@pytest.mark.parametrize("name", SPECS)
def test_reductions(name: str) -> None:
    text, sms = SPECS[name]
    subject = load_resolution(resolve_text(HEAD + text), Simulation(sm_count=sms))
    shape = {dim: extent for dim, extent in SHAPE.items() if dim in subject.dims}
    if "g" in shape:
        shape["m"] = 384
    assert_passes(subject, shape, draw=Deal("even") if "g" in shape else None)


def test_more_tiles_than_a_thread_has_loads_on_their_way() -> None:
    from cutegen.device.reduction import LOADS  # imports the CuTe DSL

    text = HEAD + ALL_KINDS + "tiling: {tile: [64, 16, 64], cluster: [1, 1]}\n"
    shape = {"m": 72, "n": 16 * (LOADS + 3), "k": 8}
    assert_passes(load_resolution(resolve_text(text), Simulation(sm_count=4)), shape)


def test_totals_have_equal_bits_in_any_order_of_events() -> None:
    simulation = Simulation(sm_count=4)
    subject = load_resolution(resolve_text(HEAD + SPECS["transposed"][0]), simulation)
    assert_equal_bits(subject, simulation, m=72, n=264, k=72)
