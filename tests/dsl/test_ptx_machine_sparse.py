"""MLA decode with sparse keys, executed on the PTX machine: lengths, holes, repeats, indices of no row, and breaks."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

import torch
from gemm_specs import resolve_text
from mla_machine import UNIT_1, assert_right, loaded_in, unchanged
from mla_specs import EDGES

from cutegen.machine import Simulation, assert_equal_bits, assert_passes, load_resolution, run
from cutegen.machine.host import missing_tool
from cutegen.runtime.mla_decode.inputs import Draw

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
NAME, BF16, V4 = (f"mla_sparse_{name}_sm90a" for name in ("v32", "bf16", "v4"))
NOTHING = {"before": unchanged}  # that the spec promises; parts are guessed by lengths


def both_lengths(
    q: Any, cache: Any, indices: Any, lengths: Any, second: Any, others: Any, more: Any, *rest: Any
) -> Any:
    """`unchanged`, of two caches."""
    return {3: lengths, 6: more}


def dims(batch: int, query_len: int, heads: int, topk: int) -> dict[str, int]:
    return {"batch": batch, "query_len": query_len, "heads": heads, "topk": topk}


@pytest.mark.parametrize(
    ("name", "tiling", "shape", "draw", "sm_count"),
    [
        (NAME, "seesaw", dims(3, 2, 3, 257), Draw("edges", peaked=True), 4),
        (NAME, "seesaw", dims(1, 1, 70, 130), Draw(keys="holes"), 2),
        (NAME, "seesaw", dims(2, 2, 5, 90), Draw("random", keys="repeated", pitch=True), 3),
        (NAME, "seesaw", dims(2, 1, 4, 70), Draw(keys="none"), 2),
        (NAME, UNIT_1, dims(2, 2, 20, 330), Draw("edges", keys="holes"), 11),
        (NAME, UNIT_1, dims(1, 1, 1, 1), Draw(), 2),
        (BF16, "seesaw", dims(3, 2, 70, 257), Draw("edges", peaked=True, pitch=True), 4),
        (BF16, "seesaw", dims(2, 1, 3, 400), Draw("random", keys="holes"), 2),
        (BF16, "seesaw", dims(2, 1, 4, 70), Draw(keys="none"), 2),
        (BF16, UNIT_1, dims(2, 2, 20, 330), Draw("edges", keys="repeated"), 11),
        (V4, "seesaw", dims(3, 2, 70, 257), Draw("edges", peaked=True, pitch=True), 4),
        (V4, "seesaw", dims(2, 1, 3, 400), Draw("random", keys="holes"), 2),
        (V4, "seesaw", dims(2, 1, 4, 70), Draw(keys="none"), 2),
    ],
)
def test_shipped_spec(name: str, tiling: str, shape: dict[str, int], draw: Draw, sm_count: int) -> None:
    simulation = Simulation(sm_count, 1, before=both_lengths if name == V4 else unchanged)
    assert_passes(loaded_in(simulation, name), shape, tiling=tiling, draw=draw)
    assert simulation.unknown() == []


def test_a_cache_with_one_scale_in_small_pages_and_a_sink() -> None:
    simulation = Simulation(3, 1, before=lambda q_nope, q_pe, cache, indices, lengths, *others: {4: lengths})
    subject = load_resolution(resolve_text(EDGES["sparse"], name="sparse"), simulation)
    assert_passes(subject, dims(2, 2, 5, 140), draw=Draw("edges", keys="holes", peaked=True))
    assert_passes(subject, dims(1, 1, 5, 400))  # in parts, of which the sink is in none


@pytest.mark.parametrize("name", ["sparse_two", "sparse_two_bf16"])
def test_two_caches_of_pages_of_any_size(name: str) -> None:
    simulation = Simulation(3, 1, before=both_lengths)
    subject = load_resolution(resolve_text(EDGES[name], name=name), simulation)
    assert_passes(subject, dims(2, 2, 5, 140), draw=Draw("edges", keys="holes", peaked=True))
    assert_passes(subject, dims(1, 1, 5, 400))


def test_keys_of_two_caches_are_those_of_one() -> None:
    """Tokens with keys in both, in one of them alone, and in none."""
    plan = loaded_in(Simulation(3, before=both_lengths), V4).plan
    assert plan
    q, cache, indices, _, second, others, _, sink, scale = plan.draw_inputs(Draw(), **dims(4, 1, 5, 70))
    lengths = torch.tensor([[70], [70], [0], [0]], dtype=torch.int32)
    more = torch.tensor([[70], [0], [70], [-3]], dtype=torch.int32)
    inputs = (q, cache, indices, lengths, second, others, more, sink, scale)
    out, lse = plan.kernel_fn(*inputs)
    assert_right(plan, inputs, (out, lse))
    both = ((plan.unpack(cache), indices, lengths), (plan.unpack(second), others, more))
    for b, count in enumerate((140, 70, 70)):
        named = [(rows.flatten(0, 1), at[b, 0, : max(0, int(n[b]))].long()) for rows, at, n in both]
        keys = torch.cat([rows[at] for rows, at in named]).double()
        assert len(keys) == count
        assert torch.allclose(lse[b, :, 0].double(), torch.logsumexp(q[b, 0].double() @ keys.T * scale, -1), atol=1e-3)
    assert bool((out[3] == 0).all())
    assert bool(lse[3].isposinf().all())


def test_an_index_of_no_row_is_no_key_and_reads_nothing() -> None:
    plan = loaded_in(Simulation(**NOTHING), NAME).plan
    assert plan
    q, cache, indices, lengths, scale = plan.draw_inputs(Draw(), **dims(1, 2, 4, 70))
    rows = cache.shape[0] * cache.shape[1]
    wrong = indices.clone()
    wrong[0, 0, 3], wrong[0, 0, 65], wrong[0, 1, 0], wrong[0, 1, 69] = rows, -1, 2**31 - 1, -(2**31)
    found = plan.kernel_fn(q, cache, wrong, lengths, scale)
    assert_right(plan, (q, cache, wrong, lengths, scale), found)
    fewer = torch.stack([row[(row >= 0) & (row < rows)] for row in wrong[0]])[None].contiguous()
    out, _ = plan.reference_fn(q, cache, fewer, lengths - 2, scale)
    assert torch.allclose(found[0].float(), out.float(), atol=0.05, rtol=0.02)


def test_equal_inputs_give_equal_bits() -> None:
    simulation = Simulation(5, **NOTHING)
    assert_equal_bits(loaded_in(simulation, NAME), simulation, seeds=2, **dims(2, 1, 3, 200))


@pytest.mark.parametrize(
    ("name", "pattern", "instead", "draw", "told"),
    [
        (NAME, r"fence\.proxy\.async\.shared::cta;(?=\s+bar\.warp\.sync)", "", Draw(), "without fence.proxy.async"),
        (BF16, r"fence\.proxy\.async\.shared::cta;(?=\s+wgmma\.fence)", "", Draw(), "without fence.proxy.async"),
        (BF16, r"cp\.async\.mbarrier\.arrive\.noinc[^;]*;", "", Draw(), "deadlock|wait"),
        (NAME, r"vote\.sync\.ballot\.b32\s+(\S+), [^;]*;", r"mov.b32 \1, -1;", Draw(keys="holes"), "of 2048 wrong"),
    ],
    ids=["no proxy fence", "no proxy fence behind copies", "copies are not counted", "none counts"],
)
def test_breaks_are_told(name: str, pattern: str, instead: str, draw: Draw, told: str) -> None:
    def mutate(ptx: str) -> str:
        changed, n = re.subn(pattern, instead, ptx)
        assert n, f"nothing in the PTX matches {pattern}"
        return changed

    simulation = Simulation(mutate=mutate, **NOTHING)
    result = run(loaded_in(simulation, name), dims(1, 1, 4, 130), tiling="seesaw", draw=draw)
    assert re.search(told, "\n".join(result.detail)), result.detail
