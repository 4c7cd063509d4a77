"""The cost model of GEMMs: what each term does, and its score on everything that was measured (docs/performance.md)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_results import candidate as timed
from bench_results import problem as timed_problem
from bench_results import result
from gemm_specs import FUSED, H200, PLAIN, SM90, bind_text, candidate, resolve_text

from cutegen.cli import main
from cutegen.families.gemm import FAMILY
from cutegen.families.gemm.auto import candidates
from cutegen.families.gemm.cost_model import SPLIT_CLOCKS, START_CLOCKS, Estimate, Shape, describe_work, estimate
from cutegen.families.gemm.ranking import core, legal_candidates
from cutegen.families.gemm.rules import refusals
from cutegen.hardware import DEVICES
from cutegen.report.score import Pick, Score, Timed, TimedProblem, describe_score, load_timed, score_model
from cutegen.resolve import resolve_file

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "performance.md").read_text()
P = bind_text(PLAIN)


def model(shape: Shape, text: str = PLAIN, **knobs: Any) -> Estimate:
    problem = bind_text(text)
    return estimate(candidate(problem, **knobs), describe_work(problem, shape, H200), H200)


def seconds(e: Estimate) -> float:
    return e.clocks / H200.clock_hz


def test_nothing_is_faster_than_memory() -> None:
    for shape in (Shape(1, 8192, 8192), Shape(16, 4096, 14336), Shape(4096, 4096, 64)):
        work = describe_work(P, shape, H200)
        for choice in candidates(P, {}, SM90, H200, [shape]):
            assert estimate(choice.candidate, work, H200).clocks >= START_CLOCKS + work.memory


def test_waves_that_are_not_full_cost_as_full_ones() -> None:
    full, over = (model(Shape(128 * 132 * w // 12, 256 * 12, 8192)) for w in (2, 2))
    one_more = model(Shape(128 * 23, 256 * 12, 8192))
    assert (full.tiles, full.waves, full.last) == (over.tiles, 2, 132)
    assert (one_more.tiles, one_more.waves, one_more.last) == (288, 3, 24)
    assert one_more.clocks > 1.4 * full.clocks


def test_few_rows_are_bound_by_memory_and_prefer_small_tiles() -> None:
    shape = Shape(16, 8192, 8192)
    wide, narrow = model(shape), model(shape, tile=(64, 64, 64), consumers=1, cluster=(1, 1))
    assert narrow.bound == "device memory"
    assert wide.bound == "shared memory"
    assert narrow.clocks < wide.clocks / 2


def test_too_few_tiles_leave_memory_idle() -> None:
    shape = Shape(64, 2048, 8192)
    few, many = (model(shape, tile=(64, n, 64), consumers=1, cluster=(1, 1)) for n in (256, 16))
    assert (few.tiles, many.tiles) == (8, 128)
    assert few.clocks > 2.5 * many.clocks


def test_pingpong_hides_epilogues_even_of_short_contractions() -> None:
    shape = Shape(8192, 8192, 64)
    knobs: dict[str, Any] = {"tile": (128, 128, 64), "cluster": (1, 1)}
    together, apart = model(shape, FUSED, **knobs), model(shape, FUSED, schedule="pingpong", **knobs)
    assert apart.busy < 0.6 * together.busy


def test_clusters_save_power_where_there_are_many_waves_and_nothing_in_one() -> None:
    large, small = Shape(8192, 8192, 8192), Shape(16, 8192, 4096)
    assert model(large, cluster=(2, 1)).clocks < model(large, cluster=(1, 1)).clocks
    tiny: dict[str, Any] = {"tile": (64, 64, 64), "consumers": 1}
    assert model(small, cluster=(1, 1), **tiny).clocks < model(small, cluster=(1, 2), **tiny).clocks


def test_idle_sms_lend_power_in_a_single_wave_only() -> None:
    """112 tiles of 512 x 7168: cuBLAS took 45.4 us, which at the rate of many full waves would be 54."""
    one = model(Shape(512, 7168, 4096))
    assert (one.tiles, one.waves) == (112, 1)
    assert seconds(one) * 1e6 == pytest.approx(46.5, abs=1)
    two = model(Shape(512 + 128 * 32, 7168, 4096))
    assert (two.waves, two.last) == (8, 84)
    assert (two.clocks - START_CLOCKS) / two.waves > 1.15 * (one.clocks - START_CLOCKS)


def test_split_k_fills_the_device_and_does_not_pay_where_it_is_full() -> None:
    knobs: dict[str, Any] = {"tile": (64, 128, 64), "consumers": 1, "cluster": (1, 1)}
    deep, wide = Shape(64, 2048, 16384), Shape(2048, 8192, 1024)
    assert model(deep, split_k=8, **knobs).clocks < model(deep, split_k=1, **knobs).clocks / 2
    assert model(wide, split_k=4, **knobs).clocks > 1.2 * model(wide, split_k=1, **knobs).clocks
    assert model(deep, split_k=8, **knobs).tiles == 128


def test_half_of_the_sms_do_not_get_all_of_memory() -> None:
    """64 rows of tiles for 132 SMs; 128 CTAs wait for memory alone, with half as many columns or k in two parts."""
    shape, knobs = Shape(16, 4096, 16384), {"consumers": 1, "cluster": (1, 1)}
    half, narrow = (model(shape, tile=(64, n, 64), **knobs) for n in (64, 32))
    assert (half.tiles, narrow.tiles) == (64, 128)
    assert (half.bound, narrow.bound) == ("device memory", "device memory")
    assert half.clocks > 1.1 * narrow.clocks
    assert seconds(narrow) * H200.sustained_bytes_per_s > 4096 * 16384 * 2


def test_partial_sums_are_waited_for_whatever_bounds_the_rest() -> None:
    shape, knobs = Shape(16, 4096, 16384), {"tile": (64, 64, 64), "consumers": 1, "cluster": (1, 1)}
    two, three = (model(shape, split_k=parts, split_k_sum="ordered_turnstile", **knobs) for parts in (2, 3))
    assert two.bound == "device memory"
    assert two.spent["partial sums"] >= SPLIT_CLOCKS
    assert three.spent["partial sums"] == 2 * 2 * two.spent["partial sums"]  # two hand-overs, in two waves
    assert sum(three.spent.values()) == three.clocks


def test_operands_beyond_l2_are_read_again_by_each_wave() -> None:
    """B of 1 GB streams past bands of 8 tiles of A; without bands it would have to come once for each row of tiles."""
    shape = Shape(128 * 132, 8192, 65536)
    banded, single = (model(shape, raster_group=g, cluster=(1, 1)) for g in (8, 1))
    assert single.clocks >= banded.clocks
    work = describe_work(P, shape, replace(H200, sustained_bytes_per_s=10**12))
    slow = replace(H200, sustained_bytes_per_s=10**12)
    one, many = (estimate(candidate(P, raster_group=g, cluster=(1, 1)), work, slow) for g in (1, 11))
    assert one.bound == "device memory"
    assert one.clocks > 1.3 * many.clocks


@pytest.mark.parametrize("device", list(DEVICES.values()), ids=list(DEVICES))
def test_sustained_rates_are_below_those_of_the_data_sheet(device: Any) -> None:
    assert 0.6 * device.flops_16bit < device.sustained_flops_16bit < device.flops_16bit
    assert 0.8 * device.hbm_bytes_per_s < device.sustained_bytes_per_s < device.hbm_bytes_per_s


def test_the_transposed_kernel_needs_to_be_ahead() -> None:
    shape = Shape(4096, 4096, 4096)
    first = next(c for c in legal_candidates(resolve_text(PLAIN).resolved, shape))
    assert not first.swap_ab


def test_explain_ranks_the_legal_ones_under_what_the_spec_writes(capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(ROOT / "specs" / "gemm_bf16_pingpong_sm90a.yaml")
    assert main(["explain", spec, "--shape", "m=16,n=4096,k=4096", "--json"]) == 0
    (ranking,) = (s for s in json.loads(capsys.readouterr().out) if s["title"].startswith("Cost model for m=16"))
    rows = ranking["table"]
    assert ranking["lines"] == ["under what the spec writes: warpgroups.schedule"]
    assert [r["rank"] for r in rows] == ["1", "2", "3", "4", "5", "this kernel"]
    assert {r["schedule"] for r in rows} == {"pingpong"}
    times = [float(r["us"]) for r in rows]
    assert times == sorted(times)
    assert {r["bound by"] for r in rows} <= {
        "tensor core",
        "shared memory",
        "epilogue",
        "L2",
        "device memory",
        "launch",
    }
    assert all(r["bound by"] in r["of which"] for r in rows)
    assert rows[0]["of which"].startswith("launch 2.7")


def test_the_kernel_is_marked_where_it_is_among_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(ROOT / "specs" / "gemm_bf16_pingpong_sm90a.yaml")
    assert main(["explain", spec, "--shape", "m=8192,n=8192,k=8192"]) == 0
    assert "  1, this kernel  128 x 192 x 64  2 x 1" in capsys.readouterr().out


def measured_rows() -> list[TimedProblem]:
    """The table of kernels in docs/performance.md: | m, n, k | `kernel` | tiling | us |."""
    found: dict[str, list[Timed]] = {}
    for dims, kernel, us in re.findall(r"^\| (\d+, \d+, \d+) \| `(gemm_\w+)` \| \d+ x \d+ \| ([\d.]+) \|", DOCS, re.M):
        found.setdefault(dims, []).append(Timed(kernel, kernel, {}, float(us) / 1e6))
    return [TimedProblem(d, dict(zip("mnk", map(int, d.split(", ")))), tuple(k)) for d, k in found.items()]


def run_model(kernel: str, instance: Any, shape: Any) -> float | None:
    resolved: Any = resolve_file(ROOT / "specs" / f"{kernel}.yaml").resolved
    return FAMILY.estimate(resolved, instance, shape)


def _model_us(kernel: Timed, problem: TimedProblem) -> str:
    return f"{1e6 * (run_model(kernel.kernel, {}, problem.shape) or 0):.2f}"


def test_score_on_all_that_was_measured_is_the_one_in_the_docs() -> None:
    score = score_model(measured_rows(), run_model)
    assert [p.count for p in score.picks] == [2, 2, 2, 2]
    assert score.within(0.0) == 4
    said = " ".join(DOCS.split())
    for text in describe_score(score):
        assert text in said
    for problem in measured_rows():
        for kernel in problem.kernels:
            assert (
                f"| {problem.title} | `{kernel.label}` | {kernel.seconds * 1e6:.2f} | {_model_us(kernel, problem)} |"
                in DOCS
            )


# us of the fastest of cuBLAS, quack 0.6.5 (tuned) and CUTLASS's persistent example (best of 18), as in the docs
PEERS = {
    Shape(8192, 8192, 8192): 1573.5, Shape(4096, 4096, 4096): 212.0, Shape(16384, 4096, 14336): 2908.7,
    Shape(4096, 28672, 8192): 2883.2, Shape(2048, 2112, 7168): 92.6, Shape(512, 7168, 4096): 45.4,
    Shape(128, 7168, 16384): 64.8, Shape(64, 24576, 1536): 21.5, Shape(16, 8192, 8192): 34.0,
}  # fmt: skip


@pytest.mark.parametrize("shape", PEERS, ids=str)
def test_what_the_model_picks_is_as_fast_as_peers_were(shape: Shape) -> None:
    resolved: Any = resolve_text(PLAIN).resolved
    first = next(legal_candidates(resolved, shape))
    us = 1e6 * seconds(estimate(first, describe_work(P, shape, H200), H200))
    assert us == pytest.approx(PEERS[shape], rel=0.1)
    m, n, k, _ = shape
    tile = f"{first.tile[0]} x {first.tile[1]} {first.schedule}{', transposed' if first.swap_ab else ''}"
    assert f"| {m}, {n}, {k} | {PEERS[shape]} | {us:.1f} | {tile} |" in DOCS


def test_picks_and_errors() -> None:
    shape = {"m": 1}
    problems = [
        TimedProblem("one", shape, (Timed("a", "x", "a", 1.0), Timed("b", "x", "b", 1.1), Timed("c", "x", "c", 0.9))),
        TimedProblem("two", shape, (Timed("a", "x", "a", 1.0), Timed("b", "y", "b", 0.5))),
    ]
    estimates = {"a": 1.0, "b": 1.0, "c": 2.0}
    score = score_model(problems, lambda kernel, tiling, shape: estimates[str(tiling)] if kernel == "x" else None)
    assert score.picks == (Pick("one", 3, ("b", 1.1), ("c", 0.9), 1.0),)  # a tie: the slower one counts
    assert score.picks[0].behind == pytest.approx(1.1 / 0.9 - 1)
    assert score.errors == pytest.approx((0.0, 1 / 1.1 - 1, 2 / 0.9 - 1, 0.0))
    assert next(describe_score(Score((), ()))).startswith("no problem has two kernels")


def write_bench(tmp_path: Path) -> Path:
    problem = timed_problem(8.0, 4096)
    baseline = problem["candidates"][1]
    kernels = [
        timed(f"gemm_bf16_{name}", [us] * 5, [us] * 5, tiling=tiling)
        for name, us, tiling in (("sm90a", 1700.0, "t128x256x64"), ("pingpong_sm90a #2", 1600.0, "t128x192x64"))
    ]
    problem |= {"shape": {"m": 8192, "n": 8192, "k": 8192}, "candidates": [*kernels, baseline]}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(result(problem)))
    return path


def test_score_of_a_bench_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_bench(tmp_path)
    specs = [a for n in ("gemm_bf16_sm90a", "gemm_bf16_pingpong_sm90a") for a in ("--model", f"{ROOT}/specs/{n}.yaml")]
    assert main(["report", str(path), *specs]) == 0
    out = capsys.readouterr().out
    assert "gemm_bf16_pingpong_sm90a #2 t128x192x64  1600.00" in out
    assert "behind the fastest by at most 2% on 1 (100%), 5% on 1 (100%), 10% on 1 (100%) of 1 problems" in out
    assert main(["report", str(path), *specs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["within"]["5%"] == 1
    assert main(["report", str(path), *specs[:2]]) == 0
    assert "nothing to choose from" in capsys.readouterr().out


def test_score_of_a_tune_puts_candidates_into_the_same_rounds(tmp_path: Path) -> None:
    def tried(name: str, tile: Any, speed: float | None, default: list[float]) -> dict[str, Any]:
        samples = {"own": [1.0], "default": default, "baseline": [], "baseline_name": ""} if speed else None
        ratio = {"median": speed, "low": speed, "high": speed, "coverage": 0.9} if speed else None
        knobs = {"tiling.tile": tile, "nonsense": 1} if name == "odd" else {"tiling.tile": tile}
        return {"name": name, "knobs": knobs, "seconds": 1.0 if speed else None, "speed": ratio, "samples": samples}

    problem = {
        "problem": {"m": 4096, "n": 4096, "k": 4096},
        "candidates": [
            tried("small", [128, 64, 64], 0.5, [210e-6, 212e-6]), tried("broken", [1, 1, 1], None, []),
            tried("odd", [128, 128, 64], 1.5, [208e-6, 210e-6]),
        ],
    }  # fmt: skip
    path = tmp_path / "tune.json"
    path.write_text(json.dumps({"spec": "specs/gemm_bf16_sm90a.yaml", "problems": [problem]}))
    (found,) = load_timed(path)
    assert [(k.label, k.seconds) for k in found.kernels] == [
        ("default", 210e-6), ("small", 420e-6), ("odd", pytest.approx(140e-6)),
    ]  # fmt: skip
    score = score_model([found], run_model)
    assert score.picks == (Pick("m=4096 n=4096 k=4096", 2, ("default", 210e-6), ("default", 210e-6), pytest.approx(208e-6, rel=0.01)),)  # fmt: skip  # noqa: E501


@pytest.mark.parametrize(
    "text", ['{"spec": 1, "problems": []}', '{"spec": "a", "problems": [{"problem": 3}]}', "[]", "{"]
)
def test_files_that_hold_no_times(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert main(["report", str(path), "--model", f"{ROOT}/specs/gemm_bf16_sm90a.yaml"]) == 2
    assert "error: " in capsys.readouterr().err


def test_ranking_lists_each_core_once() -> None:
    resolved: Any = resolve_text(PLAIN).resolved
    cores = [core(c) for c in legal_candidates(resolved, Shape(512, 4096, 4096))]
    assert len(cores) == len(set(cores)) > 100
    assert not any(next(refusals(P, c, SM90), None) for c in legal_candidates(resolved, Shape(512, 4096, 4096)))
