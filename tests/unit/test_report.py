"""Results in files: read back, refused when they are none, compared with older ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_results import GPU, NOISE, candidate, parsed, problem, result

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.report.comparison import (
    EQUAL,
    FASTER,
    SLOWER,
    WRONG,
    compare,
    comparison_rows,
    describe_comparison,
)
from cutegen.report.result import Result, load_result
from cutegen.report.table import describe_run
from cutegen.run.measured import FORMAT, STORED_VERSION, VERSION


@pytest.mark.parametrize(
    ("us", "margin", "verdict"),
    [(8.0, 0.01, EQUAL), (8.03, 0.0, EQUAL), (8.5, 0.01, SLOWER), (8.5, 0.1, EQUAL), (7.5, 0.01, FASTER)],
)
def test_a_kernel_is_slower_beyond_noise_and_margin(us: float, margin: float, verdict: str) -> None:
    found = compare(parsed(problem(8.0)), parsed(problem(us)), margin)
    (row,) = found.rows
    assert row.verdict == verdict
    assert found.ok == (verdict != SLOWER)
    assert row.ratio.low < 8.0 / us < row.ratio.high
    assert (row.against, row.same_kernel) == ("torch.mm", True)


def test_noise_alone_is_no_alarm() -> None:
    """The same kernel measured twice on 40 problems, with noise of 2 %: one run in a hundred may be wrong."""
    import random

    draw = random.Random(7)

    def noisy() -> Result:
        def times(us: float) -> list[float]:
            return [us * draw.gauss(1, 0.02) for _ in range(9)]

        problems = []
        for m in range(40):
            base = problem(8.0, m)
            baseline = times(10)
            base["candidates"] = [candidate("gemm", times(8), baseline), candidate("torch.mm", baseline)]
            problems.append(base)
        return parsed(*problems)

    alarms = sum(not compare(noisy(), noisy(), 0.0).ok for _ in range(50))
    assert alarms <= 2


def test_a_drop_of_five_percent_on_one_of_many_is_found() -> None:
    old = parsed(*(problem(8.0, m) for m in range(40)))
    new = parsed(*(problem(8.4 if m == 17 else 8.0, m) for m in range(40)))
    assert [r.problem for r in compare(old, new, 0.01).rows if r.verdict == SLOWER] == ["m=17 n=64 k=64"]


def test_times_count_alone_where_there_is_no_common_reference() -> None:
    old, new = problem(8.0), problem(9.0)
    old["candidates"], new["candidates"] = old["candidates"][:1], new["candidates"][:1]
    old["against"] = new["against"] = "gemm"
    (row,) = compare(parsed(old), parsed(new), 0.01).rows
    assert (row.against, row.verdict) == ("", SLOWER)


def test_another_reference_of_both_will_do() -> None:
    old, new = problem(8.0), problem(9.0)
    for p in (old, new):
        p["candidates"].append(candidate("quack", [9 * n for n in NOISE]))
    old["candidates"].pop(1)
    (row,) = compare(parsed(old), parsed(new), 0.01).rows
    assert (row.against, row.verdict) == ("quack", SLOWER)


def test_what_cannot_run_any_more_or_is_wrong_fails() -> None:
    old = parsed(problem(8.0), problem(8.0, 32), problem(8.0, 64))
    new = parsed(
        problem(8.0),
        problem(8.0, 32, right=False),
        left_out=[{"shape": {"m": 64, "n": 64, "k": 64}, "name": "", "reasons": {"": "gemm: RuntimeError: smem"}}],
    )
    found = compare(old, new, 0.01)
    assert not found.ok
    assert found.lost == (
        "gemm on m=64 n=64 k=64 cannot run any more: gemm: RuntimeError: smem", "gemm on m=32 n=64 k=64 is wrong now",
    )  # fmt: skip
    assert [r.verdict for r in found.rows] == [EQUAL, WRONG]
    assert next(comparison_rows(found, equal=False))[-1] == WRONG
    assert "2 compared, beyond 1.0%: 1 wrong, 0 slower, 1 equal, 0 faster; " in list(describe_comparison(found))[2]


def test_problems_of_the_same_extents_are_told_apart_by_name() -> None:
    """A layer in two dtypes: a kernel is for one of them, which is not a loss; and each of two layers is compared."""
    shape = {"m": 16, "n": 64, "k": 64}
    other = [{"shape": shape, "name": "qkv fp8", "reasons": {"gemm": "operands are bf16, not e4m3"}}]
    one = parsed(problem(8.0, name="qkv bf16"), left_out=other)
    assert compare(one, one, 0.01).ok
    old = parsed(problem(8.0, name="qkv"), problem(8.0, name="gate"))
    found = compare(old, parsed(problem(9.0, name="qkv"), problem(8.0, name="gate")), 0.01)
    assert [(r.problem, r.verdict) for r in found.rows] == [
        ("qkv: m=16 n=64 k=64", SLOWER), ("gate: m=16 n=64 k=64", EQUAL),
    ]  # fmt: skip
    gone = compare(old, parsed(problem(8.0, name="gate"), left_out=[{**other[0], "name": "qkv"}]), 0.01)
    assert gone.lost == ("gemm on qkv: m=16 n=64 k=64 cannot run any more: operands are bf16, not e4m3",)


def test_nothing_is_counted_where_nothing_can_be_compared() -> None:
    lost = [{"shape": {"m": 16, "n": 64, "k": 64}, "name": "", "reasons": {"gemm": "RuntimeError: smem"}}]
    found = compare(parsed(problem(8.0)), parsed(problem(8.0, 32), left_out=lost), 0.01)
    said = list(describe_comparison(found))
    assert said[0] == "gemm on m=16 n=64 k=64 cannot run any more: RuntimeError: smem"
    assert not any("compared" in text for text in said)


def test_problems_that_only_the_new_result_has_are_told_and_pass() -> None:
    found = compare(parsed(problem(8.0)), parsed(problem(8.0), problem(8.0, 64)), 0.01)
    assert found.ok
    assert "note: only in the new result: gemm on m=64 n=64 k=64" in list(describe_comparison(found))


def test_what_the_old_result_has_must_be_measured_again() -> None:
    """A gate that passes on what it did not see is none."""
    old = parsed(problem(8.0), *(problem(8.0, m) for m in (32, 64, 128, 256)))
    found = compare(old, parsed(problem(8.0)), 0.01)
    assert not found.ok
    assert found.unmeasured[0] == "gemm on m=32 n=64 k=64"
    said = next(describe_comparison(found))
    assert said.startswith("not measured now: gemm on m=32 n=64 k=64; gemm on m=64 n=64 k=64; ")
    assert " and 1 more; measure all that the old result has" in said


def test_a_new_result_whose_run_was_stopped_fails() -> None:
    """Even where it has every problem: what was stopped may lack the last kernel of one."""
    whole, stopped = parsed(problem(8.0)), parsed(problem(8.0), complete=False)
    found = compare(whole, stopped, 0.01)
    assert not found.ok
    assert next(describe_comparison(found)) == "the new result is not complete: its run was stopped; measure again"
    reversed_ = compare(stopped, whole, 0.01)
    assert reversed_.ok
    assert reversed_.differences == ("the old result is not complete: its run was stopped",)


def test_differences_of_machine_and_software_are_told() -> None:
    environment = {"gpu": {**GPU, "uuid": "GPU-2"}, "torch": "2.12", "driver": "580"}
    new = parsed(problem(8.0), environment=environment, rounds=5,
                 notes=["1 other processes use the GPU: do not trust these figures"])  # fmt: skip
    assert compare(parsed(problem(8.0)), new, 0.01).differences == (
        "torch 2.11 then, 2.12 now",
        "another unit of the same device",
        "9 rounds of 60 ms then, 5 rounds of 60 ms now",
        "another process used the GPU during the new run: do not trust its figures",
    )


def test_a_budget_of_sms_is_told() -> None:
    """Kernels with fewer SMs are slower for no fault of theirs."""
    few, old = parsed(problem(9.0), sms=100), parsed(problem(8.0))
    assert compare(old, few, 0.01).differences == ("on all SMs then, on at most 100 SMs now",)
    assert compare(few, few, 0.01).differences == ()
    assert "kernels ran on at most 100 SMs; baselines used all" in describe_run(few)
    assert not any("SMs" in line for line in describe_run(old))


def test_nothing_is_said_of_speeds_where_nothing_was_measured() -> None:
    assert not any("relative to" in line for line in describe_run(parsed()))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"environment": {"gpu": {**GPU, "name": "NVIDIA H100"}}},
            "another device: NVIDIA H100, 700 W, not NVIDIA H200",
        ),
        ({"environment": {"gpu": {**GPU, "power_limit_watts": 500.0}}}, "another device: NVIDIA H200, 500 W"),
        ({"problems": [problem(8.0, 99)]}, "no kernel and problem in common"),
    ],
)
def test_results_that_cannot_be_compared(more: dict[str, Any], message: str) -> None:
    with pytest.raises(CutegenError, match=message) as caught:
        compare(parsed(problem(8.0), **more), parsed(problem(8.0)), 0.01)
    assert caught.value.exit_code == 2


GOOD = json.dumps(result(problem(8.0)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD[: len(GOOD) // 2], "is torn or no JSON"),
        ("", "is torn or no JSON"),
        ("[" * 100_000, "is torn or no JSON"),
        ("[1, 2]", "was written by something else"),
        ('{"format": "other"}', "was written by something else"),
        ('{"spec": "a.yaml", "problems": []}', r"is what `cutegen tune --json` prints"),
        (json.dumps({"rates": 1, "problems": [], "summaries": {}}), "was written before results had a version"),
        (GOOD.replace('"version": 2', '"version": 9'), "is a result of version 9; this cutegen reads versions 2 and 3"),
        (GOOD.replace('"rounds": 9', '"rounds": -9'), "is damaged: rounds: Input should be greater than"),
        (GOOD.replace(json.dumps(GPU), '"H200"'), "is damaged: environment: Value error, gpu is not a map"),
        (GOOD.replace("700.0", "1" + "0" * 400), "is damaged: environment: Value error, a power limit is from 0 to"),
        (GOOD.replace('"flops": 1000000000', '"flops": NaN'), "NaN is not a time"),
        (GOOD.replace('"candidates": [{', '"candidates": [7, {'), r"is damaged: problems\.0\.candidates\.0"),
        (json.dumps(result(problem(8.0, samples=[8e-6] * 8))), "candidates have 8 and 9 samples, and each has one of"),
    ],
)  # fmt: skip
def test_files_that_are_no_result(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(CutegenError, match=message) as caught:
        load_result(path)
    assert caught.value.exit_code == 2
    assert "measure again" in caught.value.remedy
    assert main(["report", str(path)]) == 2


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(CutegenError, match="is not text"):
        load_result(tmp_path / "binary.json")
    with pytest.raises(CutegenError, match="No such file"):
        load_result(tmp_path / "none.json")


def test_the_docs_name_the_version() -> None:
    text = (Path(__file__).parents[2] / "docs" / "checking-and-measuring.md").read_text()
    assert f"`format` is `{FORMAT}`, `version` {VERSION} in `--json`, {STORED_VERSION} in files." in text


def test_a_page_is_not_written_over_what_it_is_made_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, link, old = tmp_path / "new.json", tmp_path / "link.html", tmp_path / "old.json"
    link.symlink_to(path)
    for file in (path, old):
        file.write_text(GOOD)
    for options in (["--html", path], ["--svg", link], ["--compare", old, "--html", old]):
        assert main(["report", str(path), *map(str, options)]) == 2
        assert "is read by this command, and would be overwritten" in capsys.readouterr().err
    same = str(tmp_path / "page")
    assert main(["report", str(path), "--html", same, "--svg", same]) == 2
    assert f"--svg {same}: is written by --html, and would be overwritten" in capsys.readouterr().err
    assert main(["bench", str(path), "-o", str(path)]) == 2
    assert main(["bench", "spec.yaml", "--compare", str(old), "-o", str(old)]) == 2
    assert "is read by this command" in capsys.readouterr().err
    assert path.read_text() == old.read_text() == GOOD
    assert main(["report", str(path), "--html", "/dev/null", "--svg", "/dev/null"]) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--margin", "5"], "--margin has no effect without --compare"),
        (["--all"], "--all has no effect without --compare"),
        (["--markdown", "--margin", "3", "--all"], "--margin has no effect with --markdown"),
        (["--model", "x.yaml", "--all"], "--all has no effect with --model"),
        (["--markdown", "--below", "nan"], "nan is not a number"),
    ],
)
def test_options_that_change_nothing_are_refused(
    tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.json"
    path.write_text("{}")
    assert main(["report", str(path), *options]) == 2
    assert said in capsys.readouterr().err


def test_report_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, old = tmp_path / "new.json", tmp_path / "old.json"
    path.write_text(json.dumps(result(problem(8.5, name="qkv"))))
    old.write_text(json.dumps(result(problem(8.0))))
    assert main(["report", str(path)]) == 0
    out = capsys.readouterr().out
    assert "x cuBLAS" in out
    assert "qkv" in out
    assert out.endswith("again: cutegen bench gemm.yaml\n")
    assert main(["report", str(path), "--compare", str(old)]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[1].startswith("qkv: m=16 n=64 k=64 gemm 7.98 8.48 0.941 [0.9")
    assert lines[1].endswith("] torch.mm slower")
    assert lines[2].startswith("1 compared, beyond 1.0%: 1 slower, 0 equal, 0 faster")
    assert main(["report", str(path), "--compare", str(old), "--margin", "20"]) == 0
    capsys.readouterr()
    assert main(["report", str(old), "--compare", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"]["rows"][0]["verdict"] == FASTER
    path.write_text(json.dumps(result(problem(8.0), complete=False)))
    assert main(["report", str(path), "--compare", str(old)]) == 1
    assert "the new result is not complete: its run was stopped; measure again" in capsys.readouterr().out
