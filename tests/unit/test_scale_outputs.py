"""Outputs that are 8-bit scales of blocks of columns, and outputs of 4 bits: what a spec and a call may say, the
reference, and how both are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemm_specs import resolve_text

from cutegen.diagnostics import SpecError
from cutegen.families.gemm.text.kernel import kernel_text
from cutegen.run.subject import load_subject
from cutegen.runtime.call_faults import find_faults

torch = pytest.importorskip("torch")

from cutegen.run.guard import guarded  # noqa: E402
from cutegen.runtime.accuracy import compare, tolerance  # noqa: E402
from cutegen.runtime.four_bits import decode_e2m1, encode_e2m1  # noqa: E402
from cutegen.runtime.gemm.scale_packing import pack_scales, spread_rows, unpack_scales  # noqa: E402

ROOT = Path(__file__).parents[2]
SPEC = """\
cutegen: 1
kernel: gemm
arch: {arch}
tensors: {{a: "bf16[{batch}m, k]", b: "bf16[n, k]", q: "{q}", s: "{s}"}}
epilogue: {{s: "{scale}", q: "{value}"}}
"""
GIVEN = {
    "arch": "sm_100a",
    "batch": "",
    "q": "e4m3[m, n]",
    "s": "e8m0[m, n/32]",
    "scale": "ceil_pow2(max(max_abs(acc, n, 32), 1e-20) / 448)",
    "value": "acc / s",
}
NVFP4 = {"q": "e2m1[m, n]", "s": "e4m3[m, n/16]", "scale": "max_abs(acc, n, 16) / 6 + 1", "value": "acc / stored(s)"}


def resolved(more: str = "", **given: str) -> Any:
    return resolve_text(SPEC.format(**{**GIVEN, **given}) + more).resolved


REFUSED = {
    "Hopper": ({"arch": "sm_90a"}, "", "not-yet-supported", "e8m0 is not supported yet for a value of blocks"),
    "GeForce": ({"arch": "sm_120a"}, "", "not-yet-supported", "e8m0 is not supported yet for a value of blocks"),
    "4 bits on Hopper": (
        {"arch": "sm_90a", "q": "e2m1[m, n]", "s": "f32[m, n/32]"},
        "",
        "not-yet-supported",
        "e2m1 is not supported yet for an output",
    ),
    "blocks of 16 on Hopper": (
        {"arch": "sm_90a", "s": "f32[m, n/16]", "scale": "max_abs(acc, n, 16)"},
        "",
        "reduction-block",
        "use a multiple of 32 from 32 to 256",
    ),
    "blocks of 48": ({"scale": "max_abs(acc, n, 48)"}, "", "reduction-block", "use 16, or a multiple of 32 from"),
    "no power of two": (
        {"scale": "max_abs(acc, n, 32)"},
        "",
        "scale-output",
        "write ceil_pow2(max_abs(acc, n, 32))",
    ),
    "blocks of 16 of e8m0": (
        {"s": "e8m0[m, n/16]", "scale": "ceil_pow2(max_abs(acc, n, 16))"},
        "",
        "scale-output",
        "write max_abs(x, n, 32)",
    ),
    "before rounding": (NVFP4 | {"value": "acc / s"}, "", "scale-output", "read stored(s)"),
    "m contiguous": ({"s": "e8m0[m, n/32]@m"}, "", "scale-output", "declare it e8m0[m, n/32]"),
    "n first": ({"s": "e8m0[n/32, m]"}, "", "scale-output", "declare it e8m0[m, n/32]"),
    "the last block a part": ({"s": "e8m0[m, ceil(n/32)]"}, "", "scale-output", "declare it e8m0[m, n/32]"),
    "other blocks": ({"s": "e8m0[m, n/64]"}, "", "columns", "declare it with n/32"),
    "n": ({}, "dims: {n: 144}\n", "exact-division", "n = 144 is not a multiple of 32"),
    "a part of a chunk": (
        {},
        "tiling: {tile: [128, 64, 64]}\n",
        "packed-scales",
        "tile n = 64 is not a multiple of the 128 columns of a chunk of s",
    ),
    "m contiguous, 4 bits": (NVFP4 | {"q": "e2m1[m, n]@m"}, "", "not-yet-supported", "make n the last dim"),
    "transposed": ({}, "tiling: {swap_ab: true}\n", "sm100-knobs", "a value of blocks is not supported yet"),
    "4 bits again": (
        {"q": "e2m1[m, n]", "s": "f32[m]", "scale": "sum(stored(q), n)", "value": "acc"},
        "",
        "not-yet-supported",
        "`q` as e2m1 rounds it is not supported yet as a value",
    ),
    "transposed, 4 bits": (
        {"q": "e2m1[m, n]", "s": "f32[m]", "scale": "sum(acc, n)", "value": "acc"},
        "tiling: {swap_ab: true}\n",
        "sm100-knobs",
        "an output of 4 bits is not supported yet",
    ),
    "16 columns, 4 bits": (
        {"q": "e2m1[m, n]", "s": "f32[m]", "scale": "sum(acc, n)", "value": "acc"},
        "tiling: {tile: [128, 16, 64], mma_ctas: 1}\n",
        "tile-n",
        "tile n = 16 makes epilogue rows of 16 elements = 8 B of `q`",
    ),
    "offsets": (
        {"batch": ""},
        "groups: {offsets: o}\n",
        "sm100-spec",
        "use labels or counts",
    ),
}


@pytest.mark.parametrize(("given", "more", "rule", "said"), REFUSED.values(), ids=REFUSED)
def test_specs_that_are_refused(given: dict[str, str], more: str, rule: str, said: str) -> None:
    text = SPEC.format(**{**GIVEN, **given}) + more
    if "offsets" in more:
        text = text.replace('b: "bf16[n, k]"', 'b: "bf16[g, n, k]", o: "i32[g]"')
    with pytest.raises(SpecError) as caught:
        resolve_text(text)
    assert rule in caught.value.report()
    assert said in caught.value.report()


def test_arguments_and_tiles() -> None:
    """What a call passes is what the next product reads; q has whole blocks, and subtiles whole sectors."""
    found = resolved(**NVFP4)
    kernel = kernel_text(found, found.kernels[0])
    assert [f.says for f in kernel.arguments.fakes[-2:]] == ["q: e2m1[m, n]", "s: e4m3[ceil(m/128), ceil(n/64), 512]"]
    assert next(s.multiple for s in kernel.arguments.symbols if s.name == "n") == 32
    assert found.default.numbers.epilogue_tile == (128, 64)
    assert resolved().default.numbers.epilogue_tile == (128, 32)
    assert resolved("tiling: {tile: [128, 64, 64]}\n", **NVFP4).default.numbers.tile[1] == 64
    assert kernel.blocks
    assert (kernel.blocks.in_subtile, kernel.blocks.size) == (True, 16)


def test_powers_of_two_divide_by_a_product() -> None:
    """The inverse of a power of two is exact; that of an e4m3 number is not."""
    epilogues = [kernel_text(found, found.kernels[0]).epilogue.lines for found in (resolved(), resolved(**NVFP4))]
    assert epilogues[0] == ("q = acc * inverse_s",)
    assert epilogues[1] == ("q = exact_quotient(acc, divisor_of_q, inverse_divisor_of_q)",)


@pytest.mark.parametrize("name", ["gemm_bf16_swiglu_quant_mxfp8_sm100a", "gemm_nvfp4_quant_sm100a"])
def test_the_reference_packs_what_it_divides_by(name: str) -> None:
    plan: Any = load_subject(ROOT / "generated" / name).plan
    plan.device = "cpu"
    torch.manual_seed(0)
    inputs = plan.prepare_inputs(m=130, n=320, k=96)
    q, scale = plan.reference_fn(*inputs, precision="float64")
    block, columns = (16, 320) if "nvfp4" in name else (32, 160)
    assert scale.shape == (2, -(-columns // (4 * block)), 512)
    flat = unpack_scales(scale.view(torch.uint8), 130, columns // block).view(scale.dtype)
    assert torch.equal(pack_scales(flat).view(torch.uint8), scale.view(torch.uint8))
    held = decode_e2m1(q, torch.float64) if "nvfp4" in name else q.double()
    largest = held.unflatten(-1, (-1, block)).abs().amax(-1)
    low, high = (6, 6) if "nvfp4" in name else (224, 448)  # of what a scale is rounded up by up to 2
    assert ((low <= largest) & (largest <= high)).all()
    assert [tuple(o.shape) for o in plan.allocate_outputs(*inputs)] == [tuple(q.shape), tuple(scale.shape)]


def test_a_call_says_how_scales_of_outputs_lie() -> None:
    plan: Any = load_subject(ROOT / "generated" / "gemm_nvfp4_quant_sm100a").plan
    plan.device = "cpu"
    args, inputs = (*plan.inputs, *plan.outputs), plan.prepare_inputs(m=130, n=96, k=64)
    q, scale = plan.allocate_outputs(*inputs)

    def faults(*outputs: Any) -> str:
        values = (*inputs, *outputs)
        return "; ".join(f.text for f in find_faults(plan.dims, args, values, "cpu", "k", ("q", "scale")))

    assert faults(q, scale) == ""
    assert "ceil(n/64) is 2 (n = 96 from b)" in faults(q, scale[:, :1])
    assert "pack_scales" in faults(q, torch.zeros(130, 6).to(scale.dtype))
    assert "float4_e2m1fn_x2" in faults(q.view(torch.uint8), scale)


def test_rows_of_no_group_in_chunks() -> None:
    """Rows of padding go with them, and each has the bytes of its row."""
    idle = torch.zeros(2, 200, dtype=torch.bool)
    idle[0, 3], idle[1, 140:] = True, True
    mask = spread_rows(idle, (2, 2, 3, 512))
    assert mask.shape == (2, 2, 3, 512)
    expected = torch.ones(2, 256, dtype=torch.uint8)
    expected[:, :200] = idle.byte()
    packed = pack_scales(expected[..., None].expand(2, 256, 12).contiguous().view(torch.float8_e8m0fnu))
    assert torch.equal(mask.byte(), packed.view(torch.uint8))


def test_elements_of_4_bits_are_compared_one_by_one() -> None:
    """A neighbour passes, since a sum in another order may round to it; one further away does not."""
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0, -6.0, 0.5, 0.0, 1.5]] * 3)
    allowed = tolerance("float4_e2m1fn_x2", 64, reference="float4_e2m1fn_x2")
    near, far = values.clone(), values.clone()
    near[1, 3], far[1, 3], far[2, 6] = 6.0, 1.0, 1.5
    assert compare(encode_e2m1(near), encode_e2m1(values), allowed).mismatches == 0
    found = compare(encode_e2m1(far), encode_e2m1(values), allowed)
    assert (found.elements, found.mismatches, found.first, found.actual) == (24, 2, (1, 3), 1.0)
    free = torch.zeros(3, 4, dtype=torch.bool)
    free[1] = True
    assert compare(encode_e2m1(far), encode_e2m1(values), allowed, free).first == (2, 6)
    turned = compare(encode_e2m1(far).t(), encode_e2m1(values).t(), allowed)
    assert turned.first == (3, 1)
    assert encode_e2m1(torch.tensor([[float("nan"), 1.0]])).view(torch.uint8).tolist() == [[0x27]]


def test_codes_of_4_bits_are_no_poison() -> None:
    """All 256 bytes are pairs of numbers, so that none of them shows what was not written."""
    buffer = guarded((4, 16), 1, torch.float4_e2m1fn_x2, "cpu", padded=False)
    assert buffer.unwritten() == 0
    assert guarded((4, 16), 1, torch.float8_e8m0fnu, "cpu", padded=False).unwritten() == 64
