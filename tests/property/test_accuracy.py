"""The tolerance lets through what a tensor core does and nothing that a wrong kernel does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutegen.runtime.accuracy import HALF_ULP, compare, tolerance

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
