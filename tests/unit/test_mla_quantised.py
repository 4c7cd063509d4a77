"""MlaPlan over a quantised cache on the CPU: what it computes with, moves and refuses, and its random problems."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mla_cpu import CpuMla  # noqa: E402

from cutegen.runtime.accuracy import compare  # noqa: E402
from cutegen.runtime.mla_decode.cache_format import CacheFormat  # noqa: E402
from cutegen.runtime.mla_decode.inputs import Draw  # noqa: E402

SHAPE = {"batch": 3, "query_len": 2, "heads": 4, "kv_len": 70}


class Quantised(CpuMla):
    cache_format = CacheFormat(latent_offset=0, scale_offset=512, scale_block=128, rope_offset=528, row_bytes=656)


def arguments(plan: CpuMla, draw: Draw | None = None) -> list[Any]:
    inputs = plan.draw_inputs(draw or Draw("random"), **SHAPE)
    return [*inputs, *plan.allocate_outputs(*inputs), *plan.allocate_scratch(*inputs)]


def test_a_quantised_cache_is_computed_with_as_it_unpacks() -> None:
    plan = Quantised()
    values = arguments(plan, Draw("random", peaked=True, pitch=True))
    inputs = values[:5]
    assert inputs[1].dtype == torch.uint8
    expected = plan.reference_fn(*inputs, precision="float64")
    for i, found in enumerate(plan.kernel_fn(*inputs)):
        assert bool(found.isfinite().any())
        assert not compare(found, expected[i], plan.output_tolerance(i, inputs, "float32")).mismatches
    keys = CpuMla().reference_fn(inputs[0], plan.unpack(inputs[1]), *inputs[2:], precision="float64")
    assert all(torch.equal(a, b) for a, b in zip(keys, expected))


def test_a_quantised_cache_has_every_byte_and_nan_in_dead_slots() -> None:
    plan = Quantised()
    _, cache, table, lengths, _ = plan.draw_inputs(Draw("random"), **SHAPE)
    live = torch.zeros(cache.shape[:2], dtype=torch.bool)
    for row, length in zip(table.tolist(), lengths.tolist()):
        for key in range(length):
            live[row[key // plan.page_size], key % plan.page_size] = True
    assert set(cache[live][:, :512].unique().tolist()) == set(range(256)) - {0x7F, 0xFF}
    assert bool((cache[~live] == 0xFF).all())


def test_a_quantised_cache_moves_its_own_bytes() -> None:
    dims = {"batch": 2, "query_len": 1, "heads": 4, "kv_len": 100}
    (flops, moved), (same, plain) = (p._algorithmic_flops_bytes(**dims) for p in (Quantised(), CpuMla()))
    assert (flops, plain - moved) == (same, 200 * (1152 - 656))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda cache: Quantised().unpack(cache), "kv_cache: has dtype bfloat16, needs uint8: write it by `pack`"),
        (
            lambda cache: cache.view(torch.int8),
            "kv_cache: has dtype int8, needs uint8: pass kv_cache.view(torch.uint8)",
        ),
        (lambda cache: cache[..., :640], "kv_cache: shape[2] is 640, but row_bytes is 656"),
        (lambda cache: torch.cat((cache, cache[..., :8]), -1)[..., :656], "kv_cache: stride(1) is 664"),
    ],
)
def test_a_cache_of_another_format_is_refused(change: Any, said: str) -> None:
    plan = Quantised()
    values = arguments(plan)
    values[1] = change(values[1])
    with pytest.raises((TypeError, ValueError)) as caught:
        plan.launch_fn(*values)
    assert said in str(caught.value)


def test_packing_for_a_cache_that_is_not_quantised() -> None:
    plan = CpuMla()
    rows = torch.randn(2, 16, 576)
    assert torch.equal(plan.pack(rows), rows.bfloat16())
    assert torch.equal(plan.unpack(rows.bfloat16()), rows.bfloat16())
    with pytest.raises(ValueError, match="no scales"):
        plan.pack(rows, torch.ones(2, 16, 4))


class OneScale(CpuMla):
    cache_format = CacheFormat(latent_offset=0, scale_offset=0, scale_block=0, rope_offset=512, row_bytes=576)


def test_a_scale_of_the_cache_scales_keys_and_values() -> None:
    plan = OneScale()
    q, cache, table, lengths, scale, softmax_scale = plan.draw_inputs(Draw("random", peaked=True), **SHAPE)
    assert (tuple(scale.shape), scale.dtype, cache.shape[2]) == ((1,), torch.float32, 576)
    found = plan.reference_fn(q, cache, table, lengths, scale, softmax_scale, precision="float64")
    keys = plan.unpack(cache).double() * float(scale)
    expected = CpuMla().reference_fn(q, keys, table, lengths, softmax_scale, precision="float64")
    for a, b in zip(found, expected):
        assert torch.allclose(a.double(), b.double(), rtol=2.0**-7, atol=1e-6)


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (torch.ones(2), "kv_scale: shape[0] is 2"),
        (torch.ones(1).double(), "kv_scale: has dtype float64, needs float32"),
        (1.0, "kv_scale"),
    ],
)
def test_a_scale_of_the_cache_is_refused(scale: Any, said: str) -> None:
    plan = OneScale()
    values = arguments(plan)
    values[4] = scale
    with pytest.raises((TypeError, ValueError)) as caught:
        plan.launch_fn(*values)
    assert said in str(caught.value)
