"""Suites that `check` runs: what their words draw, which kernels they are for, how a CPU has less of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.machine.case_list import list_cpu_cases
from cutegen.run.row import Row, fit_rows, refuse
from cutegen.run.subject import load_subject
from cutegen.run.suite import Suite, load_suite

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "specs" / "suites"
RIGHT = Path(__file__).parent / "kernels" / "right.py"


def write(tmp_path: Path, text: str) -> Suite:
    (tmp_path / "small.yaml").write_text(text)
    return load_suite("small", tmp_path)


def test_words_of_draws_are_for_those_who_have_requests_or_indices(tmp_path: Path) -> None:
    both = "{name: both, lengths: gaps, keys: some, shape: {batch: 4, topk: 9}}"
    rows = write(tmp_path, f"problems: [{both}, {{name: keys, keys: none, shape: {{batch: 1}}}}]").rows()
    sparse, dense = (load_subject(ROOT / "generated" / f"mla_{kind}_bf16_sm90a") for kind in ("sparse", "decode"))
    assert [(r.draw(sparse).lengths, r.draw(sparse).keys) for r in rows] == [("gaps", "holes"), ("equal", "none")]
    assert refuse(sparse, rows[0]) == ""
    assert refuse(dense, rows[1]) == "its keys are not sparse, so all of them count"


def test_rows_that_fit_and_why_others_do_not() -> None:
    subject = load_subject(ROOT / "generated" / "mla_decode_bf16_few_sm90a")
    rows = load_suite("flash_mla_dense", SUITES).rows()
    fitting, notes = fit_rows(subject, rows, "flash_mla_dense")
    assert len(rows) == 750
    assert {row.shape["heads"] for row in fitting} == {1, 3, 8, 9, 16}
    assert sum(int(note.split()[0]) for note in notes) == 750 - len(fitting)
    with pytest.raises(CutegenError, match="no problem of flash_mla_dense is for it"):
        fit_rows(subject, rows[-1:], "flash_mla_dense")


def test_a_cpu_executes_a_few_problems_of_a_suite_cut_down() -> None:
    subject = load_subject(ROOT / "generated" / "mla_sparse_v32_sm90a")
    rows = load_suite("flash_mla_sparse", SUITES).rows()
    every = [case.case for case in list_cpu_cases(subject, (), True, rows)]
    some = [case.case for case in list_cpu_cases(subject, (), False, rows)]
    assert (len(rows), len(every), len(some)) == (468, 264, 12)
    assert some[0] == every[0]
    assert some[-1] == every[-1]
    assert {(case.shape["batch"], case.shape["topk"]) for case in every} == {
        (4, 64),
        (5, 64),
        (4, 288),
        (5, 288),
        (4, 256),
        (5, 256),
        (1, 256),
    }
    assert {(case.draw.lengths, case.draw.keys) for case in every if case.draw} == {
        ("spread", "holes"), ("gaps", "holes"), ("equal", "none"),
    }  # fmt: skip
    dense = load_subject(ROOT / "generated" / "mla_decode_bf16_sm90a")
    (case,) = list_cpu_cases(dense, (), True, [Row({"batch": 1, "query_len": 4, "heads": 128, "kv_len": 20})])
    assert case.sms == 8  # a block of 64 rows each


def test_check_of_a_suite_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specs" / "suites").mkdir(parents=True)
    problems = (
        "grid: {k: [40, 72]}\nproblems: [{name: x, shape: {m: 8, n: 8}}, {name: y, dtype: f16, shape: {m: 8, n: 8}}]"
    )
    (tmp_path / "specs" / "suites" / "mine.yaml").write_text(problems)
    monkeypatch.chdir(tmp_path)
    assert main(["check", str(RIGHT), "--suite", "mine", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["checks"]
    shapes = [(c["case"]["name"], c["case"]["shape"]["k"], c["status"]) for c in report["cases"]]
    assert shapes == [(name, k, "pass") for name in "xy" for k in (40, 72)]
    assert main(["check", str(RIGHT), "--suite", "mla_sparse"]) == 1
    assert "`right` has no dim `query_len`" in capsys.readouterr().err
    assert main(["check", str(RIGHT), "--suite", "mine", "--shape", "m=8,n=8,k=8"]) == 2
    assert "--shape and --suite exclude each other" in capsys.readouterr().err
