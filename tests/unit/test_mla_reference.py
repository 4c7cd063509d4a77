"""The reference of MLA decode: by the definition, key by key, and nothing else is read."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mla_cpu import CpuMla  # noqa: E402

from cutegen.runtime.mla_decode.inputs import Draw  # noqa: E402
from cutegen.runtime.mla_decode.reference import attend, attend_dense  # noqa: E402


def naive(plan: CpuMla, q: Any, cache: Any, table: Any, lengths: Any, scale: float) -> tuple[Any, Any]:
    """Key by key, token by token."""
    batch, tokens, heads, _ = q.shape
    out, lse = torch.zeros(batch, tokens, heads, 512), torch.full((batch, heads, tokens), math.inf)
    for b in range(batch):
        for t in range(tokens):
            seen = int(lengths[b]) - (tokens - 1 - t if plan.causal else 0)
            for h in range(heads if seen > 0 else 0):
                keys = [cache[int(table[b, i // plan.page_size]), i % plan.page_size].float() for i in range(seen)]
                weights = [math.exp(scale * float(q[b, t, h].float() @ k)) for k in keys]
                lse[b, h, t] = math.log(sum(weights))
                out[b, t, h] = sum(w * k[:512] for w, k in zip(weights, keys)) / sum(weights)
    return out, lse


@pytest.mark.parametrize("causal", [True, False])
def test_reference_is_the_naive_loop(causal: bool) -> None:
    plan = type("Plan", (CpuMla,), {"causal": causal})()
    inputs = plan.draw_inputs(Draw("edges"), batch=6, query_len=3, heads=2, kv_len=33)
    out, lse = plan.reference_fn(*inputs, precision="float64")
    expected = naive(plan, *inputs)
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out.float(), expected[0], rtol=2**-8, atol=1e-5)
    torch.testing.assert_close(lse, expected[1], rtol=1e-6, atol=1e-6)
    dense = attend_dense(inputs[:1], *inputs[1:], causal=causal)
    torch.testing.assert_close(dense.float(), expected[0], rtol=2**-6, atol=2**-6)


def test_lse_by_spec() -> None:
    plan = CpuMla()
    inputs = plan.prepare_inputs(batch=3, query_len=2, heads=4, kv_len=70)
    _, lse = plan.reference_fn(*inputs)
    other = type("Plan", (CpuMla,), {"lse_base": "2", "lse_layout": "bsh"})()
    _, found = other.reference_fn(*inputs)
    assert found.shape == (3, 2, 4)
    torch.testing.assert_close(found * math.log(2.0), lse.transpose(1, 2))
    assert other.allocate_outputs(*inputs)[1].shape == (3, 2, 4)


@pytest.mark.parametrize("causal", [True, False])
def test_lengths_over_the_table_count_as_its_room(causal: bool) -> None:
    plan = type("Plan", (CpuMla,), {"causal": causal})()
    q, cache, table, lengths, scale = plan.draw_inputs(Draw(), batch=3, query_len=2, heads=4, kv_len=32)
    room = table.shape[1] * plan.page_size
    longer, lengths = torch.tensor([room + 1, room + 99, 2**31 - 1], dtype=torch.int32), torch.full_like(lengths, room)
    cache.nan_to_num_()
    table.clamp_(0, len(cache) - 1)
    for got, wanted in zip(
        plan.reference_fn(q, cache, table, longer, scale), plan.reference_fn(q, cache, table, lengths, scale)
    ):
        assert torch.equal(got, wanted)
    dense = [attend_dense((q,), cache, table, n, scale, causal=causal) for n in (longer, lengths)]
    assert torch.equal(*dense)


def test_reference_reads_nothing_beyond_the_lengths() -> None:
    q = torch.ones(1, 1, 1, 576)
    cache = torch.full((2, 16, 576), math.nan)
    cache[1, :3] = 1.0
    table = torch.tensor([[1, -5]], dtype=torch.int32)
    out, lse = attend(q, cache, table, torch.tensor([3]), 1.0, causal=False, dtype=torch.float64)
    torch.testing.assert_close(out, torch.ones(1, 1, 1, 512, dtype=torch.float64))
    assert lse.item() == pytest.approx(576 + math.log(3))
