"""The tolerance lets through what a tensor core does and nothing that a wrong kernel does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutegen.runtime.accuracy import HALF_ULP, attention_tolerance, compare, tolerance

torch = pytest.importorskip("torch")

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def truncate(x):
    """Toward zero, to the 24 significant bits of f32, from f64."""
    rounded = x.float().double()
    over = rounded.abs() > x.abs()
    return torch.where(over, torch.nextafter(rounded.float(), torch.zeros(())).double(), rounded)


def tensor_core(a, b):
    """16 products at a time, exact, then added to an f32 accumulator with truncation."""
    acc = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float64)
    for k in range(0, a.shape[1], 16):
        acc = truncate(acc + a[:, k : k + 16] @ b[:, k : k + 16].mT)
    return acc


def tensor_core_fp8(a, b, promoted):
    """32 products at a time, each and the sum cut to 14 bits of the largest; every `promoted` products the sum goes to
    an f32 accumulator and starts again."""
    acc = torch.zeros(a.shape[0], b.shape[0])
    for start in range(0, a.shape[1], promoted):
        part = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float64)
        for k in range(start, min(start + promoted, a.shape[1]), 32):
            products = a[:, None, k : k + 32] * b[None, :, k : k + 32]
            unit = 2.0 ** (torch.frexp(torch.maximum(products.abs().amax(-1), part.abs())).exponent - 14)
            part = ((products / unit[..., None]).trunc().sum(-1) + (part / unit).trunc()) * unit
        acc = acc + part.float()
    return acc.double()


def operands(k, seed, bias=0.0):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(32, k, generator=generator).bfloat16().double() + bias for _ in range(2))
    return a, b * k**-0.5


CASES = given(
    k=st.integers(1, 256).map(lambda i: 8 * i), seed=st.integers(0, 2**31), dtype=st.sampled_from(sorted(DTYPES))
)


@settings(max_examples=60, deadline=None)
@CASES
def test_tensor_core_arithmetic_passes(k, seed, dtype):
    a, b = operands(k, seed)
    found = compare(tensor_core(a, b).to(DTYPES[dtype]), a @ b.mT, tolerance(dtype, k))
    assert found.mismatches == 0
    assert found.max_error <= found.allowed


FP8 = settings(max_examples=25, deadline=None)
FP8_CASES = given(
    blocks=st.integers(1, 40), seed=st.integers(0, 2**31), dtype=st.sampled_from(sorted(DTYPES)),
    operand=st.sampled_from(["float8_e4m3fn", "float8_e5m2"]), promoted=st.sampled_from([0, 32, 128, 256]),
)  # fmt: skip


def fp8_operands(k, seed, operand):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(32, k, generator=generator) for _ in range(2))
    return tuple(x.to(getattr(torch, operand)).double() for x in (a, b * k**-0.5))


@FP8
@FP8_CASES
def test_fp8_arithmetic_passes(blocks, seed, dtype, operand, promoted):
    k = 32 * blocks
    a, b = fp8_operands(k, seed, operand)
    allowed = tolerance(dtype, k, operand=operand, promoted_k=promoted)
    found = compare(tensor_core_fp8(a, b, promoted or k).to(DTYPES[dtype]), a @ b.mT, allowed)
    assert found.mismatches == 0


@FP8
@FP8_CASES
def test_a_missing_fp8_mma_does_not(blocks, seed, dtype, operand, promoted):
    k = 32 * blocks
    a, b = fp8_operands(k, seed, operand)
    wrong = a.clone()
    wrong[:, -32:] = 0
    allowed = tolerance(dtype, k, operand=operand, promoted_k=promoted)
    found = compare(tensor_core_fp8(wrong, b, promoted or k).to(DTYPES[dtype]), a @ b.mT, allowed)
    assert found.mismatches > 0.3 * found.elements


def test_promotion_is_held_to_more_than_fast_accumulation():
    k, operand = 8192, "float8_e4m3fn"
    a, b = fp8_operands(k, 0, operand)
    exact, fast = a @ b.mT, tensor_core_fp8(a, b, k)
    promoted = tolerance("float32", k, operand=operand, promoted_k=128)
    assert compare(fast, exact, tolerance("float32", k, operand=operand)).mismatches == 0
    assert compare(fast, exact, promoted).mismatches > 0
    assert compare(tensor_core_fp8(a, b, 128), exact, promoted).mismatches == 0


def test_integers_are_exact_but_for_their_conversion():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-128, 128, (32, 4096), generator=generator).double() for _ in range(2))
    exact = a @ b.mT
    assert compare(exact.float(), exact, tolerance("float32", 4096, operand="int8")).mismatches == 0
    wrong = a.clone()
    wrong[:, 0] += 1
    assert compare((wrong @ b.mT).float(), exact, tolerance("float32", 4096, operand="int8")).mismatches > 900


@settings(max_examples=40, deadline=None)
@CASES
def test_two_missing_products_do_not(k, seed, dtype):
    a, b = operands(k, seed)
    wrong = a.clone()
    wrong[:, -2:] = 0
    found = compare((wrong @ b.mT).to(DTYPES[dtype]), a @ b.mT, tolerance(dtype, k))
    assert found.mismatches > 0.3 * found.elements
    assert found.first == (0, 0) or found.low <= found.first <= found.high


@settings(max_examples=40, deadline=None)
@given(k=st.integers(1, 10**5), dtype=st.sampled_from(sorted(DTYPES)))
def test_tolerance_grows_with_k_and_stays_below_one_product(k, dtype):
    assert tolerance(dtype, k).scaled < tolerance(dtype, k + 1).scaled
    assert tolerance(dtype, k).scaled < k**-0.5
    assert tolerance(dtype, k, reference="float32").scaled > tolerance(dtype, k).scaled
    assert tolerance(dtype, k).relative == HALF_ULP[dtype]


def test_half_ulps_are_torchs():
    for name, dtype in DTYPES.items():
        assert HALF_ULP[name] == torch.finfo(dtype).eps / 2
        assert tolerance(name, 1).absolute == torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def test_nan_and_infinity():
    inf, nan = float("inf"), float("nan")
    allowed = tolerance("float32", 8)
    expected = torch.tensor([1.0, inf, nan, -inf, 2.0])
    assert compare(expected.clone(), expected, allowed).mismatches == 0
    found = compare(torch.tensor([nan, -inf, 1.0, -inf, 2.0]), expected, allowed)
    assert (found.mismatches, found.first, found.low, found.high) == (3, (0,), (0,), (2,))
    assert (found.max_error, found.mean_error) == (0.0, 0.0)


def test_two_weights_whose_values_cancel() -> None:
    """Each weight is rounded: the error has the size of the values, and the reference that of their difference. A key
    that is missed still shows."""
    block_scales = torch.tensor([1.0, 0.125, 0.125, 0.125], dtype=torch.float64).repeat_interleave(128)
    values = torch.randn(2, 512, generator=torch.Generator().manual_seed(0), dtype=torch.float64).clamp(-1, 1)
    values *= block_scales / 4.5 / values.square().mean().sqrt()
    values[:, 0] = torch.tensor([1.0, -1.0])
    crest = float((values.abs().amax(1) / values.square().mean(1).sqrt()).max())
    weights = torch.tensor([[1.0 + 0.99 * 2.0**-8, 1.0 - 0.99 * 2.0**-9]], dtype=torch.float64)
    ref = weights @ values
    found = weights.to(torch.bfloat16).double() @ values
    furthest = weights * (1 + 0.95 * torch.tensor([[1.0, -1.0]]) * 2.0**-8) @ values
    assert 7 < crest < 9
    assert compare(found, ref, attention_tolerance("bfloat16", 2)).mismatches > 0
    for rounded in (found, furthest):
        assert compare(rounded, ref, attention_tolerance("bfloat16", 2, crest=crest)).mismatches == 0
    missed = ref + torch.tensor([[0.2, 0.0]], dtype=torch.float64) @ values
    assert compare(missed, ref, attention_tolerance("bfloat16", 2, crest=crest)).mismatches > 100
