"""swap_ab with what is made of several columns, executed on the PTX machine: columns of the product are rows there."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text

from cutegen.machine import Simulation, assert_passes, load_resolution
from cutegen.machine.host import missing_tool
from cutegen.runtime.gemm.row_groups import Deal

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
HEAD = "cutegen: 1\nkernel: gemm\narch: sm_90a\ntensors:\n"
SPECS = {
    "halves, tiles, whole outputs, reductions": """\
  a: bf16[l, m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  s: f32[n/2]
  r: bf16[l, m, n/2]
  h: f32[l, m, n]
  rms: f32[l, m]
  col: f32[l, n/2]
  d: bf16[l, m, n/2]
epilogue:
  h: acc + c
  d: silu(h[..., :n/2]) * h[..., n/2:] * s + r
  rms: sum(square(d), n)
  col: max(d, m)
tiling: {tile: [256, 24, 64], swap_ab: true, cluster: [2, 2]}
""",
    "neighbours, pingpong": """\
  a: bf16[m, k]
  b: bf16[n, k]
  bias: f32[n]
  d: bf16[m, n/2]
epilogue:
  x: acc + bias
  d: silu(x[:, 0::2]) * x[:, 1::2]
tiling: {tile: [128, 8, 64], swap_ab: true, cluster: [2, 1]}
warpgroups: {schedule: pingpong}
""",
    "n-major halves in 8 bits, split k": """\
  a: bf16[k, m]
  b: bf16[k, n]
  d: e4m3[m, n/2]
epilogue: {d: "relu(acc[:, :n/2]) * acc[:, n/2:]"}
tiling: {tile: [256, 32, 64], swap_ab: true, cluster: [1, 1], split_k: 2}
""",
    "groups": """\
  a: bf16[m, k]
  ends: i32[g]
  b: bf16[g, n, k]
  bias: f32[g, n]
  d: bf16[m, n/2]
groups: {offsets: ends}
epilogue:
  x: acc + bias
  d: silu(x[..., 0::2]) * x[..., 1::2]
tiling: {tile: [128, 32, 64], swap_ab: true, cluster: [1, 1]}
warpgroups: {consumer: {count: 1}}
""",
    "quantised groups": """\
  a: bf16[m, k]
  ends: i32[g]
  b: bf16[g, n, k]
  q: e4m3[m, n/2]
  s: f32[m, ceil(n/256)]@m
  r: f32[m]
groups: {offsets: ends}
epilogue:
  x: round_bf16(silu(acc[:, :n/2]) * acc[:, n/2:])
  s: max(max_abs(x, n, 128), 1e-4) / 448
  q: x / s
  r: max(x, n)
tiling: {tile: [256, 16, 64], swap_ab: true, cluster: [1, 1]}
""",
    "scales of blocks, neighbours, quantised": """\
  a: e4m3[m, k]
  b: e4m3[n, k]
  sa: f32[m, ceil(k/128)]@m
  sb: f32[ceil(n/128), ceil(k/128)]
  q: e4m3[m, n/2]
  s: f32[m, ceil(n/256)]@m
mainloop: (a * sa) @ (b * sb)
epilogue:
  x: silu(acc[:, 0::2]) * acc[:, 1::2]
  s: max(max_abs(x, n, 128), 1e-4) / 448
  q: x / s
tiling: {tile: [256, 32, 128], swap_ab: true, cluster: [1, 1]}
""",
    "values of blocks with tiles, vectors and batches": """\
  a: bf16[l, m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  bias: f32[n]
  row: f32[l, m]
  alpha: f32[]
  h: bf16[l, m, n]
  q: e5m2[n, l, m]@m
  amax: f32[l, m, n/32]
  s: f32[n/32, m, l]@m
  low: f32[l, m]
epilogue:
  h: acc * alpha + c + bias
  x: stored(h)
  amax: max_abs(x, n, 32)
  s: amax * row / 57344 + 1e-6
  q: x / (2 * s) + 0.0001 * sum(x, n, 32)
  low: max(h / s, n)
warpgroups: {schedule: pingpong}
tiling: {tile: [64, 32, 64], swap_ab: true, cluster: [1, 1]}
""",
}
SHAPE = {"m": 48, "n": 288, "k": 144, "l": 2, "g": 3}


@pytest.mark.parametrize("name", SPECS)
def test_transposed(name: str) -> None:
    subject = load_resolution(resolve_text(HEAD + SPECS[name]), Simulation(sm_count=4))
    shape = {dim: extent for dim, extent in SHAPE.items() if dim in subject.dims}
    assert_passes(subject, shape, draw=Deal("random") if "g" in shape else None)
