"""The join of reductions over rows, executed on the PTX machine: shares of CTAs, warps in teams, and one CTA alone."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

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


@functools.cache
def compiled_join() -> Callable[..., None]:
    return Simulation(sm_count=4).load_kernel("mini_row_join", None, "sm_90a")


@pytest.mark.parametrize(
    ("ctas", "lines_each", "columns"),
    [(1, 1, 8), (1, 1, 520), (5, 1, 136), (20, 1, 40), (9, 4, 2056), (250, 1, 72), (100, 8, 264), (400, 1, 24)],
)
def test_shares_of_ctas_and_one_cta_for_all_have_equal_bits(ctas: int, lines_each: int, columns: int) -> None:
    """Fewer columns than warps, and more than they have in one round; lines that take teams of 2 and 4 warps."""
    count = ctas * lines_each
    lines = torch.randn(2 * count, columns, generator=torch.Generator().manual_seed(count))
    found = []
    for shares in (ctas, 1):
        total, top = torch.full((columns,), torch.nan), torch.full((columns,), torch.nan, dtype=torch.bfloat16)
        compiled_join()(lines, total, top, count, ctas, shares)
        found.append((total, top))
    assert torch.equal(found[0][0], found[1][0])
    for total, top in found:
        torch.testing.assert_close(total.double(), lines[::2].double().sum(0), rtol=0, atol=2e-6 * count)
        assert torch.equal(top, lines[1::2].max(0).values.bfloat16())
