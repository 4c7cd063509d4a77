"""Gathered rows in a plan: its dims, inputs, reference and baselines, on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from gemm_specs import (
    BLOCKS,
    LABELS,
    PLAIN,
    ROW_SCALES,
    bind_text,
    gathered,
    gathered_scales,
    group_scaled,
    resolve_text,
)
from test_scaled_baselines import plan_of

from cutegen.arch import ARCHS, DEVICES
from cutegen.diagnostics import SpecError
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.dense_baselines import list_dense_baselines
from cutegen.families.gemm.explain import read_shape
from cutegen.families.gemm.features.gather.gather_warps import gather_warps
from cutegen.families.gemm.features.gather.gather_ways import COPIED_ROWS
from cutegen.families.gemm.features.gather.gathered_baselines import after_gather
from cutegen.families.gemm.features.groups.grouped_proving import PROVING
from cutegen.families.gemm.search_space import explore
from cutegen.families.gemm.tiling_numbers import derive
from cutegen.families.proving import Baseline
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.gemm.gathered_rows import GatheredRows, take_rows
from cutegen.runtime.gemm.product import Product
from cutegen.runtime.gemm.row_copy import RowCopy
from cutegen.runtime.gemm.row_groups import Deal

NAN = float("nan")


def test_rows_that_are_not_there_are_zero() -> None:
    value = torch.tensor([[1.0, 2.0], [NAN, NAN]])
    index = torch.tensor([0, -1, 2, 0, 2**31 - 1], dtype=torch.int32)
    assert take_rows(value, index, 0).tolist() == [[1, 2], [0, 0], [0, 0], [1, 2], [0, 0]]
    assert take_rows(value.mT, index, 1).tolist() == [[1, 0, 0, 1, 0], [2, 0, 0, 2, 0]]
    assert take_rows(value[:0], index, 0).tolist() == [[0, 0]] * 5


def test_the_rows_of_the_operand_are_a_dim_of_their_own(tmp_path: Path) -> None:
    plan = plan_of(gathered(PLAIN), tmp_path)
    assert (list(plan.dims), plan.roles, plan.mainloop) == (["t", "m", "n", "k"], ("m", "n", "k", ()), "a[rows] @ b")
    inputs = plan.prepare_inputs(t=5, m=40, n=16, k=8)
    a, rows, b = inputs
    assert (a.shape, rows.shape) == ((5, 8), (40,))
    assert 0 <= rows.min() <= rows.max() < 5
    assert torch.equal(plan.reference_fn(*inputs), (a.float()[rows.long()] @ b.float().mT).bfloat16())
    # Five rows of a, forty of d.
    assert plan.count_work({"t": 5, "m": 40, "n": 16, "k": 8}, inputs)[1] == 2 * (5 * 8 + 16 * 8 + 40 * 16) + 4 * 40
    lost = plan.draw_inputs("lost", t=5, m=400, n=16, k=8)[1]
    assert 0 < int(((lost < 0) | (lost >= 5)).sum()) < 200


def test_a_permutation_has_the_rows_of_the_product() -> None:
    problem = bind_text(gathered(PLAIN).replace("[t, k]", "[m, k]"))
    assert problem.gather
    assert problem.gather.extent == problem.m


def test_a_shape_may_name_the_rows_to_gather_from() -> None:
    shape = {"m": 64, "n": 32, "k": 16}
    problem = bind_text(gathered(PLAIN))
    assert read_shape(problem, {"t": 7, **shape}) == read_shape(problem, shape)


def test_what_is_gathered_is_no_part_of_the_bytes_by_tma() -> None:
    problem = bind_text(gathered(PLAIN))
    for swap_ab, by_tma in ((False, 256), (True, 128)):
        text = gathered(PLAIN) + f"tiling: {{tile: [128, 256, 64], swap_ab: {str(swap_ab).lower()}}}\n"
        tiling = resolve_text(text).resolved.default
        assert tiling.numbers.stage_bytes == by_tma * 64 * 2
        assert [(r.warps.first, r.warps.last) for r in tiling.model.roles if r.name == "gather warps"] == [(2, 3)]
    assert gather_warps(problem, tiling.candidate) == 2
    assert derive(bind_text(PLAIN), tiling.candidate).stage_bytes == (128 + 256) * 64 * 2


def test_rows_that_nobody_names_are_nan_and_padding_names_any(tmp_path: Path) -> None:
    plan = plan_of(gathered(LABELS), tmp_path)
    torch.manual_seed(0)
    inputs: dict[str, Any] = dict(
        zip((a.name for a in plan.inputs), plan.draw_inputs(Deal("random"), t=50, m=400, n=16, k=8, g=3))
    )
    live = inputs["group"] >= 0
    named = inputs["rows"][live]
    named = named[(named >= 0) & (named < 50)].long().unique()
    wrong = inputs["a"].isnan().any(1)
    assert not wrong[named].any()
    assert wrong.sum() == 50 - len(named)
    assert ((inputs["rows"][~live] < 0) | (inputs["rows"][~live] >= 50)).any()


@pytest.mark.parametrize("text", [PLAIN, LABELS], ids=["dense", "labels"])
def test_libraries_multiply_what_index_select_has_gathered(text: str, tmp_path: Path) -> None:
    plan = plan_of(gathered(text), tmp_path)
    groups = {"g": 2} if text == LABELS else {}
    inputs = plan.prepare_inputs(t=60, m=256, n=16, k=8, **groups)
    outputs = plan.allocate_outputs(*inputs)
    outputs[0].zero_()
    found = PROVING.list_baselines(plan) if groups else list_dense_baselines(plan)
    baseline = next(b for b in found if b.name == "torch.mm")
    assert baseline.does.startswith("index_select, then cuBLAS")
    launch = baseline.bind(inputs, outputs)
    for value in inputs[:1]:
        value.mul_(2.0)  # the gather is a part of the launch
    launch()
    expected = plan.reference_fn(*inputs)
    if groups:
        expected = expected.masked_fill(plan.free_elements(0, inputs), 0.0)
    assert torch.allclose(outputs[0].float(), expected.float(), rtol=0.02, atol=0.02)


def test_no_cluster_shares_what_each_cta_gathers() -> None:
    assert resolve_text(gathered(PLAIN)).resolved.default.candidate.cluster == (2, 1)
    assert resolve_text(gathered(LABELS)).resolved.default.candidate.cluster == (1, 1)
    few = gathered(PLAIN) + "dims: {m: 16, n: 8192, k: 4096}\ntiling: {swap_ab: true}\n"
    assert resolve_text(few).resolved.default.candidate.cluster[0] == 1


def test_clusters_share_copies_of_rows() -> None:
    found = resolve_text(gathered(LABELS, "copy")).resolved
    assert (found.default.candidate.cluster, found.default.numbers.multicast) == ((1, 2), (2, 1))
    assert [r.name for r in found.default.model.roles][:2] == ["load warp", "idle warps"]
    assert [k.name for k in found.built] == [found.default.name, "copy_rows"]
    assert [k.name for k in resolve_text(gathered(LABELS)).resolved.built] == [found.default.name]


@pytest.mark.parametrize(("m", "how"), [(None, "copy"), (COPIED_ROWS - 1, "cp_async"), (COPIED_ROWS, "copy")])
def test_many_rows_are_copied(m: int | None, how: str) -> None:
    known = f"dims: {{m: {m}, n: 4096, k: 4096}}\n" if m else ""
    assert resolve_text(gathered(PLAIN, "") + known).resolved.default.candidate.gather == how


def test_a_tuner_tries_both_ways() -> None:
    resolved = resolve_text(gathered(PLAIN, "")).resolved
    found = islice(explore(resolved.problem, {}, ARCHS["sm_90a"], DEVICES["h200"], Shape(64, 4096, 4096), False), 24)
    assert {f.candidate.gather for f in found} == {"cp_async", "copy"}


def test_copies_are_scratch(tmp_path: Path) -> None:
    plan = plan_of(gathered_scales(BLOCKS, how="copy"), tmp_path)
    dims = {"t": 5, "m": 41, "n": 16, "k": 272}
    # Scales in columns of a multiple of 16 bytes, as TMA reads them.
    assert plan.workspace_shapes(**dims) == {"copied_a": (41 * 272,), "copied_sa": (44 * 3,)}
    assert [s.dtype for s in plan.scratch] == ["float8_e4m3fn", "float32"]
    assert plan_of(gathered_scales(BLOCKS), tmp_path / "other").scratch == ()
    with pytest.raises(ValueError, match="use a tiling that gathers rows by cp_async"):
        plan.workspace_shapes(**{**dims, "m": 2**24})


def test_what_a_copy_replaces() -> None:
    inputs = (
        TensorArg("b", "bfloat16", ("n", "k"), 1),
        TensorArg("rows", "int32", ("m",), 0),
        TensorArg("a", "bfloat16", ("t", "k"), 1),
        TensorArg("scale", "float32", ("t",), 0),
    )
    copy = RowCopy(GatheredRows("a", "rows", rows="m", of="t", scales=("scale",)), inputs)
    given = (torch.zeros(2, 3), torch.tensor([1, 0]), torch.arange(6.0).view(2, 3), torch.tensor([7.0, 8.0]), None)
    scratch = (torch.full((9,), NAN), torch.full((2,), NAN))

    launched = []

    def launch(a: Any, scale: Any, rows: Any, copied_a: Any, copied_scale: Any, ctas: int) -> None:
        copied_a.copy_(a[rows])
        copied_scale.copy_(scale[rows])
        launched.append(ctas)

    b, a, scale, rest = copy.run(launch, given, scratch, 2, 3)
    assert (b is given[0], a.tolist(), scale.tolist(), rest) == (True, [[3, 4, 5], [0, 1, 2]], [8, 7], None)
    large = (torch.empty(300), torch.empty(100))
    for sms in (None, 5, 132):
        copy.run(lambda *values: launched.append(values[-1]), given, large, 100, 3, sms)
    assert launched == [1, 13, 5, 13]


def test_two_threads_on_one_stream_do_not_mix_their_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same scratch, and a call is two launches: nothing may come between them."""
    plan = plan_of(gathered(PLAIN, "copy"), tmp_path)
    both = threading.Barrier(2)

    def copy(a: Any, rows: Any, copied_a: Any, ctas: int) -> None:
        copied_a.copy_(a[rows.long()])
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # lets the other thread copy, if it can

    def multiply(a: Any, b: Any, d: Any, sms: int) -> None:
        d.copy_(a.float() @ b.float().mT)

    monkeypatch.setattr(plan, "compile", lambda key: multiply)
    monkeypatch.setattr(plan, "compile_copy", lambda: copy)
    plan._sm_counts[-1] = 4
    calls = [plan.prepare_inputs(t=5, m=40, n=16, k=8) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda inputs: plan.kernel_fn(*inputs), calls))
    for inputs, product in zip(calls, found):
        assert torch.equal(product, plan.reference_fn(*inputs))


def test_names_of_copies_are_taken() -> None:
    with pytest.raises(SpecError, match="copied_a"):
        bind_text(gathered(PLAIN).replace("  d:", "  copied_a: f32[n]\n  d:") + "epilogue: {d: acc + copied_a}\n")


@pytest.mark.parametrize("rows_contiguous", [False, True])
def test_scales_are_gathered_with_their_rows(rows_contiguous: bool, tmp_path: Path) -> None:
    plan = plan_of(gathered_scales(BLOCKS, rows_contiguous), tmp_path)
    assert plan.mainloop == "(a * sa)[rows] @ (b * sb)"
    dims = {"t": 5, "m": 40, "n": 16, "k": 272}
    inputs = plan.prepare_inputs(**dims)
    a, rows, b, sa, sb = inputs
    assert (sa.shape, sa.stride(int(not rows_contiguous))) == ((5, 3), 1)
    left = a.float() * sa.repeat_interleave(128, 1)[:, :272]
    right = b.float() * sb.repeat_interleave(128, 0).repeat_interleave(128, 1)[:16, :272]
    expected = (left[rows.long()] @ right.mT).bfloat16()
    assert torch.allclose(plan.reference_fn(*inputs).float(), expected.float(), rtol=0.01, atol=0.01)
    # Five rows of a and of its scales.
    moved = 5 * 272 + 16 * 272 + 4 * (5 * 3 + 1 * 3) + 2 * 40 * 16 + 4 * 40
    assert plan.count_work(dims, inputs)[1] == moved


def test_one_scale_for_each_row_is_gathered_too(tmp_path: Path) -> None:
    plan = plan_of(gathered_scales(ROW_SCALES), tmp_path)
    inputs = plan.prepare_inputs(t=5, m=40, n=16, k=32)
    a, rows, b, sa, sb = inputs
    rows[:2] = torch.tensor([-1, 5], dtype=torch.int32)
    expected = (a.float() * sa[:, None])[rows.long().clamp(0, 4)] @ (b.float() * sb[:, None]).mT
    expected[:2] = 0.0
    assert torch.allclose(plan.reference_fn(*inputs).float(), expected, rtol=0.01, atol=0.01)


def test_a_gather_is_a_part_of_every_way_of_a_library(tmp_path: Path) -> None:
    plan = plan_of(gathered(PLAIN), tmp_path)
    inputs = plan.prepare_inputs(t=60, m=256, n=16, k=8)
    outputs = plan.allocate_outputs(*inputs)

    def ways(views: Any) -> Iterator[Any]:
        yield lambda views: views[2].copy_(views[0].float() @ views[1].float())

    library = Baseline("library", "its own", Product(plan).views, ways=ways)
    (baseline,) = after_gather(plan, [library])
    assert baseline.does == "index_select, then its own"
    assert baseline.ways
    values = baseline.bind(inputs, outputs)
    inputs[0].mul_(2.0)
    (way,) = baseline.ways(values)
    way(values)
    assert torch.allclose(outputs[0].float(), plan.reference_fn(*inputs).float(), rtol=0.02, atol=0.02)


def test_row_scales_are_gathered_for_libraries_too(tmp_path: Path) -> None:
    plan = plan_of(gathered_scales(ROW_SCALES), tmp_path)
    inputs = plan.prepare_inputs(t=20, m=64, n=48, k=256)
    outputs = plan.allocate_outputs(*inputs)
    baseline = next(iter(list_dense_baselines(plan)))
    assert (baseline.name, baseline.complete) == ("torch._scaled_mm", True)
    baseline.bind(inputs, outputs)()
    assert torch.allclose(outputs[0].float(), plan.reference_fn(*inputs).float(), rtol=0.01, atol=0.01)


def test_rows_and_scales_that_nobody_names_are_nan_without_groups(tmp_path: Path) -> None:
    plan = plan_of(gathered_scales(BLOCKS, rows_contiguous=True), tmp_path)
    inputs = plan.draw_inputs("lost", t=500, m=40, n=16, k=256)
    a, rows, _, sa, _ = inputs
    unnamed = ~torch.isin(torch.arange(500), rows)
    assert unnamed.sum() >= 460
    assert torch.equal(a.float().isnan().all(1), unnamed)
    assert torch.equal(sa.isnan().all(1), unnamed)
    assert not plan.reference_fn(*inputs).isnan().any()


def test_scales_that_are_gathered_are_no_part_of_the_bytes_by_tma() -> None:
    for text, by_tma in ((gathered_scales(BLOCKS), 128 * 128), (gathered(BLOCKS), 128 * 128 + 128 * 4)):
        tiling = resolve_text(text + "tiling: {tile: [128, 128, 128]}\n").resolved.default
        assert tiling.numbers.stage_bytes == by_tma


def test_scales_of_rows_that_nobody_names_are_nan(tmp_path: Path) -> None:
    plan = plan_of(gathered_scales(group_scaled(LABELS)), tmp_path)
    torch.manual_seed(0)
    inputs: dict[str, Any] = dict(
        zip((a.name for a in plan.inputs), plan.draw_inputs(Deal("random"), t=500, m=400, n=16, k=256, g=3))
    )
    named = inputs["rows"][inputs["group"] >= 0]
    named = named[(named >= 0) & (named < 500)].long().unique()
    wrong = inputs["sa"].isnan().all(1)
    assert not inputs["sa"][named].isnan().any()
    assert 0 < int(wrong.sum()) == 500 - len(named)
