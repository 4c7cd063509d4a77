"""Scales by which the tensor core multiplies: how they lie, what a spec and a call may pass, and what is planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemm_specs import resolve_text

from cutegen.build.contract import check_contract
from cutegen.build.facts import Facts
from cutegen.diagnostics import SpecError
from cutegen.families.gemm.code_plan import plan_code
from cutegen.families.gemm.explain import explain
from cutegen.resolve import resolve_file
from cutegen.run.subject import load_subject
from cutegen.runtime.arguments import bind_dims, extent_of, find_faults, tensor_bytes

torch = pytest.importorskip("torch")

from cutegen.runtime.gemm.scale_packing import pack_scales, quantise_mx, spread_packed, unpack_scales  # noqa: E402

ROOT = Path(__file__).parents[2]
SPEC = """\
cutegen: 1
kernel: gemm
arch: {arch}
tensors:
  a: {a}
  b: e4m3[n, k]
  sa: {sa}
  sb: {sb}
  d: {d}
mainloop: (a * sa) @ (b * sb)
"""
GIVEN = {"arch": "sm_100a", "a": "e4m3[m, k]", "sa": "e8m0[m, k/32]", "sb": "e8m0[n, k/32]", "d": "bf16[m, n]"}


def resolved(more: str = "", **given: str) -> Any:
    return resolve_text(SPEC.format(**{**GIVEN, **given}) + more).resolved


def codes(*shape: int) -> Any:
    return torch.randint(100, 150, shape, dtype=torch.uint8).view(torch.float8_e8m0fnu)


@pytest.mark.parametrize(("row", "block"), [(0, 0), (1, 0), (31, 3), (32, 1), (127, 2), (128, 4), (199, 8)])
def test_place_of_a_scale(row: int, block: int) -> None:
    """As the documentation of cuBLAS has it: in groups of 128 rows and 4 blocks, those along k first."""
    scales = codes(200, 9)
    packed = pack_scales(scales)
    assert packed.shape == (2, 3, 512)
    at = 16 * (row % 32) + 4 * (row // 32 % 4) + block % 4
    assert packed.view(torch.uint8)[row // 128, block // 4, at] == scales.view(torch.uint8)[row, block]


def test_packing_is_undone_and_pads_with_zero_bytes() -> None:
    scales = codes(3, 130, 5)
    packed = pack_scales(scales)
    raw = packed.view(torch.uint8)
    assert torch.equal(unpack_scales(raw, 130, 5), scales.view(torch.uint8))
    assert int((raw != 0).sum()) == scales.numel()
    small = torch.ones(4, 4).to(torch.float8_e4m3fn)
    assert pack_scales(small).dtype == torch.float8_e4m3fn


def test_what_is_not_packed() -> None:
    with pytest.raises(TypeError, match="scales have dtype float32"):
        pack_scales(torch.ones(4, 4))
    with pytest.raises(ValueError, match=r"shape \(4,\)"):
        pack_scales(codes(4))


def test_spread_scales_are_those_of_elements() -> None:
    scales = codes(130, 3)
    spread = spread_packed(pack_scales(scales).double(), (130, 96), 32)
    assert torch.equal(spread, scales.double().repeat_interleave(32, -1))


@pytest.mark.parametrize(("dtype", "step"), [(torch.float8_e4m3fn, 2.0**-4), (torch.float8_e5m2, 2.0**-3)])
def test_quantised_blocks(dtype: Any, step: float) -> None:
    """Within half a step of the dtype, but for what saturates: at most a quarter of what is 1.75 times a power of 2."""
    values = torch.randn(40, 128, dtype=torch.float64) * torch.logspace(-30, 30, 40, base=2.0).double()[:, None]
    values[3, 32:64] = 0
    elements, scales = quantise_mx(values, dtype)
    assert (elements.dtype, scales.dtype, scales.shape) == (dtype, torch.float8_e8m0fnu, (40, 4))
    back = elements.double() * scales.double().repeat_interleave(32, -1)
    largest = values.unflatten(-1, (-1, 32)).abs().amax(-1).repeat_interleave(32, -1)
    inside = elements.double().abs() < torch.finfo(dtype).max
    assert ((back - values).abs() <= torch.where(inside, largest * step, largest / 4)).all()
    assert not elements.double().isnan().any()
    assert torch.equal(back[3, 32:64], torch.zeros(32, dtype=torch.float64))
    values[5, 0] = torch.inf
    assert quantise_mx(values, dtype)[1].float().isnan().nonzero().tolist() == [[5, 0]]
    with pytest.raises(ValueError, match="no multiple of a block of 32"):
        quantise_mx(values[:, :40])
    with pytest.raises(ValueError, match="dtype bfloat16"):
        quantise_mx(values, torch.bfloat16)


@pytest.mark.parametrize(
    ("more", "accumulators", "columns", "copies", "stage_bytes"),
    [
        ("", 1, 512, 3, 2 * 128 * 128 + 4 * (128 + 256)),
        ("tiling: {tile: [128, 128, 128]}\n", 2, 512, 2, 128 * (128 + 64) + 4 * 256),
        ("tiling: {tile: [128, 128, 256], mma_ctas: 1}\n", 2, 512, 4, 256 * 256 + 8 * 256),
    ],
)
def test_tensor_memory_and_ring(more: str, accumulators: int, columns: int, copies: int, stage_bytes: int) -> None:
    """Two sums of 128 columns and the scales take more than 256 columns, so 512 are allocated."""
    found = resolved(more)
    numbers = found.default.numbers
    assert (numbers.accumulators, numbers.tmem_columns, numbers.stage_bytes) == (accumulators, columns, stage_bytes)
    plan = plan_code(found, found.default)
    assert plan.scale_copies == copies
    assert plan.tma_loads == 4
    assert plan.mma[0].opcode.startswith("UTCQMMA")


def test_the_contract_counts_copies_of_scales() -> None:
    found = resolved()
    plan = plan_code(found, found.default)

    facts = Facts(
        entry="k", registers=49, threads=(256, 1, 1), stack_bytes=0, spill_store_bytes=0, spill_load_bytes=0,
        instructions=1, code_bytes=16, opcodes={"UTCCP.T.S.2CTA.4x32dp128bit": 2}, set_registers=(), ptx_waits=0,
        warnings=(), early={},
    )  # fmt: skip
    check = next(c for c in check_contract(plan, facts) if c.id == "scale-copy")
    assert (check.planned, check.found, check.ok) == ("3", "2", False)


def test_explain_draws_tensor_memory() -> None:
    sections = {s.title: s for s in explain(resolve_file(ROOT / "specs" / "gemm_mxfp8_sm100a.yaml").resolved, None)}
    assert sections["Tensor memory"].lines[:3] == (
        "1 x 256 of 512 columns allocated, of 512 that there are",
        "columns 256..259: sa, scales of a k tile",
        "columns 260..267: sb, scales of a k tile",
    )


REFUSED = {
    "Hopper": ({"arch": "sm_90a"}, "", "mainloop-scale", "on sm_90a scales are f32"),
    "another block": ({"sa": "e8m0[m, k/64]"}, "", "mainloop-scale", "declare it e8m0[m, k/32]"),
    "rows contiguous": ({"sa": "e8m0[m, k/32]@m"}, "", "mainloop-scale", "no scale by which tcgen05 multiplies"),
    "a part of a block": ({"sa": "e8m0[m, ceil(k/32)]"}, "", "mainloop-scale", "declare it e8m0[m, k/32]"),
    "one scale": ({"sb": "f32[n]"}, "", "mainloop-scale", "`b` has no scales of blocks"),
    "16 bits": ({"a": "bf16[m, k]"}, "", "mainloop-scale", "no product bf16 @ e4m3 with scales of e8m0"),
    "m contiguous": ({"a": "e4m3[k, m]"}, "", "mma-major", "`a` is M-major"),
    "k": ({}, "dims: {k: 112}\n", "exact-division", "k = 112 is not a multiple of 32"),
    "columns": ({}, "tiling: {tile: [128, 192, 128]}\n", "packed-scales", "use 128 or 256"),
    "depth": ({}, "tiling: {tile: [128, 128, 64]}\n", "packed-scales", "tile k = 64"),
    "a gated product": (
        {"d": "bf16[m, n/2]"},
        "epilogue: {d: 'acc[:, :n/2] * acc[:, n/2:]'}\n",
        "sm100-spec",
        "gate it in a kernel after",
    ),
}


@pytest.mark.parametrize(("given", "more", "rule", "said"), REFUSED.values(), ids=REFUSED)
def test_specs_that_are_refused(given: dict[str, str], more: str, rule: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolved(more, **given)
    assert rule in caught.value.report()
    assert said in caught.value.report()


def test_calls_are_told_how_scales_lie() -> None:
    plan: Any = load_subject(ROOT / "generated" / "gemm_mxfp8_sm100a").plan
    args = (*plan.inputs, *plan.outputs)
    a, b = (torch.zeros(rows, 64).to(torch.float8_e4m3fn) for rows in (256, 128))
    sa, sb, d = pack_scales(codes(256, 2)), pack_scales(codes(128, 2)), torch.zeros(256, 128, dtype=torch.bfloat16)

    def faults(*values: Any) -> str:
        return "; ".join(f.text for f in find_faults(plan.dims, args, values, "cpu", "k", ("d",)))

    assert faults(a, b, sa, sb, d) == ""
    assert "pass pack_scales(sa)" in faults(a, b, codes(256, 2), sb, d)
    assert "of rank 1" in faults(a, b, sa.flatten(), sb, d)
    assert "ceil(m/128) is 2 (m = 256 from a)" in faults(a, b, sb, sb, d)
    assert "shape[2] is 256, needs" in faults(a, b, sa[..., :256], sb, d)
    assert "pass sa.view(torch.float8_e8m0fnu)" in faults(a, b, sa.view(torch.uint8), sb, d)
    assert "shape[1] (k) is 48, needs a multiple of 32" in faults(a[:, :48], b[:, :48], sa, sb, d)
    assert bind_dims(plan.dims, args, (a, b, sa, sb, d)) == {"m": 256, "n": 128, "k": 64}
    assert extent_of("512", {}) == 512
    scales = tuple(arg for arg in args if arg.name in ("sa", "sb"))
    assert tensor_bytes(scales, {"m": 256, "n": 128, "k": 160}) == (2 + 1) * 2 * 512


def test_random_inputs_have_scales_around_one_and_zero_padding() -> None:
    plan: Any = load_subject(ROOT / "generated" / "gemm_mxfp8_sm100a").plan
    plan.device = "cpu"
    _, _, sa, sb = plan.prepare_inputs(m=100, n=264, k=96)
    for packed, rows in ((sa, 100), (sb, 264)):
        raw = packed.view(torch.uint8)
        scales = unpack_scales(raw, rows, 3)
        assert int((raw != 0).sum()) == scales.numel()
        middle = 127 if packed is sa else 124  # the product gets unit variance: k ** -0.5 is nearest to 2 ** -3
        assert set(scales.flatten().tolist()) == {middle - 1, middle, middle + 1}
