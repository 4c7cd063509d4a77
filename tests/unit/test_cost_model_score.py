"""The cost model's score on what was measured, as docs/performance/cost-model.md has it, and how results are scored."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench_results import candidate as timed
from bench_results import problem as timed_problem
from bench_results import result

from cutegen.arch import DEVICES, Device
from cutegen.cli import main
from cutegen.families.gemm import FAMILY, cores
from cutegen.families.gemm.candidate import Candidate, Core
from cutegen.families.gemm.cores import rank, sketch
from cutegen.families.gemm.cost_model import Estimate, Shape, describe_work, estimate
from cutegen.families.gemm.features.split_k import feature
from cutegen.families.gemm.problem import GemmProblem
from cutegen.report.score import WITHIN, Pick, Score, Timed, TimedProblem, describe_score, load_timed, score_model
from cutegen.resolve import resolve_file

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "performance"
DOCS = (PAGES / "cost-model.md").read_text()
SAID = " ".join(DOCS.split())
MEASURED = json.loads((ROOT / "docs" / "measurements" / "gemm_h200.json").read_text())
KERNELS = {
    "bf16": "gemm_bf16_sm90a",
    "e4m3": "gemm_e4m3_tensor_sm90a",
    "e4m3 rows": "gemm_e4m3_rowcol_sm90a",
    "e4m3 blocks": "gemm_e4m3_block128_sm90a",
}
FIRST = (5, 10)  # candidates that a quick tune might measure
ON_H100 = json.loads((ROOT / "docs" / "measurements" / "gemm_h100.json").read_text())
TUNED = 5  # the run that `tune` measured, the only one that nothing was fitted to


def resolve_shipped(kernel: str) -> Any:
    return resolve_file(ROOT / "specs" / f"{kernel}.yaml").resolved


class Ranked(NamedTuple):
    """A problem of the measurements. us: of its kernels, as `auto` would try them; modelled: in the same order."""

    run: int
    dtype: str
    shape: Shape
    us: list[float]
    modelled: list[float]

    def reach(self, first: int) -> float:
        """By what the fastest of the first is slower than the fastest of all."""
        return min(self.us[:first]) / min(self.us) - 1


class Kernel(NamedTuple):
    """As gemm_h200.json has it."""

    schedule: str
    consumers: int
    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    stages: int
    split_k: int
    swap_ab: bool
    split_k_sum: str
    load_ahead: bool
    scheduler: str

    @property
    def core(self) -> Core:
        return Core(self.schedule, self.consumers, self.tile, self.cluster, self.swap_ab, self.split_k)

    def candidate(self, problem: GemmProblem, run: int) -> Candidate:
        return sketch(problem, self.core, self.stages, DEVICES["h200"]).vary(
            split_k_sum=self.split_k_sum,
            load_ahead_b=self.load_ahead,
            scheduler=self.scheduler,
            pdl_wait=run >= 4,
        )


@pytest.fixture(scope="module")
def measured() -> list[Ranked]:
    assert MEASURED["kernel"] == list(Kernel._fields)
    assert MEASURED["problem"] == ["run", "dtype", "m", "n", "k", "cublas_us", [["kernel", "us"]]]
    kernels = [
        Kernel(schedule, consumers, tuple(tile), tuple(cluster), *others)
        for schedule, consumers, tile, cluster, *others in MEASURED["kernels"]
    ]
    problems = {dtype: resolve_shipped(kernel).problem for dtype, kernel in KERNELS.items()}
    found = []
    for run, dtype, m, n, k, _, times in MEASURED["problems"]:
        tried = [(kernels[i], us) for i, us in times]
        found.append((_rank if run == TUNED else _rank_cores)(run, dtype, problems[dtype], Shape(m, n, k), tried))
    return found


def _rank(run: int, dtype: str, problem: GemmProblem, shape: Shape, tried: list[tuple[Kernel, float]]) -> Ranked:
    """As `tune` does, in whose order they are; of those that the model cannot tell apart the first one is first."""
    candidates = [(kernel.candidate(problem, run), us) for kernel, us in tried]
    return _rank_candidates(run, dtype, problem, shape, candidates, DEVICES["h200"])


def _rank_candidates(
    run: int, dtype: str, problem: GemmProblem, shape: Shape, tried: list[tuple[Candidate, float]], device: Device
) -> Ranked:
    work = describe_work(problem, shape, device)
    timed = [(estimate(candidate, work, device), us) for candidate, us in tried]
    timed.sort(key=lambda item: (item[0].clocks, item[0].from_l2, item[0].busy))
    return Ranked(run, dtype, shape, [us for _, us in timed], [_us(e) for e, _ in timed])


def _rank_cores(run: int, dtype: str, problem: GemmProblem, shape: Shape, tried: list[tuple[Kernel, float]]) -> Ranked:
    """As `auto` does, of kernels of that day: whole tiles were loaded, and parts met in global memory."""
    device = DEVICES["h200"]
    us = {kernel.core: us for kernel, us in tried}
    assert len(us) == len(tried)
    by_core = {kernel.core: kernel for kernel, _ in tried}
    work = describe_work(problem, shape, device)
    work = work._replace(form=work.form._replace(in_pieces=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature, "choose_sum", lambda *_: ("ordered_parallel", ""))
        patch.setattr(cores, "describe_work", lambda *_: work)
        order = list(rank(problem, {core: kernel.stages for core, kernel in by_core.items()}, device, [shape]))
    modelled = [estimate(by_core[core].candidate(problem, run), work, device) for core in order]
    return Ranked(run, dtype, shape, [us[core] for core in order], [_us(e) for e in modelled])


def _us(e: Estimate) -> float:
    return e.clocks * 1e6 / DEVICES["h200"].clock_hz


@pytest.fixture(scope="module")
def on_h100() -> list[Ranked]:
    """Complete candidates, in the order in which plans pick."""
    names = ON_H100["kernel"]
    assert names[:7] == ["schedule", "consumers", "tile", "cluster", "stages", "split_k", "swap_ab"]
    assert ON_H100["problem"] == MEASURED["problem"]
    problem, device = resolve_shipped(KERNELS["bf16"]).problem, DEVICES["h100"]
    kernels = []
    for values in ON_H100["kernels"]:
        schedule, consumers, tile, cluster, stages, split_k, swap_ab = values[:7]
        core = Core(schedule, consumers, tuple(tile), tuple(cluster), swap_ab, split_k)
        others = dict(zip(names[7:], values[7:]))
        kernels.append(sketch(problem, core, stages, device).vary(**others, pdl_wait=True))
    return [
        _rank_candidates(run, dtype, problem, Shape(m, n, k), [(kernels[i], us) for i, us in times], device)
        for run, dtype, m, n, k, _, times in ON_H100["problems"]
    ]


def test_score_on_the_h100_is_the_one_in_the_docs(on_h100: list[Ranked]) -> None:
    layers = {r.shape[1:] for r in on_h100}
    assert f"{sum(len(r.us) for r in on_h100):,} times of {len({r.shape for r in on_h100})} problems" in SAID
    assert f"with {len(layers)} pairs of n and k" in SAID
    for text in describe_score(score(on_h100)):
        assert text in SAID
    for run in (1, 2):
        rows = [r for r in on_h100 if r.run == run]
        part = score(rows)
        mean = math.exp(sum(math.log(1 + p.loss) for p in part.picks) / len(rows)) - 1
        inside = [part.within(s) for s in WITHIN]
        cells = (run, len(rows), *inside, f"{mean:.1%}", f"{max(p.loss for p in part.picks):.1%}")
        assert f"| {' | '.join(map(str, cells))} |" in DOCS
    short = [r for r in on_h100 if 130 <= r.shape.m <= 400]
    assert f"with 130 to 400 rows within 5% on {score(short).within(0.05)} of {len(short)}" in SAID


def score(rows: list[Ranked]) -> Score:
    picks = [Pick(str(r.shape), len(r.us), ("", r.us[0]), ("", min(r.us)), r.modelled[0]) for r in rows]
    return Score(tuple(picks), tuple(m / t - 1 for r in rows for m, t in zip(r.modelled, r.us)))


def test_score_on_the_measurements_is_the_one_in_the_docs(measured: list[Ranked]) -> None:
    everything = score(measured)
    assert everything.within(0.05) >= 0.8 * len(measured)
    for text in describe_score(everything):
        assert text in SAID
    for first in FIRST:
        count = sum(r.reach(first) <= 0.02 for r in measured)
        assert f"the fastest of its first {first} is within 2% on {count} ({count / len(measured):.0%})" in SAID
    for run, dtype in sorted({(r.run, r.dtype) for r in measured}):
        rows = [r for r in measured if (r.run, r.dtype) == (run, dtype)]
        part = score(rows)
        cells = (run, dtype, len(rows), *(part.within(s) for s in WITHIN), f"{max(p.loss for p in part.picks):.1%}")
        assert f"| {' | '.join(map(str, cells))} |" in DOCS


def test_the_docs_say_what_was_measured(measured: list[Ranked]) -> None:
    fitted, tuned = [r for r in measured if r.run != TUNED], [r for r in measured if r.run == TUNED]
    times, layers = sum(len(r.us) for r in fitted), {r.shape[1:] for r in fitted}
    different = {(r.dtype, r.shape) for r in fitted}
    assert f"{times:,} times of {len(different)} problems with {len(layers)} pairs of n and k" in SAID
    few, many = ([r for r in tuned if (r.shape.m <= 128) is wanted] for wanted in (True, False))
    inside = [f"{score(rows).within(0.05)} of {len(rows)}" for rows in (tuned, few, many)]
    assert f"on run 5 by {inside[0]} (92%): {inside[1]} with up to 128 rows, {inside[2]} above" in SAID


def long_windows() -> list[TimedProblem]:
    """The table of kernels in docs/lab/2026-11-gemm.md: | m, n, k | `kernel` | tiling | us |."""
    found: dict[str, list[Timed]] = {}
    table = (ROOT / "docs" / "lab" / "2026-11-gemm.md").read_text()
    for dims, kernel, us in re.findall(r"^\| (\d+, \d+, \d+) \| `(gemm_\w+)` \| \d+ x \d+ \| ([\d.]+) \|", table, re.M):
        found.setdefault(dims, []).append(Timed(kernel, kernel, {}, float(us) / 1e6))
    return [TimedProblem(d, dict(zip("mnk", map(int, d.split(", ")))), tuple(k)) for d, k in found.items()]


def run_model(kernel: str, instance: Any, shape: Any) -> float | None:
    return FAMILY.estimate(resolve_shipped(kernel), instance, shape)


def test_score_on_the_table_of_long_windows_is_the_one_in_the_docs() -> None:
    score = score_model(long_windows(), run_model)
    assert [p.count for p in score.picks] == [2, 2, 2, 2]
    for text in describe_score(score):
        assert text in SAID


def test_picks_and_errors() -> None:
    shape = {"m": 1}
    problems = [
        TimedProblem("one", shape, (Timed("a", "x", "a", 1.0), Timed("b", "x", "b", 1.1), Timed("c", "x", "c", 0.9))),
        TimedProblem("two", shape, (Timed("a", "x", "a", 1.0), Timed("b", "y", "b", 0.5))),
    ]
    estimates = {"a": 1.0, "b": 1.0, "c": 2.0}
    score = score_model(problems, lambda kernel, tiling, shape: estimates[str(tiling)] if kernel == "x" else None)
    assert score.picks == (Pick("one", 3, ("b", 1.1), ("c", 0.9), 1.0),)  # a tie: the slower one counts
    assert score.picks[0].loss == pytest.approx(1.1 / 0.9 - 1)
    assert score.errors == pytest.approx((0.0, 1 / 1.1 - 1, 2 / 0.9 - 1, 0.0))
    assert next(describe_score(Score((), ()))).startswith("nothing to score: no problem has two")


def write_bench(tmp_path: Path) -> Path:
    problem = timed_problem(8.0, 4096)
    baseline = problem["candidates"][1]
    kernels = [
        timed(f"gemm_bf16_{name}", [us] * 9, [us] * 9, tiling=tiling)
        for name, us, tiling in (("sm90a", 1600.0, "t128x256x64"), ("pingpong_sm90a #2", 1700.0, "t128x192x64"))
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
    assert "gemm_bf16_pingpong_sm90a #2 t128x192x64  1700.00" in out
    assert (
        "behind the fastest by at most 2% on 0 (0%), 5% on 0 (0%), 10% on 1 (100%) of 1 problems; by 6.2% at most"
        in out
    )
    assert main(["report", str(path), *specs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["within"] == {"2%": 0, "5%": 0, "10%": 1}
    assert main(["report", str(path), *specs[:2]]) == 0
    assert "nothing to score" in capsys.readouterr().out


def test_specs_that_would_say_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, spec = write_bench(tmp_path), ROOT / "specs" / "gemm_bf16_sm90a.yaml"
    twin = tmp_path / spec.name
    twin.write_text(spec.read_text())
    assert main(["report", str(path), "--model", str(spec), "--model", str(twin)]) == 1
    assert f"{twin} and {spec} are both named `gemm_bf16_sm90a`" in capsys.readouterr().err
    other = ROOT / "specs" / "gemm_bf16_swiglu_sm90a.yaml"
    assert main(["report", str(path), "--model", str(spec), "--model", str(other)]) == 2
    err = capsys.readouterr().err
    assert f"has no kernel of {other}" in err
    assert "it has gemm_bf16_pingpong_sm90a, gemm_bf16_sm90a" in err


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
    assert score.picks == (Pick("m=4096 n=4096 k=4096", 2, ("default", 210e-6), ("default", 210e-6), pytest.approx(180.1e-6, rel=0.01)),)  # fmt: skip  # noqa: E501


@pytest.mark.parametrize(
    "text", ['{"spec": 1, "problems": []}', '{"spec": "a", "problems": [{"problem": 3}]}', "[]", "{"]
)
def test_files_that_hold_no_times(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert main(["report", str(path), "--model", f"{ROOT}/specs/gemm_bf16_sm90a.yaml"]) == 2
    assert "error: " in capsys.readouterr().err
