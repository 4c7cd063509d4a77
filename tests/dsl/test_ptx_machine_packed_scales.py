"""Block-scaled products of sm_100a on the PTX machine, strict: right in several orders, and breaks that are reported.
Shipped ones are among those of test_ptx_machine_sm100.py."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import resolve_text

from cutegen.machine import Simulation, load, load_resolution, run
from cutegen.machine.forms import uncalibrated
from cutegen.machine.host import missing_tool
from cutegen.runtime.four_bits import decode_e2m1
from cutegen.runtime.gemm.block_quantising import quantise_mx, quantise_nvfp4
from cutegen.runtime.gemm.scale_packing import pack_scales

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
SHIPPED = Path(__file__).parents[2] / "generated" / "gemm_mxfp8_sm100a"
SHAPE = {"m": 264, "n": 272, "k": 928}  # ragged; more k tiles than slots, and more tiles than pairs
TENSORS = """\
cutegen: 1
kernel: gemm
arch: sm_100a
tensors:
  a: {a}
  b: {b}
  sa: {sa}
  sb: {sb}
  s: f32[m]
  alpha: f32
  c: bf16[m, n]
  d: {d}
mainloop: (a * sa * s) @ (b * sb)
epilogue: {{d: 'gelu_tanh(alpha * acc) + c'}}
"""
PLAIN = {"a": "e4m3[m, k]", "b": "e4m3[n, k]", "sa": "e8m0[m, k/32]", "sb": "e8m0[n, k/32]", "d": "bf16[m, n]"}
BATCHED = {
    "a": "e5m2[l, m, k]",
    "b": "e5m2[n, k]",
    "sa": "e8m0[l, m, k/32]",
    "sb": "e8m0[n, k/32]",
    "d": "f32[l, m, n]",
}
NVFP4 = {
    "a": "e2m1[l, m, k]",
    "b": "e2m1[l, n, k]",
    "sa": "e4m3[l, m, k/16]",
    "sb": "e4m3[l, n, k/16]",
    "d": "f16[l, m, n]",
}
MXFP4 = {"a": "e2m1[m, k]", "b": "e2m1[k, n]@k", "sa": "e8m0[m, k/32]", "sb": "e8m0[n, k/32]", "d": "bf16[m, n]"}
TO_GATED = ("gelu_tanh(alpha * acc) + c", "silu(alpha * acc[:, :, :n/2]) * acc[:, :, n/2:]")
FORMS = {
    "one CTA, two sums": (PLAIN, 272, "tiling: {tile: [128, 128, 128], mma_ctas: 1}\n"),
    "e5m2, batched, two chunks along k": (BATCHED, 136, "tiling: {tile: [128, 128, 256]}\n"),
    "2 pairs along n": (PLAIN, 272, "tiling: {tile: [128, 256, 128], cluster: [2, 2]}\n"),
    "2 pairs along m": (PLAIN, 136, "tiling: {tile: [128, 128, 128], cluster: [4, 1]}\n"),
    "NVFP4, one CTA, two sums, batched": (NVFP4, 136, "tiling: {tile: [128, 128, 256], mma_ctas: 1}\n"),
    "NVFP4, gated": (
        NVFP4 | {"d": "bf16[l, m, n/2]"},
        512,
        "tiling: {tile: [128, 256, 256], mma_ctas: 1}\n",
    ),
    "half a chunk of columns": (PLAIN, 328, "tiling: {tile: [128, 64, 128], mma_ctas: 1}\n"),
    "NVFP4, a chunk and a half, pairs, batched": (
        NVFP4,
        592,
        "tiling: {tile: [128, 192, 256], cluster: [2, 2]}\n",
    ),
    "MXFP4": (MXFP4, 136, "tiling: {tile: [128, 128, 256], cluster: [2, 2]}\n"),
}


@pytest.mark.parametrize(("tensors", "n", "more"), FORMS.values(), ids=FORMS)
def test_forms_are_right_in_two_orders(tensors: dict[str, str], n: int, more: str) -> None:
    simulation = Simulation(sm_count=4, strict=True)
    text = TENSORS.format(**tensors)
    if "n/2]" in tensors["d"]:
        text = text.replace(*TO_GATED).replace("  c: bf16[m, n]\n", "")
    subject = load_resolution(resolve_text(text + more), simulation)
    assert simulation.unknown() == []
    for simulation.seed in range(2):
        result = run(subject, {"l": 2, "m": 272, "n": n, "k": 288}, seed=1)
        assert (result.status, result.detail) == ("pass", ())
    assert uncalibrated(simulation.forms()) == ()


def test_every_second_tile_of_half_a_chunk_begins_behind_a_half() -> None:
    """Without that it multiplies by the scales of the columns before it."""
    text = TENSORS.format(**PLAIN) + "tiling: {tile: [128, 64, 128], mma_ctas: 1}\n"
    shift = r"(and\.b32\s+(%r\d+), %r\d+, 2147483646;\s+sub\.s32\s+(%r\d+), %r\d+, \2;\s+)shl\.b32\s+(%r\d+), \3, 1;"
    simulation = Simulation(sm_count=4, strict=True, mutate=replacing(shift, r"\1mov.b32 \4, 0;"))
    result = run(load_resolution(resolve_text(text), simulation), {"m": 136, "n": 144, "k": 160}, seed=1)
    assert result.status == "wrong"
    assert "n 64..127 of 144" in result.detail[0]


@pytest.mark.parametrize(("kind", "error"), [("mxfp8", 0.05), ("nvfp4", 0.15)])
def test_quantised_values_are_multiplied(kind: str, error: float) -> None:
    """What the functions for callers make of f32 matrices is what the kernel multiplies."""
    import torch

    simulation = Simulation(sm_count=2, strict=True)
    plan = load(SHIPPED.with_name(f"gemm_{kind}_sm100a"), simulation).plan
    assert plan
    torch.manual_seed(0)
    x, y = (torch.randn(rows, 160) * torch.logspace(-2, 2, rows, base=2.0)[:, None] for rows in (130, 40))
    if kind == "mxfp8":
        (a, sa), (b, sb) = quantise_mx(x), quantise_mx(y)
        d = plan.kernel_fn(a, b, pack_scales(sa), pack_scales(sb))
        left, right = (v.double() * s.double().repeat_interleave(32, -1) for v, s in ((a, sa), (b, sb)))
    else:
        (a, sa, whole_a), (b, sb, whole_b) = quantise_nvfp4(x), quantise_nvfp4(y)
        d = plan.kernel_fn(a, b, pack_scales(sa), pack_scales(sb), whole_a * whole_b)
        left, right = (
            decode_e2m1(v, torch.float64) * s.double().repeat_interleave(16, -1) * whole
            for v, s, whole in ((a, sa, whole_a), (b, sb, whole_b))
        )
    exact = left @ right.T
    assert ((d.double() - exact).abs() <= exact.abs() * 2.0**-8 + 1e-4 * exact.abs().mean()).all()
    whole = x.double() @ y.double().T
    assert (d.double() - whole).norm() < error * whole.norm()


def replacing(pattern: str, by: str, count: int = 0) -> Callable[[str], str]:
    """A mutation of PTX, which has to apply. count: how often at most, 0 for everywhere."""

    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, by, ptx, count=count)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    return mutate


COPY = r"tcgen05\.cp\.cta_group::2\.32x128b\.warpx4\s+\[(%r\d+)\], %rd\d+;"
LOAD = r"cp\.async\.bulk\.tensor\.3d\.shared::cluster[^;]*;"
EXPECT = r"(mbarrier\.arrive\.expect_tx[^;]*), %r\d+;"
WAIT = (
    r"LAB_WAIT:\s+mbarrier\.try_wait\.parity\.shared\.b64 P1,[^;]*;\s+@P1 bra\.uni DONE;\s+bra\.uni\s+LAB_WAIT;"
    r"(?=(?:(?!LAB_WAIT)[\s\S])*?tcgen05\.cp)"  # the last one before scales are copied
)
PRODUCT = r"tcgen05\.mma[^\[]*\[%r\d+\], %rd\d+, %rd\d+, "  # then its instruction descriptor, which names the block
TWO_PRODUCTS = rf"({PRODUCT})(%r\d+)(,[^;]*;(?:(?!tcgen05\.mma)[\s\S])*{PRODUCT})%r\d+"
# What is broken; the PTX that is replaced, and by what; how often at most; what is reported.
BREAKS = [
    ("scales of A are not copied", COPY, "", 1, "wrong"),
    ("no scales are copied", COPY, "", 0, "wrong"),
    ("scales are not loaded", LOAD, "", 0, "deadlock"),
    ("scales of A are not loaded", LOAD, "", 1, "deadlock"),
    ("bytes of scales are not waited for", EXPECT, r"\1, 65536;", 0, "race|wrong|outstanding|deadlock"),
    ("a slot is given back to one CTA", r"(tcgen05\.commit[^\n]*\[%r\d+\+48\]), %rs\d+;", r"\1, 1;", 0, "deadlock"),
    ("no slot is given back", r"tcgen05\.commit[^\n]*\[%r\d+\+48\], %rs\d+;", "", 0, "deadlock"),
    ("the ring is not waited for", WAIT, "", 1, "race|wrong"),
    ("another block of k", TWO_PRODUCTS, r"\1\2\3\2", 1, "wrong"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "by", "count", "said"), [b[1:] for b in BREAKS], ids=[b[0] for b in BREAKS])
def test_each_break_is_reported(pattern: str, by: str, count: int, said: str) -> None:
    simulation = Simulation(sm_count=4, strict=True, mutate=replacing(pattern, by, count))
    subject = load(SHIPPED, simulation)
    texts = []
    for simulation.seed in range(3):
        result = run(subject, SHAPE, seed=1)
        assert (result.status == "pass") == (not result.detail)
        texts.append("\n".join(result.detail))
    assert any(text and re.search(said, text) for text in texts), [text[:400] for text in texts]
