"""Decoding of e4m3 by bits, executed on the PTX machine: every byte, and scales over all that bf16 holds."""

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
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]

# Powers of two down to where products are denormals of bf16, what rounding to bf16 changes, and the largest there are.
SCALES = [
    *(2.0**e for e in range(-126, 8, 3)),
    *(2.0**e * m for e in (-120, -9, 0, 7) for m in (1.00390625, 1.01171875, 1.2345678, 1.9921875)),
    255.4,
]


def value_of(byte: int) -> float:
    """The definition of e4m3, of NaN what its bits would be."""
    exponent, mantissa = byte >> 3 & 15, byte & 7
    size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -size if byte & 0x80 else size


@pytest.fixture(scope="module")
def decoded() -> tuple[torch.Tensor, torch.Tensor]:
    """Every byte times every scale, and what every code of e8m0 multiplies by."""
    out = torch.empty(len(SCALES), 256, dtype=torch.bfloat16)
    words, factors = torch.arange(256).to(torch.uint8).view(torch.int32), torch.empty(64, 2, dtype=torch.int32)
    kernel = Simulation(sm_count=4).load_kernel("mini_dequant", None, "sm_90a")
    kernel(words, torch.tensor(SCALES), out, factors)
    return out, factors.view(-1).view(torch.bfloat16)


def test_every_code_of_a_scale(decoded: tuple[torch.Tensor, torch.Tensor]) -> None:
    """2^(code - 127), times 2^120; from 2^8 on, NaN included, the largest that a value may be multiplied by."""
    expected = [2.0 ** (min(code, 134) - 127 + 120) for code in range(256)]
    assert decoded[1].double().tolist() == expected


def test_every_byte_with_a_sweep_of_scales(decoded: tuple[torch.Tensor, torch.Tensor]) -> None:
    scales, (out, _) = torch.tensor(SCALES), decoded
    values = torch.tensor([value_of(byte) for byte in range(256)], dtype=torch.float64)
    expected = (values * scales.to(torch.bfloat16).double()[:, None]).float().to(torch.bfloat16)
    assert torch.equal(out.view(torch.int16), expected.view(torch.int16))
    finite = values.abs() <= 448
    assert int(finite.sum()) == 254
    one = out[SCALES.index(1.0)].double()
    assert torch.equal(one, values)
