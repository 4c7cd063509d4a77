"""Scales that row kernels store: what reads them, how exponents are packed, and what check knows of these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemm_specs import resolve_text as resolve
from row_specs import HEAD

from cutegen.render import render_package, write_package
from cutegen.run.subject import load_subject
from cutegen.runtime.accuracy import compare
from cutegen.runtime.arguments import allocate

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]


def reference(name: str) -> Any:
    return load_subject(ROOT / "generated" / name).plan


def test_a_quantised_row_has_its_largest_value_at_448() -> None:
    x = torch.randn(5, 264).to(torch.bfloat16)
    plan = reference("add_rmsnorm_quant_e4m3_sm90a")
    h, q, scale = plan.reference_fn(x, 2 * x, torch.ones(264).to(torch.bfloat16))
    assert torch.equal(h, (3 * x.float()).to(torch.bfloat16))
    assert q.float().abs().amax(-1).tolist() == [448.0] * 5
    norm = torch.nn.functional.rms_norm(h.float(), (264,), eps=1e-6)
    torch.testing.assert_close(q.float() * scale[:, None], norm, rtol=2**-4, atol=0.02)


def test_blocks_have_the_scales_that_the_gemm_of_such_blocks_reads() -> None:
    """One for each row and 128 elements, rows being contiguous; what they multiply is what the reference has."""
    plan = reference("add_rmsnorm_quant_block128_sm90a")
    x = torch.randn(5, 272).to(torch.bfloat16)
    h, q, scale = plan.reference_fn(x, x, torch.ones(272).to(torch.bfloat16))
    assert scale.shape == (5, 3)
    assert (plan.outputs[2].dims, plan.outputs[2].contiguous) == (("m", "ceil(n/128)"), 0)
    assert q[:, 256:].float().abs().amax(-1).tolist() == [448.0] * 5
    norm = torch.nn.functional.rms_norm(h.float(), (272,), eps=1e-6)
    wide = scale.repeat_interleave(128, -1)[:, :272]
    torch.testing.assert_close(q.float() * wide, norm, rtol=2**-4, atol=0.02)


@pytest.mark.parametrize("name", ["add_rmsnorm_quant_block128_sm90a", "silu_mul_quant_block128_sm90a"])
def test_rows_of_scales_are_as_far_apart_as_products_read_them(name: str) -> None:
    """sa of gemm_e4m3_block128_sm90a refuses others, as of one row without a gap behind it."""
    arg, read = reference(name).outputs[-1], reference("gemm_e4m3_block128_sm90a").inputs[2]
    assert (read.name, read.align, read.contiguous, read.padded) == ("sa", arg.align, arg.contiguous, arg.padded)
    for m, apart in ((1, 4), (6, 8), (64, 64)):
        assert allocate(arg, {"m": m, "n": 384}, "cpu").stride() == (1, apart)


def test_four_exponents_share_an_int32_as_deepgemm_packs_them() -> None:
    """get_mn_major_tma_aligned_packed_ue8m0_tensor of DeepGEMM (csrc/jit_kernels/impls/smxx_layout.hpp): exponents of
    f32 scales as bytes, each four next to each other in a row, zeros behind the last, in strides (1, align(m, 4))."""
    plan = reference("add_rmsnorm_quant_ue8m0_sm90a")
    x, w = torch.randn(5, 784).to(torch.bfloat16), torch.ones(784).to(torch.bfloat16)
    _, q, packed = plan.reference_fn(x, x, w)
    _, _, scale = reference("add_rmsnorm_quant_block128_sm90a").reference_fn(x, x, w)
    exponents = torch.zeros(5, 8, dtype=torch.uint8)
    exponents[:, :7] = torch.exp2(scale.log2().ceil()).view(torch.int32) >> 23
    assert torch.equal(packed, exponents.view(torch.int32))
    assert allocate(plan.outputs[2], {"m": 5, "n": 784}, "cpu").stride() == (1, 8)
    largest = q.float().abs().unflatten(-1, (-1, 16)).amax(-1).amax()
    assert 224 < largest <= 448


def test_what_lies_next_to_a_power_of_two_is_free_and_nothing_else(tmp_path: Path) -> None:
    text = "tensors: {x: 'bf16[m, n]', q: 'e4m3[m, n]', s: 'e8m0[m, n/128]'}\n"
    resolved = resolve(HEAD + text + "rows: {s: 'ceil_pow2(max_abs(x, n, 128))', q: x / s}\n").resolved
    write_package(render_package(resolved), tmp_path)
    plan: Any = load_subject(tmp_path / resolved.name).plan
    x = torch.linspace(0.5, 1.0, 256).to(torch.bfloat16).repeat(2, 1)
    x[0, 7], x[0, 130], x[1, 9], x[1, 200] = 2.0, 3.0, 2.015625, 1.984375
    assert plan.reference_fn(x)[1].float().tolist() == [[2.0, 4.0], [4.0, 2.0]]
    assert plan.free_elements(1, (x,)).tolist() == [[True, False], [False, False]]
    assert plan.free_elements(0, (x,)).any(0).tolist() == [True] * 128 + [False] * 128
    allowed = plan.output_tolerance(1, (x,), "float8_e8m0fnu")
    wrong = plan.reference_fn(x)[1].float() * 2
    found = compare(wrong, plan.reference_fn(x)[1], allowed, plan.free_elements(1, (x,)))
    assert (found.mismatches, found.elements) == (3, 3)
