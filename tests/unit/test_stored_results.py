"""Results as files keep them: small, exact enough, and nothing in them that follows from the samples."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from bench_results import candidate, problem, result

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.report.result import load_result, parse_result
from cutegen.report.stored import pack
from cutegen.run.measured import STORED_VERSION, VERSION

NUMBERS = {f"number_{i}": [128, 256, 64] for i in range(40)}


def keep(tmp_path: Path, data: dict[str, Any], name: str = "kept.json") -> Path:
    path = tmp_path / name
    path.write_text(pack(data))
    return path


def many(count: int, rounds: int) -> list[dict[str, Any]]:
    draw = random.Random(3)
    found = []
    for i in range(count):
        p = problem(8.0, i + 1, f"layer {i}", numbers=NUMBERS)
        us = [[base * draw.gauss(1, 0.01) for _ in range(rounds)] for base in (8.123456789, 10.0, 11.0)]
        more = {"sm_mhz": [1980.0] * rounds, "watts": [612.3] * rounds, "celsius": [50] * rounds}
        p["candidates"] = [
            candidate("gemm_bf16_llama3_8b_sm90a", us[0], us[1], numbers=NUMBERS, digest="a" * 64, **more),
            candidate("torch.mm", us[1], **more), candidate("nvmath", us[2], **more),
        ]  # fmt: skip
        found.append(p)
    return found


def test_what_is_kept_reads_as_what_was_measured(tmp_path: Path) -> None:
    data = result(problem(8.123456, 16, "qkv", numbers=NUMBERS), problem(12.0, 32, numbers=NUMBERS))
    kept = load_result(keep(tmp_path, data))
    whole = parse_result(data)
    assert [p.title for p in kept.problems] == [p.title for p in whole.problems]
    for ours, theirs in zip(kept.problems, whole.problems):
        for a, b in zip(ours.candidates, theirs.candidates):
            for field in (
                "name",
                "baseline",
                "library",
                "tiling",
                "digest",
                "numbers",
                "right",
                "sets",
                "flops",
                "bytes",
            ):
                assert getattr(a, field) == getattr(b, field)
            assert a.samples == pytest.approx(b.samples, rel=1e-4)
            assert a.seconds.median == pytest.approx(b.seconds.median, rel=1e-4)
            assert {k: v.against for k, v in a.speeds.items()} == {k: v.against for k, v in b.speeds.items()}
            assert (a.speed is None) == (b.speed is None)
            if a.speed and b.speed:
                assert a.speed.low == pytest.approx(b.speed.low, rel=1e-4)
    summary = kept.summaries["gemm"]["cuBLAS"]
    assert (summary.problems, summary.below_one) == (2, 1)
    assert summary.least == pytest.approx(10 / 12, rel=1e-2)


def test_no_figure_that_follows_from_samples_is_kept(tmp_path: Path) -> None:
    data = json.loads(keep(tmp_path, result(problem(8.0))).read_text())
    assert data["version"] == STORED_VERSION != VERSION
    assert "summaries" not in data
    kernel = data["problems"][0]["candidates"][0]
    assert not {"seconds", "speed", "speeds", "tflops", "samples"} & kernel.keys()
    assert len(kernel["us"]) == 9


def test_times_of_more_than_the_kernel_give_no_rates(tmp_path: Path) -> None:
    data = result(problem(8.0, tflops=None, terabytes_per_second=None))
    kernel, baseline = load_result(keep(tmp_path, data)).problems[0].candidates
    assert (kernel.tflops, kernel.terabytes_per_second, kernel.flops) == (None, None, 10**9)
    assert baseline.tflops


def test_samples_decide_what_a_file_says(tmp_path: Path) -> None:
    path = keep(tmp_path, result(problem(8.0)))
    data = json.loads(path.read_text())
    data["problems"][0]["candidates"][0]["us"] = [20.0] * 9
    path.write_text(json.dumps(data))
    kernel = load_result(path).problems[0].candidates[0]
    assert kernel.speed
    assert kernel.seconds.median == pytest.approx(20e-6)
    assert kernel.speed.median == pytest.approx(0.5, rel=1e-2)


def test_a_problem_is_a_line_and_a_tiling_is_written_once(tmp_path: Path) -> None:
    text = keep(tmp_path, result(*(problem(8.0, m, numbers=NUMBERS) for m in range(1, 31)))).read_text()
    assert text.count('"number_0"') == 1
    lines = [line for line in text.splitlines() if line.startswith('{"shape"')]
    assert len(lines) == 30


def test_four_hundred_problems_with_fifteen_rounds_stay_under_a_megabyte(tmp_path: Path) -> None:
    path = keep(tmp_path, result(*many(400, 15)))
    assert path.stat().st_size < 1_000_000
    assert len(load_result(path).problems) == 400


def test_an_older_result_is_read_and_can_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(result(problem(8.0)), indent=1))
    assert main(["report", str(old), "-o", str(new)]) == 0
    assert new.read_text() == pack(result(problem(8.0)))
    assert "1.250 [1.246, 1.254]" in capsys.readouterr().out
    assert main(["report", str(new)]) == 0
    assert "1.250 [1.246, 1.254]" in capsys.readouterr().out
    assert main(["report", str(new), "-o", str(tmp_path / "again.json")]) == 0
    assert (tmp_path / "again.json").read_text() == new.read_text()
    assert main(["report", str(new), "-o", str(new)]) == 2


def test_a_count_is_read_by_the_name_that_older_results_give_it() -> None:
    interval = {"median": 1.0, "low": 1.0, "high": 1.0, "coverage": 0.9}
    summary = {"problems": 3, "geomean": interval, "least": 0.9, "most": 1.1}
    for name in ("behind", "below_one"):
        data = result(problem(8.0)) | {"summaries": {"gemm": {"cuBLAS": summary | {name: 2}}}}
        assert parse_result(data).summaries["gemm"]["cuBLAS"].model_dump()["below_one"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("tilings"), "`tilings` is missing"),
        (lambda d: d["problems"][0].pop("against"), "`against` is missing"),
        (lambda d: d["problems"][0]["candidates"][0].update(numbers=7), "list index out of range"),
        (lambda d: d["problems"][0]["candidates"][0].update(us=[]), "a time is a positive number"),
        (lambda d: d["problems"][0]["candidates"][0].update(us=[0.0] * 9), "a time is a positive number"),
        (lambda d: d["problems"][0]["candidates"][0].update(us=[8.0] * 8), "is damaged"),
        (lambda d: d["problems"][0]["candidates"][0].update(us="fast"), "is damaged"),
        (lambda d: d["problems"][0]["candidates"][0].update(name="torch.mm"), "two candidates of a problem have one"),
        (lambda d: d["problems"][0]["candidates"][0].update(against={"cuBLAS": "x"}), "`x` is missing"),
        (
            lambda d: d["problems"][0]["candidates"][0].update(against={f"l{i}": "torch.mm" for i in range(65)}),
            "is compared with more than 64 libraries",
        ),
        (lambda d: d["problems"][0]["candidates"][0].update(us=[8.0] * 10_001), "has more than 10000 samples"),
        (lambda d: d.update(problems=3), "is damaged"),
        (lambda d: d["problems"].append(3), "is damaged"),
        (lambda d: d["problems"][0].update(shape=3), r"is damaged: problems\.0\.shape"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, change: Any, message: str) -> None:
    path = keep(tmp_path, result(problem(8.0, numbers=NUMBERS)))
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(CutegenError, match=message) as caught:
        load_result(path)
    assert caught.value.exit_code == 2
    assert main(["report", str(path)]) == 2


def test_what_is_read_grows_as_the_file(tmp_path: Path) -> None:
    """Intervals of a thousand rounds for each library, and a tiling that a thousand candidates share."""
    path = keep(tmp_path, result(problem(8.0, numbers=NUMBERS)))
    data = json.loads(path.read_text())
    data["tilings"] = [{f"number {i}": i for i in range(12_000)}]
    kernel, baseline = data["problems"][0]["candidates"]
    kernel |= {"us": [8.0] * 1000, "against": {f"library {i}": "torch.mm" for i in range(64)}}
    first = [{**kernel, "name": f"kernel {i}", "us": [8.0], "against": {}} for i in range(1000)]
    data["problems"][0] |= {
        "candidates": [kernel, {**baseline, "us": [10.0] * 1000}], "first": [*first, {**baseline, "us": [10.0]}],
    }  # fmt: skip
    path.write_text(json.dumps(data))
    begin = time.process_time()
    found = load_result(path).problems[0]
    assert time.process_time() - begin < 2
    assert len(found.candidates[0].speeds) == 64
    assert len({id(c.numbers) for c in found.first[:-1]}) == 1


def repeated() -> dict[str, Any]:
    """A problem that took 10.4 at first and 9.9 in 15 rounds, against a baseline that takes 10."""
    p = problem(10.4, 16, "qkv")
    first = p["candidates"]
    baseline = [10.0 + 0.01 * i for i in range(15)]
    p["candidates"] = [candidate("gemm", [b * 0.99 for b in baseline], baseline), candidate("torch.mm", baseline)]
    return p | {"first": first}


def test_what_was_repeated_is_kept_and_the_second_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = keep(tmp_path, result(repeated(), problem(8.0, 32, "up"), floor=0.98))
    kept = load_result(path)
    assert [p.rounds for p in kept.problems] == [15, 9]
    assert [len(c.samples) for c in kept.problems[0].first] == [9, 9]
    summary = kept.summaries["gemm"]["cuBLAS"]
    assert summary.least == pytest.approx(1 / 0.99, rel=1e-3)
    assert summary.below_one == 0
    assert main(["report", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "because a lower end was under 0.98, and only the second time counts: 1 of 2 problems" in out
    assert re.search(r"qkv: m=16 n=64 k=64, gemm: 0\.962 \[\S+ \S+ in 9 rounds, then 1\.010 \[\S+ \S+ in 15", out), out
