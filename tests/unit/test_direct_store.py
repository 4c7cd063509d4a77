"""Outputs that threads store: when, what a call may pass, and what remains refused."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from gemm_specs import FUSED, PLAIN, bind_text, resolve_text

from cutegen.diagnostics import SpecError
from cutegen.families.gemm.arguments import tensor_shapes
from cutegen.families.gemm.code_plan import plan_code
from cutegen.families.gemm.spec_rules import alignments
from cutegen.render import render_package, write_package

DIRECT = PLAIN + "tma: {d: {store: direct}}\n"
BOTH = PLAIN + "  e: f32[m, n]\nepilogue: {d: acc, e: acc}\ntma: {d: {store: direct}}\n"


@pytest.mark.parametrize(
    ("text", "direct"),
    [
        (PLAIN, [False]),
        (PLAIN + "dims: {n: 4096}\n", [False]),
        (PLAIN + "dims: {n: 513}\n", [True]),
        (PLAIN + "dims: {n: 513}\ntma: {d: {store: auto}}\n", [True]),
        (PLAIN.replace("bf16[m, n]", "bf16[m, n]@m") + "dims: {n: 513}\n", [False]),
        (DIRECT, [True]),
        (BOTH, [True, False]),
        (BOTH + "dims: {n: 514}\n", [True, True]),
    ],
)
def test_threads_store_what_is_written_so_or_what_tma_cannot(text: str, direct: list[bool]) -> None:
    assert [o.direct for o in bind_text(text).epilogue.outputs] == direct


def test_tma_is_refused_where_it_cannot_and_the_remedy_names_the_other_way() -> None:
    with pytest.raises(SpecError) as caught:
        bind_text(PLAIN + "dims: {n: 513}\ntma: {d: {store: tma}}\n")
    (found,) = caught.value.diagnostics
    assert found.rule == "tma-alignment"
    assert "513 x 2 B = 1026 B" in found.message
    assert "store: direct" in (found.remedy or "")


@pytest.mark.parametrize(
    ("text", "padded"),
    [
        (FUSED, False),
        (FUSED + "dims: {n: 512}\n", False),
        (FUSED + "dims: {n: 513}\n", True),
        (FUSED + "tma: {d: {store: direct}}\n", True),
        (FUSED.replace("b: bf16[n, k]", "b: bf16[k, n]") + "tma: {d: {store: direct}}\n", False),
        (FUSED.replace("d: bf16[m, n]", "d: bf16[m, n]\n  e: f32[m, n]").replace("gelu", "e + gelu")
         .replace("epilogue:", "epilogue:\n  e: acc") + "tma: {d: {store: direct}}\n", False),
    ],
)  # fmt: skip
def test_rows_of_a_tile_need_not_be_full_where_threads_store(text: str, padded: bool) -> None:
    problem = bind_text(text)
    shape = tensor_shapes(problem)["residual"]
    assert (shape.padded, shape.multiple) == (padded, 1 if padded else 8)
    assert shape.align == 16
    assert ("n" in alignments(problem)) is not padded


def test_an_output_of_that_extent_that_is_read_is_still_refused() -> None:
    with pytest.raises(SpecError) as caught:
        bind_text(PLAIN + "epilogue: {d: d + acc}\ndims: {n: 513}\n")
    assert [d.message.partition(" ")[0] for d in caught.value.diagnostics] == ["n"]
    assert "store: direct" not in (caught.value.diagnostics[0].remedy or "")


def test_the_planned_code_has_a_bulk_store_for_each_output_of_tma_only() -> None:
    resolved = resolve_text(BOTH).resolved
    assert plan_code(resolved, resolved.default).tma_stores == 1
    assert [p.kind for p in resolved.default.model.pipelines if p.name == "store"] == ["TmaStore"]
    alone = resolve_text(DIRECT).resolved
    assert [p.kind for p in alone.default.model.pipelines if p.name == "store"] == ["Threads"]


def test_a_call_may_pass_any_extent_and_stride(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolution = resolve_text(DIRECT)
    write_package(render_package(resolution.resolved), tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    plan = importlib.import_module(resolution.resolved.name).PLAN
    (d,) = plan.outputs
    assert (d.align, d.multiple, d.axes) == (2, 1, (0, 1))
    assert [a.multiple for a in plan.inputs] == [8, 8]
