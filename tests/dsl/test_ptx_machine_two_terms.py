"""Values as sums of two values of e4m3, executed on the PTX machine: bf16 is exact, f32 as near as bf16 is."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

import torch

from cutegen.machine import Simulation
from cutegen.machine.host import missing_tool

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
ROW = 1024
STEP = 2.0**-9  # the least value of e4m3


@pytest.fixture(scope="module")
def values() -> torch.Tensor:
    """Rows of bf16: every fraction with exponents 0 to -7 as the largest ones are, in rows of sizes all over the range
    of bf16, down to denormals; then f32, and zeros."""
    fractions = torch.arange(128).float() / 128 + 1
    every = torch.cat([fractions * 2.0**-e for e in range(8)])
    signs = torch.where(torch.arange(ROW) % 3 == 0, -1.0, 1.0)
    rows = [every * signs * 2.0**e for e in (127, 60, 7, 1, 0, -9, -60, -118)]
    rows += [(every * 2.0**-125).to(torch.bfloat16).float(), torch.randn(ROW), torch.zeros(ROW)]
    return torch.stack(rows)


@pytest.fixture(scope="module")
def found(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(terms [n, 2, ROW], factors [n])."""
    out, factors = torch.empty(len(values), 2, ROW, dtype=torch.int8), torch.empty(len(values))
    kernel = Simulation(sm_count=4).load_kernel("mini_two_terms", None, "sm_100a")
    kernel(values, values.abs().amax(1), out, factors)
    return out.view(torch.float8_e4m3fn).double(), factors.double()


def test_bf16_is_exact(values: torch.Tensor, found: tuple[torch.Tensor, torch.Tensor]) -> None:
    terms, factors = found
    assert bool(torch.isfinite(terms).all())
    sums = terms.sum(1) * factors[:, None]
    assert torch.equal(sums[:8], values[:8].double())
    assert torch.equal(torch.log2(factors[:8]).round().exp2(), factors[:8])
    assert float(sums[-1].abs().max()) == 0.0


def test_the_largest_value_fits(values: torch.Tensor, found: tuple[torch.Tensor, torch.Tensor]) -> None:
    terms, _ = found
    largest = terms.sum(1).abs().amax(1)[:8]
    assert float(largest.min()) >= 128
    assert float(largest.max()) < 256


def test_f32_is_as_near_as_bf16(values: torch.Tensor, found: tuple[torch.Tensor, torch.Tensor]) -> None:
    terms, factors = found
    scaled = values[-2].double() / factors[-2]
    errors = (terms[-2].sum(0) - scaled).abs()
    assert bool((errors <= torch.maximum(2.0**-8 * scaled.abs(), torch.tensor(STEP))).all())
    one = (terms[-2, 0] - scaled).abs()
    assert float((one / scaled.abs()).max()) > 2.0**-4  # what the second term is for
