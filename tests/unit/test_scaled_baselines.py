"""What scaled fp8 products are measured against: the same scaling and accumulation by cuBLAS, here on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from cublas_blocks import scaled_mm
from gemm_specs import FP8, resolve_text

from cutegen.families.gemm.dense_baselines import list_dense_baselines, list_scaled_baselines
from cutegen.render import render_package, write_package
from cutegen.run.subject import load_subject

SCALED = FP8 + "mainloop: (a * sa) @ (b * sb)\n"
SHAPE = {"m": 64, "n": 48, "k": 256}


def plan_of(text: str, folder: Path) -> Any:
    resolved = resolve_text(text).resolved
    write_package(render_package(resolved), folder)
    plan = load_subject(folder / resolved.name).plan
    assert plan is not None
    plan.device = "cpu"  # type: ignore[misc]
    return plan


def scaled(sa: str, sb: str) -> str:
    return SCALED.replace("  d:", f"  sa: {sa}\n  sb: {sb}\n  d:")


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (scaled("f32[m]", "f32[n]"), "promoted"),
        (scaled("f32[m]", "f32[n]") + "accumulate: {promote_every: never}\n", "fast"),
        (scaled("f32[]", "f32"), "promoted"),
        (SCALED.replace("(b * sb)", "b").replace("  d:", "  sa: f32[]\n  d:"), "promoted"),
    ],
)
def test_scaled_mm_computes_the_same(text: str, how: str, tmp_path: Path) -> None:
    plan = plan_of(text, tmp_path)
    inputs = plan.prepare_inputs(**SHAPE)
    outputs = plan.allocate_outputs(*inputs)
    baseline = next(iter(list_dense_baselines(plan)))
    assert (baseline.name, baseline.complete, how in baseline.does) == ("torch._scaled_mm", True, True)
    baseline.bind(inputs, outputs)()
    import torch

    assert torch.allclose(outputs[0].float(), plan.reference_fn(*inputs).float(), rtol=0.01, atol=0.01)


def test_the_reference_is_no_baseline_of_operands_that_torch_mm_does_not_take(tmp_path: Path) -> None:
    plan = plan_of(scaled("f32[m]", "f32[n]") + "epilogue: {d: relu(acc)}\n", tmp_path)
    inputs = plan.prepare_inputs(**SHAPE)
    outputs = plan.allocate_outputs(*inputs)
    references = [b for b in list_dense_baselines(plan) if b.name in ("torch eager", "torch.compile")]
    assert len(references) == 2
    for baseline in references:
        with pytest.raises(ValueError, match="8-bit operands with torch"):
            baseline.bind(inputs, outputs)


def test_scales_that_it_does_not_take_are_a_reason_to_skip(tmp_path: Path) -> None:
    plan = plan_of(scaled("f32[m]", "f32[]"), tmp_path)
    inputs = plan.prepare_inputs(**SHAPE)
    baseline = next(iter(list_dense_baselines(plan)))
    with pytest.raises(ValueError, match="one for each row or one for each block of both"):
        baseline.bind(inputs, plan.allocate_outputs(*inputs))


def test_an_epilogue_is_not_part_of_it(tmp_path: Path) -> None:
    plan = plan_of(scaled("f32[m]", "f32[n]") + "epilogue: {d: relu(acc)}\n", tmp_path)
    inputs = plan.prepare_inputs(**SHAPE)
    outputs = plan.allocate_outputs(*inputs)
    outputs[0].zero_()
    baseline = next(iter(list_dense_baselines(plan)))
    assert not baseline.complete
    baseline.bind(inputs, outputs)()
    assert not outputs[0].any()


@pytest.mark.parametrize("text", [FP8, scaled("f32[m]", "f32[n]").replace("e4m3", "i8").replace("e5m2", "i8")])
def test_without_scales_or_with_integers_there_is_none(text: str, tmp_path: Path) -> None:
    plan = plan_of(text, tmp_path)
    assert not list(list_scaled_baselines(plan))
    assert next(b.name for b in list_dense_baselines(plan)) == "torch.mm"


def test_a_product_without_the_scales_of_blocks_is_not_compared(tmp_path: Path) -> None:
    plan = plan_of(scaled("f32[m, ceil(k/128)]@m", "f32[ceil(n/128), ceil(k/128)]"), tmp_path)
    complete = {baseline.name: baseline.complete for baseline in list_dense_baselines(plan)}
    assert complete["torch._scaled_mm"]
    assert not complete["torch.mm"]
    assert not {"quack", "nvmath", "cutlass_operators"} & set(complete)


@pytest.mark.parametrize("sb", ["f32[ceil(n/128), ceil(k/128)]", "f32[ceil(k/128), ceil(n/128)]"])
def test_scales_of_blocks_get_the_layout_of_cublas(sb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    plan = plan_of(scaled("f32[m, ceil(k/128)]@m", sb), tmp_path)
    inputs = plan.prepare_inputs(m=60, n=144, k=512)
    outputs = plan.allocate_outputs(*inputs)
    baseline = next(iter(list_dense_baselines(plan)))
    baseline.bind(inputs, outputs)()
    assert torch.allclose(outputs[0].float(), plan.reference_fn(*inputs).float(), rtol=0.01, atol=0.01)


@pytest.mark.parametrize(("m", "k", "said"), [(62, 512, "4 rows, not 62"), (64, 640, "4 blocks of k, not 5")])
def test_blocks_that_cublas_does_not_take_are_a_reason(m: int, k: int, said: str, tmp_path: Path) -> None:
    plan = plan_of(scaled("f32[m, ceil(k/128)]@m", "f32[ceil(n/128), ceil(k/128)]"), tmp_path)
    inputs = plan.prepare_inputs(m=m, n=48, k=k)
    baseline = next(iter(list_dense_baselines(plan)))
    with pytest.raises(ValueError, match=said):
        baseline.bind(inputs, plan.allocate_outputs(*inputs))
