"""Values of blocks of columns, executed on the PTX machine: quantised outputs equal the two-step result bit for bit."""

from __future__ import annotations

import importlib.util
from typing import Any

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
# Each stores x, what is quantised, beside its quantised form.
EXACT = {
    "f32": """\
  a: bf16[m, k]
  b: bf16[n, k]
  x: f32[m, n]
  q: e4m3[m, n]
  s: f32[m, ceil(n/128)]@m
epilogue:
  x: acc
  s: max(max_abs(x, n, 128), 1e-4) / 448
  q: x / s
tiling: {tile: [128, 128, 64]}
""",
    "swiglu in bf16": """\
  a: bf16[m, k]
  b: bf16[n, k]
  x: bf16[m, n/2]
  q: e4m3[m, n/2]
  s: f32[m, ceil(n/256)]
epilogue:
  x: silu(acc[:, 0::2]) * acc[:, 1::2]
  s: max(max_abs(stored(x), n, 128), 1e-4) / 448
  q: stored(x) / s
""",
    "transposed": """\
  a: bf16[m, k]
  b: bf16[n, k]
  x: f32[m, n]
  q: e4m3[m, n]
  s: f32[m, ceil(n/128)]@m
epilogue:
  x: acc
  s: max(max_abs(x, n, 128), 1e-4) / 448
  q: x / s
tiling: {swap_ab: true, tile: [256, 32, 64]}
""",
    "UE8M0 scales, inverse": """\
  a: bf16[m, k]
  b: bf16[n, k]
  x: f16[m, n]
  q: e5m2[m, n]
  s: f32[m, ceil(n/64)]
epilogue:
  x: acc
  s: ceil_pow2(max_abs(stored(x), n, 64) / 57344)
  q: stored(x) * (1 / s)
tiling: {tile: [64, 192, 64]}
warpgroups: {schedule: pingpong}
""",
}
OTHERS = {
    "tiles before, a row's vector, batch, other reductions": """\
  a: bf16[l, m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  bias: f32[n]
  row: f32[l, m]
  alpha: f32[]
  h: bf16[l, m, n]
  q: e5m2[n, l, m]@m
  amax: f32[l, m, n/64]
  s: f32[n/64, m, l]@m
  low: f32[l, m]
epilogue:
  h: acc * alpha + c + bias
  x: stored(h)
  amax: max_abs(x, n, 64)
  s: amax * row / 57344 + 1e-6
  q: x / (2 * s) + 0.0001 * sum(x, n, 64)
  low: max(h / s, n)
warpgroups: {schedule: pingpong}
tiling: {tile: [64, 64, 64], cluster: [1, 1]}
""",
    "tiles after, split k": """\
  a: bf16[m, k]
  b: bf16[n, k]
  c: bf16[m, n]
  d: bf16[m, n]
epilogue:
  d: acc / (1 + max_abs(acc, n, 32)) + c
tiling: {tile: [128, 160, 64], split_k: 2}
""",
    "i32 accumulators stay": """\
  a: i8[m, k]
  b: i8[n, k]
  sa: f32[m]
  sb: f32[n]
  q: e4m3[m, n]
  s: f32[m, n/96]@m
mainloop: (a * sa) @ (b * sb)
epilogue:
  x: gelu_tanh(acc)
  s: max(max_abs(x, n, 96), 1e-4) / 448
  q: x / s
tiling: {tile: [128, 192, 128]}
""",
    "grouped rows": """\
  a: bf16[m, k]
  ends: i32[g]
  b: bf16[g, n, k]
  q: e4m3[m, n/2]
  s: f32[m, n/256]@m
epilogue:
  x: round_bf16(silu(acc[:, :n/2]) * acc[:, n/2:])
  s: max(max_abs(x, n, 128), 1e-4) / 448
  q: x / s
groups: {offsets: ends}
""",
}


def two_steps(x: Any, block: int, op: str, dtype: Any) -> tuple[Any, Any]:
    """What separate kernels would make of a stored x: q and s, in f32 arithmetic."""
    import torch

    n = x.shape[1]
    blocks = torch.nn.functional.pad(x.float(), (0, -n % block)).unflatten(1, (-1, block))
    largest = blocks.abs().amax(2)
    top = torch.finfo(dtype).max
    limit = torch.full_like(largest, top)
    if op == "inverse":
        s = torch.exp2(torch.ceil(torch.log2((largest / limit).double()))).float()  # exact in f64
        q = blocks * (torch.ones_like(s) / s).unsqueeze(2)
    else:
        s = largest.clamp(min=1e-4) / limit
        q = blocks / s.unsqueeze(2)
    return q.clamp(-top, top).to(dtype).flatten(1)[:, :n], s


@pytest.mark.parametrize(
    ("name", "block", "op"),
    [
        ("f32", 128, ""),
        ("transposed", 128, ""),
        ("swiglu in bf16", 128, ""),
        ("UE8M0 scales, inverse", 64, "inverse"),
    ],
)
def test_quantised_outputs_are_those_of_two_steps(name: str, block: int, op: str) -> None:
    import torch

    torch.manual_seed(5)
    plan = load_resolution(resolve_text(HEAD + EXACT[name]), Simulation(sm_count=2)).plan
    assert plan
    a, b = plan.prepare_inputs(m=100, n=352, k=40)
    a[3] = 0.0  # a row of zeros
    a[4] *= 1e-3
    x, q, s = plan.kernel_fn(a, b)
    expected, scales = two_steps(x, block, op, q.dtype)
    if op != "inverse":  # there a row of zeros has the scale 0, and NaN as its results, as in two steps
        assert s[3].eq(torch.tensor(1e-4) / 448).all()
    torch.testing.assert_close(s, scales, rtol=0, atol=0, check_stride=False)
    torch.testing.assert_close(q.float(), expected.float(), rtol=0, atol=0, equal_nan=True)
    largest = torch.finfo(q.dtype).max
    assert q.float().nan_to_num().abs().amax() >= largest / 2  # the scales use the range


@pytest.mark.parametrize("name", OTHERS)
def test_values_of_blocks(name: str) -> None:
    subject = load_resolution(resolve_text(HEAD + OTHERS[name]), Simulation(sm_count=2))
    grouped = "g" in subject.dims
    shape = {"m": 80, "n": 512 if grouped else 384, "k": 48, "l": 2, "g": 3}
    shape = {dim: extent for dim, extent in shape.items() if dim in subject.dims}
    assert_passes(subject, shape, draw=Deal("random") if grouped else None)
