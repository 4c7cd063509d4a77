"""The join of MLA decode, executed on the PTX machine: each way to spread rows and parts over warps and lanes."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

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

SHARE, ALL = 1, 2  # of split_join.py


@functools.cache
def compiled_join(column_blocks: int) -> Callable[..., None]:
    return Simulation(sm_count=132).load_kernel("mini_join", column_blocks, "sm_90a")


def columns_of_row(blocks: int) -> list[int]:
    """Columns of a slot's row: block after block, of which each has its share of both halves of the columns; and within
    32 columns two of a fragment, two of each of the next three, for each of four lanes."""
    share = 256 // blocks
    return [
        256 * half + share * block + 32 * i + 2 * lane + 8 * fragment + column
        for block in range(blocks)
        for half in range(2)
        for i in range(share // 32)
        for lane in range(4)
        for fragment in range(4)
        for column in (0, 1)
    ]


def expect(partial_out: Any, partial_lse: Any, slots: list[int], blocks: int) -> tuple[Any, Any]:
    """partial_lse: (slots, blocks, rows, 2). The LSE is that of the first block; all have the same one."""
    lse, factors = partial_lse[slots].double().unbind(-1)
    lse = lse[:, 0] * torch.log(torch.tensor(2.0))
    total = torch.logsumexp(lse, 0)
    weights = torch.exp(lse - torch.where(total > -torch.inf, total, 0.0))
    out = torch.empty(partial_out.shape[1:], dtype=torch.float64)
    by_column = factors.repeat_interleave(512 // blocks, 1).transpose(1, 2)  # (slots, rows, 512)
    out[:, columns_of_row(blocks)] = (weights[..., None] * by_column * partial_out[slots].double()).sum(0)
    return out, torch.where(total > -torch.inf, total / torch.log(torch.tensor(2.0)), torch.inf)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(
    ("rows", "splits"),
    [(64, 2), (3, 3), (5, 7), (16, 8), (20, 8), (64, 5), (9, 16), (33, 16), (64, 17), (32, 33), (1, 64), (2, 132)],
)
def test_join(rows: int, splits: int, blocks: int) -> None:
    generator = torch.Generator().manual_seed(rows * splits)
    origin, lo, behind = 2, 1, 1  # rows before and behind the block belong to others, and so do parts
    slots = [2 * lo + 1, *range(2 * lo + 2, 2 * (lo + splits), 2)]
    every = origin + rows + behind
    partial_out = torch.full((2 * (lo + splits), every, 512), torch.nan, dtype=torch.float16)
    partial_lse = torch.full((2 * (lo + splits), blocks, every, 2), torch.nan)
    block = slice(origin, origin + rows)
    partial_out[slots, block] = torch.randn(len(slots), rows, 512, generator=generator).half()
    drawn = 40 * torch.randn(len(slots), blocks, rows, 2, generator=generator)
    drawn[..., 0] = drawn[:, :1, :, 0]
    partial_lse[slots, :, block] = drawn
    partial_lse[slots, :, origin, 0] = -torch.inf  # a row that sees no key
    partial_out[slots, origin] = 0.0
    partial_lse[slots[-1], :, block, 0] = -torch.inf  # a part without keys that the rows see
    if rows > 1:
        partial_lse[slots[0], :, origin + 1] = torch.nan  # a part that saw one
    out, lse = torch.full((every, 512), -7.0), torch.full((every,), -7.0)
    compiled_join(blocks)(partial_out, partial_lse.flatten(0, 1), out, lse, origin, rows, lo, splits, SHARE)
    expected_out, expected_lse = expect(partial_out, partial_lse, slots, blocks)
    torch.testing.assert_close(out[block].double(), expected_out[block], rtol=1e-5, atol=1e-5, equal_nan=True)
    torch.testing.assert_close(lse[block].double(), expected_lse[block], rtol=1e-5, atol=1e-5)
    assert lse[origin + rows - 1 if rows == 1 else origin + 1] == torch.inf
    by_one = torch.full_like(out, -7.0), torch.full_like(lse, -7.0)
    compiled_join(blocks)(partial_out, partial_lse.flatten(0, 1), *by_one, origin, rows, lo, splits, ALL)
    for tensor, same in zip((out, lse), by_one):
        assert torch.equal(tensor.view(torch.int32), same.view(torch.int32))  # whoever joins, the bits are these
        assert (tensor[:origin] == -7.0).all()
        assert (tensor[origin + rows :] == -7.0).all()
