"""Scales by which the tensor core multiplies: how they lie, what a spec and a call may pass, and what is planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemm_specs import resolve_text

from cutegen.build.contract import check_contract
from cutegen.build.facts import Facts
from cutegen.diagnostics import SpecError
from cutegen.families.gemm.arguments import tensor_shapes
from cutegen.families.gemm.code_plan import plan_code
from cutegen.families.gemm.dense_baselines import list_dense_baselines, list_scaled_baselines
from cutegen.families.gemm.explain import explain
from cutegen.families.gemm.spec_rules import alignments
from cutegen.resolve import resolve_file
from cutegen.run.guard import bits, invalid_copy
from cutegen.run.subject import load_subject
from cutegen.runtime.arguments import bind_dims, extent_of, step_of, tensor_bytes
from cutegen.runtime.call_faults import find_faults
from cutegen.runtime.slots import find_bounds, find_constants, find_dims, find_parts

torch = pytest.importorskip("torch")

from cutegen.runtime.four_bits import decode_e2m1, encode_e2m1  # noqa: E402
from cutegen.runtime.gemm.block_quantising import quantise_mx, quantise_nvfp4  # noqa: E402
from cutegen.runtime.gemm.scale_packing import pack_scales, spread_packed, unpack_scales  # noqa: E402

ROOT = Path(__file__).parents[2]
GATED = "epilogue: {d: 'acc[:, :n/2] * acc[:, n/2:]'}\n"
NVFP4 = {"a": "e2m1[m, k]", "b": "e2m1[n, k]", "sa": "e4m3[m, k/16]", "sb": "e4m3[n, k/16]"}
SPEC = """\
cutegen: 1
kernel: gemm
arch: {arch}
tensors:
  a: {a}
  b: {b}
  sa: {sa}
  sb: {sb}
  d: {d}
mainloop: (a * sa) @ (b * sb)
"""
GIVEN = {
    "arch": "sm_100a",
    "a": "e4m3[m, k]",
    "b": "e4m3[n, k]",
    "sa": "e8m0[m, k/32]",
    "sb": "e8m0[n, k/32]",
    "d": "bf16[m, n]",
}


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


def test_two_elements_of_4_bits_in_a_byte() -> None:
    """Ties go to the even code, and what is larger than 6 becomes 6."""
    values = torch.tensor([[0.25, 0.75, -1.25, 1.75], [2.5, -3.5, 5.0, 7.0]])
    packed = encode_e2m1(values)
    assert (packed.shape, packed.dtype) == ((2, 2), torch.float4_e2m1fn_x2)
    assert packed.view(torch.uint8).tolist() == [[0x20, 0x4A], [0xE4, 0x76]]
    assert decode_e2m1(packed, torch.float64).tolist() == [[0.0, 1.0, -1.0, 2.0], [2.0, -4.0, 4.0, 6.0]]
    assert torch.equal(decode_e2m1(packed.t(), torch.float32, 0), decode_e2m1(packed, torch.float32).t())
    every = torch.arange(256, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    again = encode_e2m1(decode_e2m1(every, torch.float32))
    assert torch.equal(decode_e2m1(again, torch.float32), decode_e2m1(every, torch.float32))
    with pytest.raises(ValueError, match="3 values"):
        encode_e2m1(torch.ones(3))


def test_nvfp4_blocks() -> None:
    """The largest of a block becomes 6, up to half a step of its scale; the largest of all has the scale 448."""
    values = torch.randn(40, 128, dtype=torch.float64) * torch.logspace(-4, 4, 40, base=2.0).double()[:, None]
    values[3, 32:64] = 0
    elements, scales, whole = quantise_nvfp4(values)
    assert (elements.dtype, elements.shape) == (torch.float4_e2m1fn_x2, (40, 64))
    assert (scales.dtype, scales.shape, float(scales.float().max())) == (torch.float8_e4m3fn, (40, 8), 448.0)
    back = decode_e2m1(elements, torch.float64) * scales.double().repeat_interleave(16, -1) * whole
    largest = values.unflatten(-1, (-1, 16)).abs().amax(-1).repeat_interleave(16, -1)
    assert ((back - values).abs() <= largest * (1 / 6 + 1 / 16)).all()
    assert torch.equal(back[3, 32:64], torch.zeros(32, dtype=torch.float64))
    values[5, 0] = torch.nan
    assert quantise_nvfp4(values)[1].float().isnan().nonzero().tolist() == [[5, 0]]
    assert quantise_nvfp4(torch.zeros(2, 32))[2] == 1.0
    with pytest.raises(ValueError, match="not a multiple of a block of 16"):
        quantise_nvfp4(values[:, :40])


@pytest.mark.parametrize(
    ("dtype", "step", "bound"),
    [
        (torch.float8_e4m3fn, 2.0**-4, 448),
        (torch.float8_e5m2, 2.0**-3, 57344),
        (torch.float4_e2m1fn_x2, 2.0**-2, 6),
    ],
)
def test_quantised_blocks(dtype: Any, step: float, bound: float) -> None:
    """Within half a step of the dtype, but for what saturates: at most a quarter of what is 1.75 times a power of 2."""
    values = torch.randn(40, 128, dtype=torch.float64) * torch.logspace(-30, 30, 40, base=2.0).double()[:, None]
    values[3, 32:64] = 0
    elements, scales = quantise_mx(values, dtype)
    assert (elements.dtype, scales.dtype, scales.shape) == (dtype, torch.float8_e8m0fnu, (40, 4))
    found = decode_e2m1(elements, torch.float64) if bound == 6 else elements.double()
    back = found * scales.double().repeat_interleave(32, -1)
    largest = values.unflatten(-1, (-1, 32)).abs().amax(-1).repeat_interleave(32, -1)
    inside = found.abs() < bound
    assert ((back - values).abs() <= torch.where(inside, largest * step, largest / 4)).all()
    assert not found.isnan().any()
    assert torch.equal(back[3, 32:64], torch.zeros(32, dtype=torch.float64))
    values[5, 0] = torch.inf
    assert quantise_mx(values, dtype)[1].float().isnan().nonzero().tolist() == [[5, 0]]
    with pytest.raises(ValueError, match="not a multiple of a block of 32"):
        quantise_mx(values[:, :40])
    with pytest.raises(ValueError, match="dtype bfloat16"):
        quantise_mx(values, torch.bfloat16)


@pytest.mark.parametrize(
    ("given", "more", "accumulators", "columns", "copies", "stage_bytes", "opcode"),
    [
        ({}, "", 1, 512, 3, 2 * 128 * 128 + 4 * (128 + 256), "UTCQMMA.2CTA"),
        ({}, "tiling: {tile: [128, 128, 128]}\n", 2, 512, 2, 128 * (128 + 64) + 4 * 256, "UTCQMMA.2CTA"),
        ({}, "tiling: {tile: [128, 128, 256], mma_ctas: 1}\n", 2, 512, 4, 256 * 256 + 8 * 256, "UTCQMMA"),
        ({}, "tiling: {tile: [128, 64, 128], mma_ctas: 1}\n", 2, 256, 2, 128 * 192 + 4 * 256, "UTCQMMA"),
        ({}, "tiling: {tile: [128, 192, 128]}\n", 2, 512, 3, 128 * (128 + 96) + 4 * 384, "UTCQMMA.2CTA"),
        (NVFP4, "", 1, 512, 12, 2 * 128 * 128 + 16 * (128 + 256), "UTCOMMA.2CTA"),
        (NVFP4, "tiling: {tile: [128, 128, 256], mma_ctas: 1}\n", 2, 512, 8, 128 * 256 + 16 * 256, "UTCOMMA"),
    ],
)
def test_tensor_memory_and_ring(
    given: dict[str, str], more: str, accumulators: int, columns: int, copies: int, stage_bytes: int, opcode: str
) -> None:
    """Two sums of 128 columns and the scales take more than 256 columns, so 512 are allocated."""
    found = resolved(more, **given)
    numbers = found.default.numbers
    assert (numbers.accumulators, numbers.tmem_columns, numbers.stage_bytes) == (accumulators, columns, stage_bytes)
    plan = plan_code(found, found.default)
    assert plan.scale_copies == copies
    assert plan.tma_loads == 4
    assert (plan.mma[0].opcode, plan.mma[0].step % 4) == (opcode, 0)


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
    "k of 4 bits": (NVFP4, "dims: {k: 48}\n", "tma-alignment", "48 x 4 bits = 24 B, no multiple of 16"),
    "4 bits alone": (NVFP4 | {"sa": "f32[m]", "sb": "f32[n]"}, "", "mma-dtypes", "give both scales of blocks"),
    "4 bits on Hopper": (
        NVFP4 | {"arch": "sm_90a", "sa": "f32[m]", "sb": "f32[n]"},
        "",
        "mma-dtypes",
        "on sm_100a and sm_120a there is one with scales of blocks",
    ),
    "4 by 8 bits": (NVFP4 | {"b": "e4m3[n, k]"}, "", "mainloop-scale", "no product e2m1 @ e4m3 with scales of e4m3"),
    "two kinds": (NVFP4 | {"sb": "e8m0[n, k/32]"}, "", "mainloop-scale", "declare it e4m3[n, k/16]"),
    "m contiguous, 4 bits": (NVFP4 | {"a": "e2m1[k, m]"}, "", "mma-major", "`a` is M-major"),
    "columns": ({}, "tiling: {tile: [128, 160, 128]}\n", "packed-scales", "use 128 or 192"),
    "depth": ({}, "tiling: {tile: [128, 128, 64]}\n", "packed-scales", "tile k = 64"),
    "pairs side by side": (
        {"d": "bf16[m, n/2]"},
        "epilogue: {d: 'acc[:, 0::2] * acc[:, 1::2]'}\n",
        "sm100-spec",
        "slice halves: acc[:, :n/2], acc[:, n/2:]",
    ),
    "columns of pairs": (
        {"d": "bf16[m, n/2]"},
        GATED + "tiling: {tile: [128, 128, 128]}\n",
        "packed-scales",
        "half of tile n = 128 is not a multiple of the 128 rows of a chunk of scales",
    ),
    "n of pairs": ({"d": "bf16[m, n/2]"}, GATED + "dims: {n: 384}\n", "exact-division", "pad n to 512"),
}


@pytest.mark.parametrize(("given", "more", "rule", "said"), REFUSED.values(), ids=REFUSED)
def test_specs_that_are_refused(given: dict[str, str], more: str, rule: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolved(more, **given)
    assert rule in caught.value.report()
    assert said in caught.value.report()


def test_each_half_of_a_gated_product_has_whole_chunks() -> None:
    found = resolved(GATED, d="bf16[m, n/2]")
    argument = tensor_shapes(found.problem)["sb"].argument(False)
    assert (argument.dims, argument.steps) == (("n/128", "ceil(k/128)", "512"), (2, 1, 1))
    assert alignments(found.problem)["n"][0] == 256
    assert found.default.numbers.tile[1] == 256


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


def test_calls_with_4_bits() -> None:
    """torch's extent of k is half of it."""
    plan: Any = load_subject(ROOT / "generated" / "gemm_nvfp4_sm100a").plan
    args = (*plan.inputs, *plan.outputs)
    a, b = (torch.zeros(rows, 64, dtype=torch.uint8).view(torch.float4_e2m1fn_x2) for rows in (256, 128))
    scales = [pack_scales(torch.ones(rows, 8).to(torch.float8_e4m3fn)) for rows in (256, 128)]
    d = torch.zeros(256, 128, dtype=torch.bfloat16)

    def faults(*values: Any) -> str:
        return "; ".join(f.text for f in find_faults(plan.dims, args, values, "cpu", "k", ("d",)))

    assert faults(a, b, *scales, 1.0, d) == ""
    assert bind_dims(plan.dims, args, (a, b, *scales, 1.0, d)) == {"m": 256, "n": 128, "k": 128}
    assert "pass a.view(torch.float4_e2m1fn_x2)" in faults(a.view(torch.uint8), b, *scales, 1.0, d)
    assert "encode_e2m1" in faults(a.view(torch.uint8).float(), b, *scales, 1.0, d)
    wrong = faults(a, b[:, :48], *scales, 1.0, d)
    assert "2 x shape[1] is 96, but k is 128 (from a); needs float4_e2m1fn_x2[n, k/2]" in wrong
    assert "2 x shape[1] (k) is 16, needs a multiple of 32" in faults(a[:, :8], b[:, :8], *scales, 1.0, d)
    assert "ceil(k/64) is 2 (k = 128 from a)" in faults(a, b, scales[0][:, :1], scales[1], 1.0, d)
    operands = tuple(arg for arg in args if arg.name in "ab")
    assert tensor_bytes(operands, {"m": 256, "n": 128, "k": 128}) == (256 + 128) * 64
    assert step_of("k", args) == 32
    (slot,) = (found for found in find_dims(plan.dims, args) if found[0] == "k")
    assert slot == ("k", 0, 1, 2)
    assert (2, 1, 64, 63, 0, 1, 2) in find_parts(args, find_dims(plan.dims, args))
    assert (0, 1, 64) in find_constants({"m": 1, "n": 1, "k": 128}, operands)
    assert find_bounds({"m": (1, None), "n": (1, None), "k": (32, 96)}, operands) == ((0, 1, 16, 48),)


def test_random_operands_of_4_bits_give_the_product_unit_variance() -> None:
    plan: Any = load_subject(ROOT / "generated" / "gemm_nvfp4_sm100a").plan
    plan.device = "cpu"
    torch.manual_seed(0)
    *inputs, _ = plan.prepare_inputs(m=200, n=264, k=96)
    (d,) = plan.reference_fn(*inputs, 1.0, precision="float64").unsqueeze(0)
    assert 0.7 < float(d.double().std()) < 1.4
    assert torch.equal(bits(inputs[0]), bits(inputs[0].clone()))
    assert invalid_copy(inputs[0]).view(torch.uint8).count_nonzero() == 0


@pytest.mark.parametrize("kind", ["mxfp8", "nvfp4"])
def test_torch_is_given_the_same_scales(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan: Any = load_subject(ROOT / "generated" / f"gemm_{kind}_sm100a").plan
    plan.device = "cpu"
    inputs = plan.prepare_inputs(m=130, n=264, k=96)
    outputs = plan.allocate_outputs(*inputs)
    passed = {}
    monkeypatch.setattr(torch, "_scaled_mm", lambda a, b, **given: passed.update(given, a=a, b=b))
    names = [baseline.name for baseline in list_dense_baselines(plan)]
    assert "deep_gemm" not in names
    assert ("torch.mm" in names) == (kind == "mxfp8")
    next(iter(list_scaled_baselines(plan))).bind(inputs, outputs)()
    assert passed["scale_a"] is not None
    assert torch.equal(passed["scale_a"].view(torch.uint8), inputs[2].view(torch.uint8).flatten())
    assert torch.equal(passed["scale_b"].view(torch.uint8), inputs[3].view(torch.uint8).flatten())
    assert (passed["a"].shape[1], passed["b"].shape[1], passed["use_fast_accum"]) == (inputs[0].shape[1], 264, False)


def test_random_inputs_have_scales_around_one_and_zero_padding() -> None:
    plan: Any = load_subject(ROOT / "generated" / "gemm_mxfp8_sm100a").plan
    plan.device = "cpu"
    _, _, sa, sb = plan.prepare_inputs(m=100, n=264, k=96)
    for packed, rows in ((sa, 100), (sb, 264)):
        raw = packed.view(torch.uint8)
        scales = unpack_scales(raw, rows, 3)
        assert int((raw != 0).sum()) == scales.numel()
        middle = 125  # the product gets unit variance: of both k ** -0.25 is nearest to 2 ** -2
        assert set(scales.flatten().tolist()) == {middle - 1, middle, middle + 1}
