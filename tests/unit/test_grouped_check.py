"""`check` and `bench` of products of groups of rows, with a kernel in torch and a fake device."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

from test_bench import FakeDevice  # noqa: E402
from test_row_groups import LABELS, Plan  # noqa: E402

from cutegen.run.bench import BenchReport, Settings, measure  # noqa: E402
from cutegen.run.case_list import list_cases  # noqa: E402
from cutegen.run.cases import CaseResult, run_case  # noqa: E402
from cutegen.run.row import Row  # noqa: E402
from cutegen.run.subject import Subject, plan_subject  # noqa: E402
from cutegen.runtime.command import benchmark_kernel_argparse  # noqa: E402
from cutegen.runtime.gemm.row_groups import multiply_members  # noqa: E402

SHAPE = {"g": 4, "m": 80, "n": 16, "k": 8}


class Bare(Plan):
    """Only the product; `breaks` says what is wrong with it."""

    epilogue: ClassVar[Any] = {"d": "acc"}
    inputs = tuple(arg for arg in Plan.inputs if arg.name != "bias")

    def __init__(self, breaks: str = "") -> None:
        super().__init__()
        self.breaks = breaks
        self._sm_counts[-1] = 1
        self._kernels["t"] = self.run

    def _reference(self, a, b, group):  # type: ignore[no-untyped-def]
        return (multiply_members(a, b.mT, LABELS.members(group, b.shape[0], a.shape[0])),)

    def run(self, a: Any, b: Any, group: Any, d: Any, sm_count: int) -> None:
        rows = LABELS.members(group, b.shape[0], a.shape[0]) >= 0
        if self.breaks == "neighbour":
            group = (group + 1) % b.shape[0]
        if self.breaks == "last row" and bool(rows.any()):
            rows[int(rows.nonzero()[-1])] = False
        if self.breaks == "rows of nobody":
            d[~rows] = 7.0
        product = self.reference_fn(a, b, group)
        d[rows] = product[rows]  # rows of nobody stay as they are


def subject(breaks: str = "") -> Subject:
    return plan_subject(Bare(breaks), Path("grouped"))


def checked(breaks: str = "") -> list[CaseResult]:
    found = subject(breaks)
    cases = [c for c in list_cases(found) if c.mode not in ("stream", "graph") and c.shape["m"] * c.shape["n"] < 10**6]
    assert {c.name for c in cases} >= {"one row", "ragged", "edges of tiles", "no rows at all", "a row each", "g = 0"}
    return [run_case(found, case, seed=0) for case in cases]


def test_a_right_kernel_passes_whatever_it_leaves_in_rows_of_nobody() -> None:
    for result in checked():
        assert result.status == "pass", (result.case, result.detail)


def test_rows_with_the_matrix_of_another_group_are_found() -> None:
    wrong = {r.case.name for r in checked("neighbour") if r.status != "pass"}
    assert {"ragged", "edges of tiles", "a row each", "no row left"} <= wrong


@pytest.mark.parametrize(("breaks", "code"), [("rows of nobody", 0), ("neighbour", 1)])
def test_the_command_line_judges_no_row_of_nobody(breaks: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [word for dim, extent in SHAPE.items() for word in (f"--{dim}", str(extent))]
    assert benchmark_kernel_argparse(Bare(breaks), [*arguments, "--check"]) == code
    assert ("d: wrong" if code else "d: right") in capsys.readouterr().out


def test_a_row_that_is_not_written_is_found() -> None:
    texts = [text for r in checked("last row") for text in r.detail]
    assert any("elements were never written" in text for text in texts)
    assert any("wrong" in text for text in texts)


def bench(breaks: str = "") -> BenchReport:
    settings = Settings(rounds=5, slice_seconds=0.01)
    return measure([(subject(breaks), [Row(SHAPE)])], (), FakeDevice(), {"gpu": None}, settings)


def test_beside_what_libraries_have(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("deep_gemm")
    module.get_mk_alignment_for_contiguous_layout = lambda: 8

    def contiguous(a: Any, b: Any, d: Any, labels: Any) -> None:
        d.copy_(multiply_members(a, b.mT, labels))

    module.m_grouped_bf16_gemm_nt_contiguous = contiguous
    monkeypatch.setitem(sys.modules, "deep_gemm", module)
    (problem,) = bench().problems
    right = {m.candidate.name: m.right for m in problem.measured}
    assert right == {"grouped": True, "torch._grouped_mm": True, "deep_gemm": True, "torch.mm": True}
    assert problem.against == "torch._grouped_mm"


def test_deep_gemm_that_aligns_groups_to_more_rows_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("deep_gemm")
    module.get_mk_alignment_for_contiguous_layout = lambda: 128
    monkeypatch.setitem(sys.modules, "deep_gemm", module)
    assert bench().problems[0].skipped["deep_gemm"] == "ValueError: aligns groups to 128 rows, this kernel to 8"


def test_work_counts_rows_of_groups_and_wrong_results_are_told() -> None:
    (problem,) = bench("neighbour").problems
    kernel = problem.measured[0].candidate
    assert kernel.flops is not None
    assert 0 < kernel.flops < 2 * 80 * 16 * 8  # not the padding
    assert not bench("neighbour").ok
