"""Epilogues of sm_100a that quantise with 8-bit scales of blocks, on the PTX machine, strict: right in several orders,
and what they store is what the next product reads. Shipped ones are among those of test_ptx_machine_sm100.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

import torch
from gemm_specs import resolve_text

from cutegen.machine import Simulation, load, load_resolution, run
from cutegen.machine.forms import uncalibrated
from cutegen.machine.host import missing_tool
from cutegen.runtime.four_bits import decode_e2m1
from cutegen.runtime.gemm.block_quantising import quantise_mx, quantise_nvfp4
from cutegen.runtime.gemm.row_groups import Deal
from cutegen.runtime.gemm.scale_packing import pack_scales, spread_packed

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SHIPPED = Path(__file__).parents[2] / "generated"
HEAD = "cutegen: 1\nkernel: gemm\narch: sm_100a\n"
BATCHED = """\
tensors:
  {a: "bf16[l, m, k]", b: "bf16[l, n, k]", w: "f32[n]", h: "bf16[l, m, n]", q: "e5m2[l, m, n]", s: "e8m0[l, m, n/32]"}
epilogue: {h: relu(acc + w), s: "ceil_pow2(max(max_abs(stored(h), n, 32), 1e-20) / 57344)", q: stored(h) / s}
tiling: {tile: [128, 128, 64], mma_ctas: 1}
"""
FOUR_BITS = """\
tensors: {a: "f16[m, k]", b: "f16[n, k]", c: "bf16[m, n]", q: "e2m1[m, n]", s: "e8m0[m, n/32]", r: "f32[m]"}
epilogue: {x: acc + c, s: "ceil_pow2(max(max_abs(x, n, 32), 1e-20) / 6)", q: x / s, r: "sum(x, n)"}
tiling: {tile: [128, 256, 64], cluster: [2, 2]}
"""
PAIRS = """\
tensors: {a: "e4m3[m, k]", b: "e4m3[n, k]", q: "e2m1[m, n/2]", s: "e4m3[m, n/32]"}
epilogue:
  x: silu(acc[:, 0::2]) * acc[:, 1::2]
  s: max(max_abs(x, n, 16) / 6, 0.002)
  q: x / stored(s)
tiling: {tile: [128, 128, 128], mma_ctas: 2}
"""
LABELS = """\
tensors: {a: "bf16[m, k]", b: "bf16[g, n, k]", group: "i32[m]", q: "e4m3[m, n]", s: "e8m0[m, n/32]"}
groups: {labels: group}
epilogue: {s: "ceil_pow2(max(max_abs(acc, n, 32), 1e-20) / 448)", q: acc / s}
tiling: {tile: [128, 128, 64]}
"""
COUNTS = """\
tensors:
  {a: "e4m3[g, m, k]", b: "e4m3[g, n, k]", sa: "e8m0[g, m, k/32]", sb: "e8m0[g, n, k/32]", counts: "i32[g]",
   q: "e4m3[g, m, n]", s: "e8m0[g, m, n/32]"}
mainloop: (a * sa) @ (b * sb)
groups: {counts: counts}
epilogue: {s: "ceil_pow2(max(max_abs(acc, n, 32), 1e-20) / 448)", q: acc / s}
tiling: {tile: [128, 128, 128], mma_ctas: 1}
"""
F32 = """\
tensors: {a: "bf16[m, k]", b: "bf16[n, k]", c: "bf16[m, n]", q: "e4m3[m, n]", s: "f32[m, ceil(n/32)]@m"}
epilogue: {x: acc + c, s: "max(max_abs(x, n, 32), 1e-4) / 448", q: x / s}
tiling: {tile: [128, 96, 64], mma_ctas: 1}
"""
FORMS = {
    "MXFP8, batched, next to the values": (BATCHED, {"l": 2, "m": 136, "n": 160, "k": 72}),
    "MXFP4, of a tile as well, and a reduction": (FOUR_BITS, {"m": 300, "n": 608, "k": 72}),
    "NVFP4, of pairs side by side": (PAIRS, {"m": 270, "n": 320, "k": 144}),
    "labels": (LABELS, {"m": 600, "n": 160, "k": 72, "g": 4}),
    "counts, MXFP8 operands": (COUNTS, {"m": 160, "n": 160, "k": 160, "g": 3}),
    "f32 values of 32 columns, of a tile as well": (F32, {"m": 270, "n": 304, "k": 72}),
}


@pytest.mark.parametrize(("text", "shape"), FORMS.values(), ids=FORMS)
def test_forms_are_right_in_two_orders(text: str, shape: dict[str, int]) -> None:
    simulation = Simulation(sm_count=4, strict=True)
    subject = load_resolution(resolve_text(HEAD + text), simulation)
    assert simulation.unknown() == []
    for simulation.seed in range(2):
        for deal in (None, Deal("random"), Deal("one")) if "g" in shape else (None,):
            result = run(subject, shape, seed=1, draw=deal)
            assert (result.status, result.detail) == ("pass", ())
    assert uncalibrated(simulation.forms()) == ()


def test_the_next_product_reads_what_is_stored_in_mxfp8() -> None:
    """q and its scales go from one kernel to the next as they are, over extents that no tile divides."""
    simulation = Simulation(sm_count=2, strict=True)
    first, second = (
        load(SHIPPED / name, simulation).plan for name in ("gemm_bf16_swiglu_quant_mxfp8_sm100a", "gemm_mxfp8_sm100a")
    )
    assert first
    assert second
    torch.manual_seed(0)
    a, b = torch.randn(136, 72, dtype=torch.bfloat16), torch.randn(320, 72, dtype=torch.bfloat16) / 8
    w, sw = quantise_mx(torch.randn(40, 160))
    q, scale = first.kernel_fn(a, b)
    d = second.kernel_fn(q, w, scale, pack_scales(sw))
    acc = a.double() @ b.double().T
    x = (torch.nn.functional.silu(acc[:, :160]) * acc[:, 160:]).bfloat16().double()
    held = q.double() * spread_packed(scale.double(), q.shape, 32)
    assert ((held - x).abs() <= x.abs() * 2.0**-4 + x.abs().amax() * 2.0**-16).all()
    exact = held @ (w.double() * sw.double().repeat_interleave(32, -1)).T
    assert ((d.double() - exact).abs() <= exact.abs() * 2.0**-8 + 1e-4 * exact.abs().mean()).all()


def test_the_next_product_reads_what_is_stored_in_nvfp4() -> None:
    simulation = Simulation(sm_count=2, strict=True)
    first, second = (load(SHIPPED / name, simulation).plan for name in ("gemm_nvfp4_quant_sm100a", "gemm_nvfp4_sm100a"))
    assert first
    assert second
    torch.manual_seed(0)
    (a, sa, whole_a), (b, sb, whole_b), (w, sw, whole_w) = (
        quantise_nvfp4(torch.randn(shape)) for shape in ((136, 160), (160, 160), (40, 160))
    )
    whole = 0.02  # of the output, which is some 12 at most
    q, scale = first.kernel_fn(a, b, pack_scales(sa), pack_scales(sb), whole_a * whole_b / whole)
    d = second.kernel_fn(q, w, scale, pack_scales(sw), whole * whole_w)
    held = decode_e2m1(q, torch.float64) * spread_packed(scale.double(), (136, 160), 16) * whole
    left, right, last = (
        decode_e2m1(v, torch.float64) * s.double().repeat_interleave(16, -1) * of
        for v, s, of in ((a, sa, whole_a), (b, sb, whole_b), (w, sw, whole_w))
    )
    x = left @ right.T
    largest = x.abs().unflatten(-1, (-1, 16)).amax(-1).repeat_interleave(16, -1)
    assert ((held - x).abs() <= largest / 6 * 1.125 + 1e-12).all()  # half of the step below 6, and an ulp of the scale
    exact = held @ last.T
    assert ((d.double() - exact).abs() <= exact.abs() * 2.0**-8 + 1e-4 * exact.abs().mean()).all()
