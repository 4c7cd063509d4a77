"""`cutegen tune` from the command line to the lock and the rendered dispatch; kernels and their times are scripted."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import ALONE
from mla_specs import MLA
from scripted_backend import ScriptedMeasuring
from tune_setup import GPU, SHAPE, lock_spec, script_measuring, tune, winners

from cutegen.cli import main
from cutegen.families.resolved import dispatch
from cutegen.resolve import lock_path, read_lock, resolve_file
from cutegen.resolve.winners import DEFAULT
from cutegen.tune import session
from cutegen.tune.report import TuneReport
from cutegen.tune.store import TimingStore, store_path


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lock_spec(tmp_path, monkeypatch)


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedMeasuring]:
    return script_measuring(tmp_path, monkeypatch)


def test_a_winner_goes_into_the_lock_and_its_kernel_into_the_dispatch(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = measuring()
    assert tune(spec, *SHAPE, "--candidates", "20") == 0
    out = capsys.readouterr().out
    (winner,) = winners(spec)
    assert winner.device == GPU
    assert winner.calls == {"m": (17, 64), "n": 4096, "k": 4096}
    assert winner.gain
    assert winner.gain[0] > 1.05
    assert winner.baseline == "cuBLAS"
    assert "driver 1.0" in winner.toolchain
    assert f"{winner.tiling}: " in out
    assert "written: run `cutegen render`" in out
    assert len(made.built) == 21
    rows = resolve_file(spec, locked=True).resolved.dispatch
    assert dispatch(rows, {"m": 64, "n": 4096, "k": 4096}, GPU) == winner.tiling
    assert dispatch(rows, {"m": 65, "n": 4096, "k": 4096}, GPU) == "t128x256x64"
    assert dispatch(rows, {"m": 64, "n": 4096, "k": 4096}, "another") == "t128x256x64"
    assert main(["render", str(spec), "-o", str(spec.parent / "out")]) == 0
    assert f'"{winner.tiling}"' in (spec.parent / "out" / "product" / "plan.py").read_text()


def test_a_second_tune_costs_nothing(spec: Path, measuring: Any, tmp_path: Path) -> None:
    made = measuring()
    assert tune(spec, *SHAPE, "--candidates", "12") == 0
    text = lock_path(spec).read_text()
    made.built = []
    (tmp_path / "log").write_text("")
    assert tune(spec, *SHAPE, "--candidates", "12") == 0
    assert made.built == []
    assert (tmp_path / "log").read_text() == ""
    assert lock_path(spec).read_text() == text


def test_more_candidates_later_measure_only_the_new_ones(spec: Path, measuring: Any, tmp_path: Path) -> None:
    measuring()
    assert tune(spec, *SHAPE, "--candidates", "4") == 0
    (tmp_path / "log").write_text("")
    assert tune(spec, *SHAPE, "--candidates", "12") == 0
    admitted = {line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("admit")}
    # The eight new ones and the default; of the old ones those that later stages ask for.
    assert 9 <= len(admitted) <= 13


def test_problems_are_compiled_together_and_measured_in_one_process(
    spec: Path, measuring: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the verdicts that each has alone; which of equally fast kernels wins is chance."""
    untuned = lock_path(spec).read_text()
    made, processes = measuring(), list[Path]()
    station = made.station
    made.station = lambda package: processes.append(package) or station(package)
    shapes = [word for m in (16, 64, 512) for word in ("--shape", f"m={m},n=4096,k=4096")]
    assert tune(spec, *shapes, "--candidates", "6") == 0
    together = winners(spec)
    assert len(processes) == 1
    assert len(made.built) > 7
    monkeypatch.setattr(session, "BATCH", 1)
    lock_path(spec).write_text(untuned)
    assert tune(spec, *shapes, "--candidates", "6", "--fresh") == 0
    assert len(processes) == 4
    size = re.compile(r"t\d+x\d+")
    assert [(size.match(w.tiling)[0], w.calls) for w in winners(spec)] == [  # type: ignore[index]
        (size.match(w.tiling)[0], w.calls)  # type: ignore[index]
        for w in together
    ]


def test_where_the_default_stands_the_lock_says_so(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring(lambda tiling: 10e-6)
    assert tune(spec, *SHAPE, "--candidates", "5") == 0
    (entry,) = winners(spec)
    assert (entry.tiling, entry.gain) == (DEFAULT, None)
    assert "the default stands" in capsys.readouterr().out
    assert len(resolve_file(spec).resolved.tilings) == 1


def test_ranges_of_a_sweep(spec: Path, measuring: Any) -> None:
    measuring()
    shapes = [x for m in (512, 16, 64, 4096) for x in ("--shape", f"m={m},n=4096,k=4096")]
    assert tune(spec, *shapes, "--candidates", "6") == 0
    assert [w.calls["m"] for w in winners(spec)] == [(1, 16), (17, 64), (129, 512), (1025, 4096)]
    # A problem between two others takes over what lies below it.
    assert tune(spec, "--shape", "m=256,n=4096,k=4096", "--candidates", "6") == 0
    assert [w.calls["m"] for w in winners(spec)] == [(1, 16), (17, 64), (65, 256), (257, 512), (1025, 4096)]


def test_several_devices_are_valid_at_once(spec: Path, measuring: Any) -> None:
    measuring()
    assert tune(spec, *SHAPE, "--candidates", "6") == 0
    measuring(lambda tiling: 10e-6 if tiling.tile[1] == 256 else 9e-6, device="Other GPU")
    assert tune(spec, *SHAPE, "--candidates", "6") == 0
    assert sorted(w.device for w in winners(spec)) == ["Other GPU", GPU]


def test_problems_of_the_spec(spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]) -> None:
    measuring()
    spec.write_text(ALONE + "instances: [{n: 4096, k: 4096}, {n: 1024, k: 512}]\nm: [16, 64]\n")
    assert tune(spec, "--candidates", "3", "--json") == 0
    problems = [p["problem"] for p in json.loads(capsys.readouterr().out)["problems"]]
    assert problems == [{"m": m, "n": n, "k": k} for n, k in ((4096, 4096), (1024, 512)) for m in (16, 64)]
    tokens = ALONE.replace("[m, ", "[tokens, ") + "instances: [{n: 4096, k: 4096}]\nm: [16, 64]\n"
    spec.write_text(tokens)
    assert tune(spec, "--candidates", "3", "--json") == 0
    problems = [p["problem"] for p in json.loads(capsys.readouterr().out)["problems"]]
    assert problems == [{"tokens": m, "n": 4096, "k": 4096} for m in (16, 64)]
    for listed, said, remedy in (
        ("instances: [{n: 4096, k: 4096}]", "no `tokens`", "write `m: [1, 64, ..]`"),
        ("m: [16, 64]", "no `n` and no `k`", "write `n: .., k: ..` in each of `instances`"),
        ("instances: [{n: 8}]", "no `tokens` and no `k`", "write `m: [1, 64, ..]` and `k: ..` in each of `instances`"),
    ):
        spec.write_text(ALONE.replace("[m, ", "[tokens, ") + f"{listed}\n")
        assert tune(spec) == 2
        err = " ".join(capsys.readouterr().err.split())
        assert f"`instances` and `m` give {said}" in err
        assert f"{remedy}, or name a problem with --shape tokens=..,n=..,k=.." in err
    spec.write_text(ALONE)
    assert tune(spec) == 2
    assert "there is no problem to tune" in (err := capsys.readouterr().err)
    assert "--shape m=..,n=..,k=.." in err


def test_candidates_of_the_spec(spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]) -> None:
    measuring()
    lists = "tune: {tile: [[128, 128, 64], [256, 256, 64]], cluster: [[1, 1], [2, 1]], schedule: [pingpong]}\n"
    spec.write_text(ALONE + lists)
    assert tune(spec, *SHAPE, "--json") == 0
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["counts"]["candidates"] == 2
    assert problem["counts"]["pruned"] == 2
    assert problem["pruned"][0]["rule"] == "accumulator-registers"
    assert {tuple(c["knobs"]["tiling.tile"]) for c in problem["candidates"]} == {(128, 128, 64)}


def test_what_fails_is_counted_with_reasons(spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made = measuring()
    made.breaks = lambda tiling: "local-memory: planned 0, found 96" if tiling.tile[1] == 32 else ""
    assert tune(spec, *SHAPE, "--candidates", "12", "--json") == 0
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    failed = [c for c in problem["candidates"] if c["fault"]]
    assert problem["counts"]["failed"] == len(failed) > 0
    assert failed[0]["fault"] == {"kind": "failed", "reason": "local-memory: planned 0, found 96"}
    # They are remembered, and not compiled again.
    made.built = []
    assert tune(spec, *SHAPE, "--candidates", "12", "--json") == 0
    assert made.built == []
    made.breaks = lambda tiling: "no registers" if tiling.tile == (128, 256, 64) else ""
    assert tune(spec, *SHAPE, "--fresh") == 1
    assert "the default kernel does not build: no registers" in capsys.readouterr().err


def test_a_budget_looks_at_few_candidates_and_the_next_run_goes_on(spec: Path, measuring: Any, tmp_path: Path) -> None:
    problems = [{"m": m, "n": 4096, "k": 4096} for m in (64, 128, 256)]
    store = TimingStore(store_path(tmp_path / "cache"))

    def run(budget_s: float, step: float = 0.002) -> TuneReport:
        ticks = itertools.count()
        options = session.Options(budget_s, candidates=40, clock=lambda: step * next(ticks))
        return session.Session(spec, measuring(), store, options).run(problems)

    first = run(7.0, step=0.01)
    assert [p.problem for p in first.problems] == problems
    assert not first.not_reached
    assert all(len(p.trials) == session.FEW for p in first.problems)
    kept = store.count()["timings"]
    (tmp_path / "log").write_text("")
    second = run(80.0)
    assert not second.not_reached
    assert all(len(p.trials) >= 40 for p in second.problems)  # a longer budget, more candidates
    assert store.count()["timings"] > kept
    # What the first one looked at is known, and only looked at again as a leader.
    known = {t.name for p in first.problems for t in p.trials if t.timing}
    assert known
    assert len(winners(spec)) == 3
    assert all(p.best and p.best.speed and p.best.speed.low > 1.05 for p in second.problems)


def test_a_budget_for_few_of_many_problems_leaves_the_others(spec: Path, measuring: Any) -> None:
    problems = [{"m": m, "n": 4096, "k": 4096} for m in range(64, 64 + 20)]
    ticks = itertools.count()
    options = session.Options(12.0, candidates=8, clock=lambda: 0.01 * next(ticks))
    report = session.Session(spec, measuring(), TimingStore(None), options).run(problems)
    found = [p for p in report.problems if p.best]
    assert len(found) >= 3
    assert [p.problem for p in report.problems] + report.not_reached == problems
    assert report.seconds < 12 + 1.5
    assert [w.problem for w in winners(spec)] == [p.problem for p in found]


def test_a_default_that_is_wrong_on_one_problem_costs_that_problem(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring(does={("admit", "t128x256x64"): "wrong"})
    assert tune(spec, *SHAPE, "--candidates", "2") == 1
    assert "the default kernel: wrong: 3 of 100 elements are wrong" in capsys.readouterr().err
    assert winners(spec) == ()


def test_what_was_proved_is_written_when_nothing_runs_any_more(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "BATCH", 1)
    made = measuring()
    station, stations = made.station, itertools.count()

    def then_gone(package: Path) -> Any:
        made.script = {"device": "no GPU"} if next(stations) else {}
        return station(package)

    made.station = then_gone
    assert tune(spec, *SHAPE, "--shape", "m=512,n=4096,k=4096", "--candidates", "3") == 2
    said = capsys.readouterr()
    assert "the measuring process is on no GPU" in said.err
    assert "m=64 n=4096 k=4096: " in said.out
    assert "nothing more could be measured: 1 problem is left; the same command goes on" in said.out
    assert "written: run `cutegen render`" in said.out
    assert [w.calls["m"] for w in winners(spec)] == [(17, 64)]


def test_figures_taken_beside_another_process_are_not_trusted(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring(others=1)
    before = lock_path(spec).read_text()
    assert tune(spec, *SHAPE, "--candidates", "4") == 1
    out = capsys.readouterr().out
    assert "not trusted: another process used the GPU" in out
    assert "1 other process on the GPU" in out
    assert lock_path(spec).read_text() == before


def test_a_lock_nobody_may_write_is_told_before_anything_starts(
    spec: Path, measuring: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = measuring()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != lock_path(spec))
    assert tune(spec, *SHAPE) == 2
    assert f"{lock_path(spec)} cannot be written" in capsys.readouterr().err
    assert made.built == []
    assert tune(spec, *SHAPE, "--dry-run") == 0  # writes none


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--suite", "lama"], "suites/lama.yaml does not exist"),
        (["--shape", "m=64"], "n, k missing"),
        (["--shape", "m=64,n=4096,k=4096,x=1"], "has no dim x"),
        (["--shape", "m=64,n=4097,k=4096"], "n must be a multiple of 8"),
        (["--shape", "m=64", "--suite", "x"], "exclude each other"),
        (["--budget", "5"], "--budget: `5` is not a time"),
        (["--confirm", "--dry-run"], "--confirm goes without"),
        (["--confirm", "--candidates", "3"], "--candidates has no effect with --confirm"),
        (["--confirm", "--unordered-sums"], "--unordered-sums has no effect with --confirm"),
        (["--dry-run", "--budget", "5m"], "--budget has no effect with --dry-run"),
        (["--dry-run", "--fresh"], "--fresh has no effect with --dry-run"),
        (["--dry-run", "-j", "3"], "--jobs has no effect with --dry-run"),
    ],
)
def test_bad_requests_are_found_before_anything_starts(
    spec: Path, measuring: Any, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = measuring()
    assert tune(spec, *options) in (1, 2)
    assert message in capsys.readouterr().err
    assert made.built == []


@pytest.mark.parametrize("piped", ["spec", "lock"])
def test_a_pipe_is_refused_and_not_waited_for(
    spec: Path, measuring: Any, piped: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made, path = measuring(), spec if piped == "spec" else lock_path(spec)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert tune(spec, "--confirm") in (1, 2)
    assert f"{path}" in (err := capsys.readouterr().err)
    assert "cannot be read: not a regular file" in err
    assert made.built == []


def test_a_suite_leaves_out_what_is_not_for_this_kernel(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring()
    (spec.parent / "suites").mkdir()
    (spec.parent / "suites" / "mine.yaml").write_text(
        "problems:\n  - {name: qkv, shape: {m: 16, n: 6144, k: 4096}}\n"
        "  - {name: fp8, shape: {m: 16, n: 6144, k: 4096}, dtype: f16}\n"
    )
    assert tune(spec, "--suite", "mine", "--candidates", "2", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [p["problem"] for p in result["problems"]] == [{"m": 16, "n": 6144, "k": 4096}]
    assert any("operands are bf16, not f16" in note for note in result["notes"])


def test_mla_decode_is_tuned_beside_the_variant_that_a_problem_runs(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prefetching is fastest, and one CTA with it; two variants are the defaults of two problems."""
    made = measuring(lambda t: (10 - 2 * t.prefetch + t.cluster + t.overhead / 10) * 1e-6)
    spec.write_text(MLA)
    lock_path(spec).unlink()
    problems = ("batch=1,query_len=1,heads=16,kv_len=1000", "batch=32,query_len=1,heads=128,kv_len=4096")
    shapes = [word for problem in problems for word in ("--shape", problem)]
    assert tune(spec, *shapes) == 0
    out = capsys.readouterr().out
    assert "pruned 24 by `row-block-pairs`, such as: heads 16 x query_len 1 = 16 rows" in " ".join(out.split())
    small, large = winners(spec)
    assert (small.calls, large.calls) == (
        {"batch": 1, "query_len": 1, "heads": 16, "kv_len": (251, 1000)},
        {"batch": 32, "query_len": 1, "heads": 128, "kv_len": (1025, 4096)},
    )
    lock = read_lock(lock_path(spec))
    assert lock
    best = lock.tilings[small.tiling]
    assert (best["pipeline.prefetch"], best["scheduler.overhead"]) == (1, 1)
    assert {lock.tilings[w.tiling]["variant"] for w in (small, large)} == {"seesaw"}
    assert small.gain
    assert small.gain[1] == pytest.approx(11.2 / 9.1, rel=0.01)  # of seesaw, which prefetches nothing by itself
    assert large.gain
    assert large.gain[1] == pytest.approx(10.2 / 9.1, rel=0.01)  # of seesaw_2cta
    assert len(made.built) == 24 + 48  # seesaw_2cta cannot share columns
    spec.write_text(MLA + "tune: {overhead: [2, 8]}\n")
    assert tune(spec, *shapes[:2], "--dry-run") == 0
    assert "listed in the spec" in capsys.readouterr().out
    spec.write_text(MLA + "variant: both\nscheduler: {unit: any}\n")
    assert tune(spec, *shapes[:2], "--dry-run", "--json") == 0
    proposed = json.loads(capsys.readouterr().out)[0]["candidates"]
    assert {(c["knobs"]["variant"], c["knobs"]["scheduler.unit"]) for c in proposed} == {("seesaw", 1), ("seesaw", 2)}


def test_a_dry_run_lists_candidates_and_needs_no_gpu(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(spec, *SHAPE, "--dry-run", "--candidates", "3") == 0
    out = capsys.readouterr().out
    assert "m=64 n=4096 k=4096: 3 candidates, " in out
    assert "tiling.tile=[" in out
    assert re.search(r"pruned \d+ by `accumulator-registers`", out)


def test_without_a_gpu_nothing_is_compiled(
    spec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cutegen.runtime.gpu import GpuStatus

    monkeypatch.setattr("cutegen.tune.gpu.probe_gpu", lambda arch: GpuStatus(("there is no device",)))
    monkeypatch.setattr(session, "build_kernels", lambda *args, **more: pytest.fail("compiled"))
    assert tune(spec, *SHAPE) == 2
    assert "not run: there is no device" in (err := capsys.readouterr().err)
    assert "tune on the machine that will run the kernels" in err


@pytest.mark.parametrize("text", ["0s", "0m", "", "5", "5x", "5m 3s", "-5s"])
def test_a_budget_of_no_time_is_refused(
    spec: Path, measuring: Any, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring()
    assert tune(spec, *SHAPE, f"--budget={text}") == 2
    assert "is not a time" in capsys.readouterr().err
