"""MlaPlan with sparse keys on the CPU: its reference, its random problems, what it moves and refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mla_cpu import CpuMla  # noqa: E402

from cutegen.families.mla_decode.sparse_problems import list_small_sparse_problems, list_sparse_problems  # noqa: E402
from cutegen.runtime.accuracy import compare  # noqa: E402
from cutegen.runtime.mla_decode.cache_format import CacheFormat  # noqa: E402
from cutegen.runtime.mla_decode.inputs import Draw  # noqa: E402
from cutegen.runtime.mla_decode.reference import attend_copied  # noqa: E402

SHAPE = {"batch": 3, "query_len": 2, "heads": 4, "topk": 37}


class Sparse(CpuMla):
    causal, topk = False, (1, 300)
    cache_format = CacheFormat(latent_offset=0, scale_offset=512, scale_block=128, rope_offset=528, row_bytes=656)


def arguments(plan: CpuMla, draw: Draw | None = None) -> list[Any]:
    inputs = plan.draw_inputs(draw or Draw("random"), **SHAPE)
    return [*inputs, *plan.allocate_outputs(*inputs), *plan.allocate_scratch(*inputs)]


def mismatches(plan: CpuMla, draw: Draw) -> int:
    torch.manual_seed(3)
    inputs = plan.draw_inputs(draw, **SHAPE)
    expected = plan.reference_fn(*inputs, precision="float64")
    found = plan.kernel_fn(*inputs)
    pairs = enumerate(zip(found, expected))
    return sum(compare(a, b, plan.output_tolerance(i, inputs, "float64")).mismatches for i, (a, b) in pairs)


DRAWS = [
    Draw("random", peaked=True, pitch=True),
    Draw("edges", keys="holes"),
    Draw("edges", keys="repeated", peaked=True),
    Draw(keys="none"),
    Draw("empty"),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_the_reference_is_attention_over_the_rows_that_are_named(draw: Draw) -> None:
    plan = Sparse()
    assert not mismatches(plan, draw)
    q, cache, indices, lengths, scale = inputs = plan.draw_inputs(draw, **SHAPE)
    out, lse = plan.reference_fn(*inputs, precision="float64")
    rows = plan.unpack(cache).flatten(0, 1).double()
    for b, t in ((0, 0), (1, 1), (2, 0)):
        keys = [i for i in indices[b, t, : int(lengths[b, t])].tolist() if 0 <= i < len(rows)]
        scores = q[b, t].double() @ rows[keys].T * scale
        expected = scores.softmax(-1) @ rows[keys][:, :512] if keys else torch.zeros(4, 512).double()
        assert torch.allclose(out[b, t].double(), expected, rtol=2.0**-7, atol=1e-6)
        total = scores.exp().sum(-1).log() if keys else torch.full((4,), math.inf).double()
        assert torch.allclose(lse[b, :, t].double(), total, rtol=1e-5)
    gathered = attend_copied((q,), plan.unpack, cache, indices, lengths, scale)
    assert torch.allclose(
        gathered.float(), out.float(), rtol=0.05, atol=0.05 * float(out.float().square().mean().sqrt()) + 1e-9
    )


@pytest.mark.parametrize(
    ("fault", "draw"),
    [
        ("past the length", Draw("random", peaked=True)),
        ("none counts", Draw("random", keys="holes")),
        ("twice counts once", Draw("random", keys="repeated")),
    ],
)
def test_faults_are_seen(fault: str, draw: Draw) -> None:
    assert mismatches(Sparse(fault), draw)


def test_rows_that_no_index_names_are_nan_and_indices_that_do_not_count_anything() -> None:
    plan = Sparse()
    _, cache, indices, lengths, _ = plan.draw_inputs(Draw("random", keys="holes"), **SHAPE)
    rows = cache.flatten(0, 1)
    counts = torch.arange(SHAPE["topk"]) < lengths[..., None]
    named = indices[counts].long()
    named = named[(named >= 0) & (named < len(rows))].unique()
    other = torch.ones(len(rows), dtype=torch.bool)
    other[named] = False
    assert bool((rows[other] == 0xFF).all())
    assert not bool((rows[named] == 0xFF).all(-1).any())
    wrong = set(indices[counts].tolist()) - set(named.tolist())
    assert wrong == {-1, len(rows), 2**31 - 1, -(2**31)}
    assert len(set(indices[~counts].tolist())) > 1
    repeated = plan.draw_inputs(Draw(keys="repeated"), **SHAPE)[2]
    assert all(len(set(token.tolist())) < SHAPE["topk"] for token in repeated.flatten(0, 1))


def test_each_token_reads_its_own_keys() -> None:
    plan = Sparse()
    dims = {**SHAPE, "query_len": 1}
    (flops, moved), (one, once) = (plan._algorithmic_flops_bytes(**d) for d in (SHAPE, dims))
    assert (flops, moved) == (2 * one, 2 * once)
    assert once == 3 * 37 * 656 + 3 * 4 * (576 + 512) * 2 + 3 * 4 * 4
    inputs = plan.draw_inputs(Draw("empty"), **SHAPE)
    assert plan.count_work(SHAPE, inputs)[0] == 0
    assert plan.problem_dims(*inputs) == SHAPE
    assert plan.workspace_shapes(3, 4, 4) == plan.workspace_shapes(1, 4, 4)
    assert [plan.work(3, 2, 4), CpuMla().work(3, 2, 4)] == [(6, 4), (3, 8)]


@pytest.mark.parametrize(
    ("position", "change", "said"),
    [
        (2, lambda t: t.long(), "indices: has dtype int64, needs int32"),
        (2, lambda t: t[:, 0], "indices: has shape (3, 37) of rank 2, needs int32[batch, query_len, topk]"),
        (2, lambda t: t[:, :1], "indices: shape[1] is 1, but query_len is 2"),
        (2, lambda t: t[:2], "indices: shape[0] is 2, but batch is 3"),
        (2, lambda t: t.repeat(1, 1, 9), "indices: shape[2]: topk is 333; this kernel is promised 1 <= topk <= 300"),
        (2, lambda t: t[..., :0], "indices: shape[2] (topk) is 0; keep one index"),
        (2, lambda t: t.to("meta"), "indices: is a meta tensor"),
        (2, lambda t: t.mT.contiguous().mT, "indices: stride(2) is 2, needs 1"),
        (2, lambda t: None, "indices"),
        (3, lambda n: n[:, 0], "topk_length: has shape (3,) of rank 1"),
        (3, lambda n: n.float(), "topk_length: has dtype float32, needs int32"),
        (1, lambda c: c[:, :8], "kv_cache: shape[1] is 8, but page_size is 16"),
        (1, lambda c: c[:0], "kv_cache: shape[0] (pages) is 0"),
    ],
)
def test_what_does_not_fit_is_refused(position: int, change: Any, said: str) -> None:
    plan = Sparse()
    values = arguments(plan)
    values[position] = change(values[position])
    with pytest.raises((TypeError, ValueError)) as caught:
        plan.launch_fn(*values)
    assert said in str(caught.value)
    assert not plan.launched


def test_tokens_and_heads_need_not_lie_as_rows() -> None:
    plan = Sparse()
    values = arguments(plan)
    values[0] = values[0].transpose(1, 2).contiguous().transpose(1, 2)
    plan.launch_fn(*values)
    assert plan.launched == ["seesaw"]


def test_problems_keep_to_the_promise() -> None:
    for problem in (*list_sparse_problems(Sparse()), *list_small_sparse_problems(Sparse(), 4)):
        assert 1 <= problem.dims["topk"] <= 300
    kinds = {problem.draw.keys for problem in list_sparse_problems(Sparse())}
    assert kinds == {"distinct", "repeated", "holes", "none"}
