"""Rows in groups as plans see them: who belongs where, what is promised, what is computed and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")
import torch

from cutegen.run.output_check import judge
from cutegen.run.subject import plan_subject
from cutegen.runtime.accuracy import compare
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.gemm.grouped_plan import GroupedPlan
from cutegen.runtime.gemm.row_groups import KINDS, Deal, RowGroups, deal_rows, fill_index, multiply_members
from cutegen.runtime.gemm.tiling import GemmTiling

LABELS = RowGroups("labels", "group", rows="m", groups="g", align=8)
COUNTS = RowGroups("counts", "group", rows="m", groups="g")
OFFSETS = RowGroups("offsets", "group", rows="m", groups="g")
FORMS = [LABELS, COUNTS, OFFSETS]
TILING = GemmTiling(
    tile=(64, 64, 64), cluster=(1, 1), multicast=(1, 1), swizzle=(128, 128), stages=4, stage_bytes=16384,
    empty_arrivals=4, epilogue_tile=(64, 32), store_stages=2, load_stages=0, load_bytes=0, consumers=1, threads=256,
    producer_registers=40, consumer_registers=232, smem_bytes=0, raster_along_m=True, raster_group=8,
)  # fmt: skip


class Plan(GroupedPlan):
    name, arch, device, reduced = "grouped", "sm_90a", "cpu", "k"
    dims: ClassVar[Any] = {"g": (1, 1024), "m": (1, None), "n": (1, None), "k": (1, None)}
    epilogue: ClassVar[Any] = {"d": "acc + bias"}
    inputs = (
        TensorArg("a", "bfloat16", ("m", "k"), contiguous=1, multiple=8, axes=(0, 1)),
        TensorArg("b", "bfloat16", ("g", "n", "k"), contiguous=2, multiple=8, axes=(1, 2, 0)),
        TensorArg("bias", "float32", ("g", "n"), contiguous=1, align=4),
        TensorArg("group", "int32", ("m",), contiguous=0, align=4),
    )
    outputs = (TensorArg("d", "bfloat16", ("m", "n"), contiguous=1, multiple=8, axes=(0, 1)),)
    row_groups = LABELS
    tilings: ClassVar[Any] = {"t": TILING}

    def _reference(self, a, b, bias, group):  # type: ignore[no-untyped-def]
        members = self.row_groups.members(group, b.shape[0], a.shape[0])
        return (multiply_members(a, b.permute(0, 2, 1), members) + bias[members],)

    def _algorithmic_flops_bytes(self, g, m, n, k):  # type: ignore[no-untyped-def]
        return 2 * m * n * k, m * k * 2 + g * n * k * 2 + m * n * 2


def i32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def test_members_by_labels_counts_and_offsets() -> None:
    assert LABELS.members(i32(1, 1, -1, 0, 9), 2, 5).tolist() == [1, 1, -1, 0, -1]
    assert COUNTS.members(i32(2, 0, 9), 3, 3).tolist() == [[0, 0, -1], [-1, -1, -1], [2, 2, 2]]
    assert OFFSETS.members(i32(2, 2, 5), 3, 7).tolist() == [0, 0, 2, 2, 2, -1, -1]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.form)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("groups", "rows"), [(1, 1), (5, 83), (40, 64), (3, 400)])
def test_rows_are_dealt_out_within_what_there_is(kind: str, form: RowGroups, groups: int, rows: int) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        sizes = deal_rows(Deal(kind), form, groups, rows)  # type: ignore[arg-type]
        assert len(sizes) == groups
        assert all(0 <= size <= rows for size in sizes)
        value = torch.full((rows,) if form.form == "labels" else (groups,), -99, dtype=torch.int32)
        fill_index(value, form, sizes, ordered=False)
        members = form.members(value, groups, rows)
        assert [int((members == g).sum()) for g in range(groups)] == sizes
        if kind == "none":
            assert not sum(sizes)
        if kind == "full" and form.form != "labels":
            assert sum(sizes) == (rows if form.flat else rows * groups)
        if form.form == "labels":  # each group once, at a multiple of the alignment
            for group in range(groups):
                at = (members == group).nonzero().flatten()
                assert not len(at) or int(at[-1] - at[0]) + 1 == len(at)
                assert not len(at) or int(at[0]) % form.align == 0


def test_edges_go_around_the_step() -> None:
    assert deal_rows(Deal("edges", 64), COUNTS, 9, 200) == [0, 1, 63, 64, 65, 0, 127, 128, 129]


def test_groups_have_about_as_many_rows_as_expected() -> None:
    form = RowGroups("counts", "rows", rows="m", groups="g", expected_rows=20)
    assert all(14 <= size <= 26 for size in deal_rows(Deal("near"), form, 100, 128))


def test_each_row_meets_the_matrix_of_its_group() -> None:
    a, b = torch.randn(6, 4), torch.randn(3, 4, 5)
    members = torch.tensor([2, 0, -1, 2, 0, 0])
    product = multiply_members(a, b, members)
    for row, group in enumerate(members.tolist()):
        expected = a[row] @ b[group] if group >= 0 else torch.zeros(5)
        assert torch.allclose(product[row], expected, atol=1e-6)


def test_what_belongs_to_nobody_is_nan_in_a_draw() -> None:
    plan = Plan()
    a, b, bias, group = plan.draw_inputs(Deal("ones"), m=83, n=16, k=8, g=20)
    used = group[group >= 0].unique()
    assert len(used) == 11  # as many as there are multiples of 8
    assert torch.equal(a.isnan().all(1), group < 0)
    assert torch.equal(a.isnan().any(1), group < 0)
    for tensor in (b, bias):
        empty = tensor.isnan().flatten(1).all(1)
        assert sorted(used.tolist()) == (~empty).nonzero().flatten().tolist()


def test_rows_of_nobody_are_not_judged_and_all_others_are() -> None:
    plan = Plan()
    subject = plan_subject(plan, Path(__file__))
    inputs = plan.draw_inputs(Deal("random"), m=83, n=16, k=8, g=5)
    reference = plan.reference_fn(*inputs)
    free = plan.free_elements(0, inputs)
    assert free.shape == reference.shape
    result = reference.clone()
    result[inputs[3] < 0] = 7.0
    assert judge(0, result, reference, inputs, subject, {})[1].mismatches == 0
    row = int((inputs[3] >= 0).nonzero()[0])
    result[row, 3] += 1.0
    assert judge(0, result, reference, inputs, subject, {})[1].mismatches == 1


def test_the_tolerance_is_that_of_the_rows_that_count() -> None:
    plan = Plan()
    subject = plan_subject(plan, Path(__file__))
    inputs = plan.draw_inputs(Deal("ones"), m=6400, n=16, k=64, g=20)  # 20 rows count, 6380 are zeros
    a, b, bias, group = inputs
    reference = plan.reference_fn(*inputs, precision="float64").double()
    rows = (group >= 0).nonzero().flatten()
    assert len(rows) == 20
    error, found = judge(0, 1.001 * reference.bfloat16(), reference, inputs, subject, {})
    alone = compare(1.001 * reference[rows].bfloat16(), reference[rows], error.tolerance)
    assert (found.allowed, found.mean_error, found.elements) == (alone.allowed, alone.mean_error, 20 * 16)

    row = int(rows[7])
    for wrong in (a[row] @ b[(group[row] + 1) % 20].mT, a[row, 2:] @ b[group[row], :, 2:].mT):  # 2 products are missing
        result = reference.clone()
        result[row] = wrong.double() + bias[group[row]]
        found = judge(0, result, reference, inputs, subject, {})[1]
        assert found.mismatches > 8
        assert (found.low[0], found.high[0]) == (row, row)


def test_work_is_that_of_rows_and_groups_with_rows() -> None:
    plan = Plan()
    inputs = plan.draw_inputs(Deal("ones"), m=83, n=16, k=8, g=20)
    flops, moved = plan.count_work(plan.problem_dims(*inputs), inputs)
    assert flops == 2 * 11 * 16 * 8
    assert moved == 11 * 8 * 2 + 11 * 16 * 8 * 2 + 11 * 16 * 2


def test_a_call_without_groups_launches_nothing() -> None:
    plan = Plan()
    plan._sm_counts[-1] = 1
    plan._kernels["t"] = lambda *values: pytest.fail("launched")
    for dims in ({"g": 0, "m": 16}, {"g": 3, "m": 0}):
        inputs = plan.prepare_inputs(n=16, k=8, **dims)
        plan.launch_fn(*inputs, *plan.allocate_outputs(*inputs))
    inputs = plan.prepare_inputs(n=16, k=0, g=3, m=16)
    with pytest.raises(ValueError, match="k is 0"):
        plan.launch_fn(*inputs, *plan.allocate_outputs(*inputs))


def test_a_call_with_more_groups_than_the_table_holds_is_refused() -> None:
    plan = Plan()
    plan._sm_counts[-1] = 1
    plan._kernels["t"] = lambda *values: pytest.fail("launched")
    a, _, _, group = plan.prepare_inputs(m=8, n=8, k=8, g=1)
    b, bias = torch.zeros(1025, 8, 8, dtype=torch.bfloat16), torch.zeros(1025, 8)
    with pytest.raises(ValueError, match="g is 1025; this kernel is promised 1 <= g <= 1024"):
        plan.launch_fn(a, b, bias, group, torch.zeros(8, 8, dtype=torch.bfloat16))


def test_a_float_tensor_of_labels_is_refused_in_words() -> None:
    plan = Plan()
    plan._sm_counts[-1] = 1

    def refuse(*values: object) -> None:
        raise TypeError

    plan._kernels["t"] = refuse
    a, b, bias, group = plan.prepare_inputs(m=8, n=8, k=8, g=1)
    with pytest.raises(TypeError, match="group: has dtype int64, needs int32"):
        plan.launch_fn(a, b, bias, group.long(), torch.zeros(8, 8, dtype=torch.bfloat16))


def test_problems_to_check_reach_every_form_of_group_and_keep_promises() -> None:
    subject = plan_subject(Plan(), Path(__file__))
    problems = list(subject.proving.list_problems(subject.plan))
    assert {p.draw.kind for p in problems if p.draw} >= {"random", "one", "ones", "edges", "none", "full"}
    assert {m for p in problems for m in p.modes} == {"numerics", "strides", "stream", "graph", "repeat", "empty"}
    assert max(p.dims["g"] for p in problems) == 1024
    for problem in problems:
        for dim, extent in problem.dims.items():
            assert extent % subject.steps[dim] == 0


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.form)
def test_baselines_compute_the_product(form: RowGroups) -> None:
    class Bare(Plan):
        epilogue: ClassVar[Any] = {"d": "acc"}
        row_groups = form
        inputs = tuple(
            TensorArg(a.name, a.dtype, ("g", *a.dims) if a.name == "a" and not form.flat else a.dims, a.contiguous)
            if a.name != "group"
            else TensorArg("group", "int32", ("m",) if form is LABELS else ("g",), 0, align=4)
            for a in Plan.inputs
            if isinstance(a, TensorArg) and a.name != "bias"
        )
        outputs = (TensorArg("d", "bfloat16", ("m", "n") if form.flat else ("g", "m", "n"), 1 if form.flat else 2),)

        def _reference(self, a, b, group):  # type: ignore[no-untyped-def]
            if not form.flat:
                return (a @ b.mT,)
            return (multiply_members(a, b.mT, form.members(group, b.shape[0], a.shape[0])),)

    plan = Bare()
    inputs = plan.prepare_inputs(m=80, n=16, k=8, g=4)
    outputs = plan.allocate_outputs(*inputs)
    baselines = {b.name: b for b in plan_subject(plan, Path(__file__)).proving.list_baselines(plan)}
    assert ("deep_gemm" in baselines) == (form is not OFFSETS)
    free = plan.free_elements(0, inputs)
    expected = plan.reference_fn(*inputs).float().masked_fill(free, 0)
    for name in ("torch.mm", "torch._grouped_mm" if form.flat else "torch.bmm"):
        product = baselines[name].bind(inputs, outputs)()
        found = outputs[0] if product is None else product
        assert torch.allclose(found.float().masked_fill(free, 0), expected, atol=0.02), name
