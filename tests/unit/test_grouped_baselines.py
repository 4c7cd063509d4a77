"""What scaled products of groups are measured against: the same scaling by torch and DeepGEMM, here on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from cublas_blocks import scaled_mm
from gemm_specs import COUNTS, LABELS, OFFSETS, gathered_scales, group_scaled
from test_scaled_baselines import plan_of

from cutegen.families.gemm.features.groups.grouped_baselines import list_grouped_baselines
from cutegen.families.gemm.features.groups.grouped_proving import PROVING
from cutegen.runtime.gemm.row_groups import Deal
from cutegen.runtime.gemm.tiling import spread_blocks

ROWS = group_scaled(LABELS).replace("m, ceil(k/128)]@m", "m]").replace("g, ceil(n/128), ceil(k/128)]", "g, n]")


def bound(plan: Any, name: str, **dims: int) -> tuple[Any, Any, Any, Any]:
    """(baseline, its launch, outputs, reference), rows of no group being zero in the latter two."""
    inputs = plan.draw_inputs(Deal("random"), **dims)
    for value in inputs:
        if value.is_floating_point():
            value.copy_(torch.nan_to_num(value.float(), 0.0))
    if plan.gathered:  # of a library that finds every row that it is told
        named = inputs[[a.name for a in plan.inputs].index(plan.gathered.index)]
        named.clamp_(0, dims["t"] - 1)
    outputs = plan.allocate_outputs(*inputs)
    expected, idle = plan.reference_fn(*inputs).float(), plan.free_elements(0, inputs)
    outputs[0].zero_()
    baseline = next(b for b in PROVING.list_baselines(plan) if b.name == name)
    return baseline, baseline.bind(inputs, outputs), outputs[0], expected.masked_fill(idle, 0.0)


def test_scaled_mm_group_by_group(tmp_path: Path) -> None:
    plan = plan_of(ROWS, tmp_path)
    names = [(b.name, b.complete) for b in list_grouped_baselines(plan)]
    assert names == [("torch._scaled_grouped_mm", True), ("torch._scaled_mm", True)]
    _, launch, d, expected = bound(plan, "torch._scaled_mm", m=512, n=64, k=128, g=4)
    launch()
    assert torch.allclose(d.float(), expected, rtol=0.01, atol=0.01)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        (group_scaled(LABELS), "m_grouped_fp8_gemm_nt_contiguous"),
        (gathered_scales(group_scaled(LABELS)), "m_grouped_fp8_gemm_nt_contiguous"),
        (group_scaled(COUNTS), "m_grouped_fp8_gemm_nt_masked"),
        (group_scaled(COUNTS), "fp8_m_grouped_gemm_nt_masked"),
    ],
    ids=["labels", "gathered", "counts", "counts, the other name"],
)
def test_deep_gemm_gets_its_layouts(text: str, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def product(a: Any, b: Any, d: Any, index: Any, *expected: int) -> None:
        """Of all rows with the matrix of their group, by the scales as DeepGEMM reads them."""
        (x, sx), (w, sw) = a, b
        assert sx.stride(-2) == 1
        assert sx.stride(-1) == -(-x.shape[-2] // 4) * 4
        assert sw.is_contiguous()
        x, w = x.float() * spread_blocks(sx, x.shape, 1, 128), w.float() * spread_blocks(sw, w.shape, 128, 128)
        if x.dim() == 3:
            assert expected[0] >= 1
            live = torch.arange(x.shape[1]) < index[:, None]
            d.copy_(torch.where(live[..., None], x @ w.mT, 0.0))
            return
        live = index >= 0
        d[live] = torch.einsum("rk,rnk->rn", x[live], w[index[live].long()]).to(d.dtype)

    module: Any = ModuleType("deep_gemm")
    module.get_mk_alignment_for_contiguous_layout = lambda: 128
    setattr(module, function, product)
    monkeypatch.setitem(sys.modules, "deep_gemm", module)
    plan = plan_of(text, tmp_path)
    assert [b.name for b in list_grouped_baselines(plan)] == ["deep_gemm", "torch._scaled_mm"]
    rows = {"t": 90} if plan.gathered else {}
    baseline, launch, d, expected = bound(plan, "deep_gemm", m=250, n=136, k=272, g=3, **rows)
    launch()
    assert baseline.complete
    assert torch.allclose(d.float(), expected, rtol=0.01, atol=0.01)


def test_scales_that_libraries_do_not_take_are_a_reason_to_skip(tmp_path: Path) -> None:
    plan = plan_of(group_scaled(OFFSETS).replace("g, ceil(n/128), ceil(k/128)]", "g]"), tmp_path)
    assert [b.name for b in list_grouped_baselines(plan)] == ["torch._scaled_grouped_mm", "torch._scaled_mm"]
    with pytest.raises(ValueError, match="one scale per row of both operands, or one per block of both"):
        bound(plan, "torch._scaled_mm", m=64, n=64, k=128, g=2)


GATHERED = gathered_scales(group_scaled(LABELS))


@pytest.mark.parametrize(
    "text",
    [group_scaled(LABELS), group_scaled(COUNTS), group_scaled(OFFSETS), GATHERED],
    ids=["labels", "counts", "offsets", "gathered"],
)
def test_groups_of_any_size_go_to_cublas_in_multiples_of_its_rows(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    plan = plan_of(text, tmp_path)
    torch.manual_seed(0)
    rows = {"t": 90} if plan.gathered else {}
    _, launch, d, expected = bound(plan, "torch._scaled_mm", m=252, n=144, k=512, g=3, **rows)
    launch()
    idle = expected == 0.0
    assert torch.allclose(d.float().masked_fill(idle, 0.0), expected, rtol=0.01, atol=0.01)
