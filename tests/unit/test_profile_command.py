"""`profile`: what is read of a report of Nsight Compute, and shown next to the plan, with a scripted ncu and module."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cutegen.cli import main
from cutegen.run.nvidia_tools import find_ncu_module
from cutegen.run.profiling import COUNTED, METRICS, REASONS, read_roles

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "generated" / "gemm_bf16_sm90a"
SPEC = ROOT / "specs" / "gemm_bf16_sm90a.yaml"
SHAPE = "m=4096,n=4096,k=4096"
TILING = "t128x256x64"
FLOPS, BYTES = 2 * 4096**3, 3 * 4096**2 * 2
# In place of ncu: notes how it was called, writes the report that was prepared and answers as the launched process.
NCU = """\
#!{python}
import json, pathlib, sys
arguments = sys.argv[1:]
calls = pathlib.Path({calls!r})
first = not calls.exists()
calls.open("a").write(json.dumps(arguments) + "\\n")
said = {said!r}
if said:
    print(said)
    sys.exit(1)
package, dims, tiling, mode = arguments[-4:]
report = json.dumps(json.loads({kernels!r})[0 if first else -1])
pathlib.Path(arguments[arguments.index("-o") + 1]).write_text(report)
print("==PROF== Connected to process 1")
print(json.dumps({facts!r} | {{"tiling": tiling or {tiling!r}}}))
"""
# In place of Nsight Compute's module: the parts of its interface that are used, on a report in JSON.
MODULE = """\
import json
class Metric:
    def __init__(self, held):
        self.held = held
    def as_double(self):
        return float(self.held)
    def num_instances(self):
        return len(self.held) if isinstance(self.held, list) else 0
    def as_uint64(self, i):
        return self.held[i][1]
    def correlation_ids(self):
        return Metric([(0, address) for address, _ in self.held])
class Source:
    def __init__(self, file, line):
        self.file_name, self.line = lambda: file, lambda: line
class Action:
    def __init__(self, held):
        self.held = held
        self.name = lambda: held["name"]
        self.metric_names = lambda: tuple(held["metrics"])
    def metric_by_name(self, name):
        return Metric(self.held["metrics"][name])
    def source_info(self, address):
        place = self.held["lines"].get(str(address))
        return Source(*place) if place else None
class Range:
    def __init__(self, held):
        self.num_actions, self.action_by_idx = lambda: len(held), lambda i: Action(held[i])
class Context:
    def __init__(self, held):
        self.num_ranges, self.range_by_idx = lambda: 1, lambda i: Range(held)
def load_report(path):
    return Context(json.load(open(path)))
"""


def line_of(method: str) -> int:
    """A line inside of a method of the kernel module."""
    return next(line for line, name in read_roles(PACKAGE / "kernel.py").items() if name == method) + 2


def kernel(name: str = "gemm_bf16_sm90a_128x256x64", lines: bool = True, **values: float) -> dict[str, Any]:
    """One kernel of a report: values of all metrics, and samples at six instructions, of which two are of code that was
    inlined from another file."""
    source = str(PACKAGE / "kernel.py")
    places = {
        0: (source, line_of("kernel")), 16: (source, line_of("load")), 32: ("/somewhere/tile_scheduler.py", 7),
        48: (source, line_of("accumulate")), 64: ("/somewhere/ragged.py", 3), 80: (source, line_of("store")),
    }  # fmt: skip
    metrics: dict[str, Any] = {
        **dict.fromkeys(METRICS, 1.0),
        "gpu__time_duration.sum": 180_000,
        "dram__bytes_read.sum": 90e6,
        "dram__bytes_write.sum": 30e6,
        "launch__registers_per_thread": 168,
        "launch__block_size": 384,
        "launch__cluster_size": 2,
        **values,
        "inst_executed": [(address, 1) for address in places],
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard": [(16, 10), (32, 30), (48, 0)],
        "smsp__pcsamp_warps_issue_stalled_gmma": [(48, 40), (64, 10)],
        "smsp__pcsamp_warps_issue_stalled_selected": [(0, 1), (80, 9)],
        "smsp__pcsamp_warps_issue_stalled_gmma_not_issued": [(48, 1000)],
    }
    return {"name": name, "metrics": metrics, "lines": places if lines else {}}


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """make(kernels, then, said, module): Nsight Compute on a machine with a GPU; it returns a function that lists the
    calls. then: kernels of its later reports, where they differ. said: an error that it ends with."""

    def make(*kernels: dict[str, Any], then: Any = (), said: str = "", module: bool = True) -> Any:
        calls, home = tmp_path / "calls", tmp_path / "nsight"
        held = json.dumps([kernels, *filter(None, [then])])
        (home / "extras/python").mkdir(parents=True)
        if module:
            (home / "extras/python/ncu_report.py").write_text(MODULE)
        facts = {"device": "NVIDIA H200", "flops": FLOPS, "bytes": BYTES, "seconds": None}
        text = NCU.format(python=sys.executable, calls=str(calls), kernels=held, facts=facts, said=said,
                          tiling=TILING)  # fmt: skip
        (home / "ncu").write_text(text)
        (home / "ncu").chmod(0o755)
        monkeypatch.setenv("PATH", str(home))
        monkeypatch.setattr("cutegen.run.targets.probe_gpu", lambda arch: SimpleNamespace(reason=""))
        return lambda: [json.loads(line) for line in calls.read_text().splitlines()]

    return make


def profiled(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["profile", *arguments, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["profiles"]
    return found


def test_what_is_measured_stands_next_to_the_plan(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    calls = scripted(kernel())
    (found,) = profiled([str(SPEC), "--shape", SHAPE], capsys)
    (measured,) = [k["measured"] for k in found["kernels"]]
    assert measured["duration"] == pytest.approx(180)
    assert measured["DRAM traffic"] == pytest.approx(120)
    planned = found["planned"]
    assert (planned["registers"], planned["threads"], planned["shared memory"], planned["cluster"]) == (
        168, 384, 230_400, 2,
    )  # fmt: skip
    assert planned["DRAM traffic"] == pytest.approx(BYTES / 1e6)
    assert planned["occupancy"] == pytest.approx(18.75)
    # The shares are those of the predicted time, at the rates of the data sheet.
    assert found["planned_for"] == "h200"
    seconds = planned["duration"] / 1e6
    assert planned["tensor cores"] == pytest.approx(100 * FLOPS / seconds / 989.5e12)
    assert planned["DRAM"] == pytest.approx(100 * BYTES / seconds / 4.8e12)
    assert 100e-6 < seconds < 250e-6
    (call,) = calls()
    assert call[: call.index("--section")] == [
        "--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off", "--import-source", "no",
    ]  # fmt: skip
    assert call[call.index("--metrics") + 1].split(",") == list(COUNTED)
    assert call[call.index("-m") + 1] == "cutegen.run.profiled"
    assert [*map(json.loads, call[-3:-2]), *call[-2:]] == [{"m": 4096, "n": 4096, "k": 4096}, "", "ncu"]


def test_a_package_has_no_predicted_times(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    calls = scripted(kernel())
    chosen = "t64x128x64_swap_ab"
    (found,) = profiled([str(PACKAGE), "--shape", SHAPE, "--tiling", chosen, "--l2", "warm"], capsys)
    assert (found["tiling"], found["planned_for"], found["l2"]) == (chosen, "", "warm")
    assert "duration" not in found["planned"]
    assert found["planned"]["threads"] == 256
    (call,) = calls()
    assert call[call.index("--cache-control") + 1] == "none"


def test_samples_belong_to_roles(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Code that is inlined from another file is of the role that it stands in."""
    scripted(kernel())
    (found,) = profiled([str(PACKAGE), "--shape", SHAPE], capsys)
    assert found["kernels"][0]["samples"] == {
        "kernel": {"selected": 1},
        "load": {"long_scoreboard": 40},
        "accumulate": {"gmma": 50},
        "store": {"selected": 9},
    }
    assert main(["profile", str(PACKAGE), "--shape", SHAPE]) == 0
    out = capsys.readouterr().out
    assert "100 samples of warps of gemm_bf16_sm90a_128x256x64, in percent, by role" in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("gmma")]
    assert row == ["gmma", *REASONS["gmma"].split(), "50.0", "-", "-", "50.0", "-"]


def test_without_lines_the_kernel_is_taken_as_a_whole(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scripted(kernel(lines=False))
    (found,) = profiled([str(PACKAGE), "--shape", SHAPE], capsys)
    assert found["kernels"][0]["samples"] == {"": {"gmma": 50, "long_scoreboard": 40, "selected": 10}}
    assert main(["profile", str(PACKAGE), "--shape", SHAPE]) == 0
    assert "in percent (the kernel as a whole: no line information)" in capsys.readouterr().out


def test_before_and_after(scripted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scripted(kernel(), then=[kernel(**{"gpu__time_duration.sum": 198_000})])
    other = tmp_path / "slower.yaml"
    other.write_text(SPEC.read_text())
    assert main(["profile", str(SPEC), str(other), "--shape", SHAPE]) == 0
    out = capsys.readouterr().out
    header = next(line for line in out.splitlines() if "planned" in line and "measured" in line)
    assert header.split() == [
        "gemm_bf16_sm90a", "planned", "gemm_bf16_sm90a", "measured",
        "slower", "planned", "slower", "measured", "change",
    ]  # fmt: skip
    (row,) = [line.split() for line in out.splitlines() if line.startswith("duration")]
    assert (row[3], row[5:]) == ("180", ["198", "+10.0%"])


def test_a_launch_of_two_kernels_has_a_column_for_each(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scripted(kernel(), kernel("reduce", **{"gpu__time_duration.sum": 5000, "launch__cluster_size": 0}))
    assert main(["profile", str(PACKAGE), "--shape", SHAPE]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert rows["planned"][1:] == ["gemm_bf16_sm90a_128x256x64", "reduce"]
    assert rows["duration"][2:] == ["-", "180", "5"]
    assert rows["cluster"][2:] == ["2", "2", "1"]


def test_the_report_is_kept_on_request(scripted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scripted(kernel())
    kept = tmp_path / "kept.ncu-rep"
    profiled([str(PACKAGE), "--shape", SHAPE, "-o", str(kept)], capsys)
    assert json.loads(kept.read_text())[0]["name"] == "gemm_bf16_sm90a_128x256x64"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==ERROR== Profiling failed because a driver resource was unavailable.", "dcgmi profile --pause"),
        ("==ERROR== Failed to find metric x", "its launch was not profiled: Failed to find metric x"),
        ('{"error": "ValueError: no such launch"}', "gemm_bf16_sm90a: ValueError: no such launch"),
    ],
)
def test_ncu_that_fails_says_what_to_do(
    said: str, shown: str, scripted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(kernel(), said=said)
    assert main(["profile", str(PACKAGE), "--shape", SHAPE]) == 2
    assert shown in capsys.readouterr().err


def test_a_report_that_cannot_be_read(scripted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scripted(kernel())
    (tmp_path / "nsight/extras/python/ncu_report.py").write_text("raise ImportError('GLIBC_2.99 not found')")
    assert main(["profile", str(PACKAGE), "--shape", SHAPE]) == 2
    assert "ImportError: GLIBC_2.99 not found" in capsys.readouterr().err


def test_machines_without_what_is_needed(
    scripted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(kernel(), module=False)
    assert main(["profile", str(PACKAGE), "--shape", SHAPE]) == 2
    assert "has no extras/python/ncu_report.py next to it" in capsys.readouterr().err
    monkeypatch.setattr("cutegen.run.profiling.find_ncu", lambda: "")
    assert main(["profile", str(PACKAGE), "--shape", SHAPE]) == 2
    assert "not run: no ncu on the PATH" in capsys.readouterr().err
    why = "needs sm_90a, this GPU is sm_86"
    monkeypatch.setattr("cutegen.run.targets.probe_gpu", lambda arch: SimpleNamespace(reason=why))
    assert main(["profile", str(PACKAGE), "--shape", SHAPE, "--mode", "annotation"]) == 2
    assert f"not run: {why}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([str(PACKAGE)], "m, n, k missing"),
        ([str(PACKAGE), "--shape", "m=1,n=8"], "k missing"),
        ([str(PACKAGE), "--shape", "m=1,n=8,k=8,j=1"], "has no dim j"),
        ([str(PACKAGE), "--shape", SHAPE, "--tiling", "t128x256"], "did you mean `t128x256x64`?"),
        ([str(PACKAGE), "--shape", SHAPE, "--mode", "annotation", "--l2", "warm"], "--l2 has no effect"),
        ([__file__, "--shape", SHAPE], "profile is for specs and packages"),
        ([str(PACKAGE), str(SPEC), "--shape", SHAPE, "-o", "x.ncu-rep"], "-o keeps one report"),
        ([str(PACKAGE), "--shape", SHAPE, "-o", "x.json"], "ncu's programs open files named *.ncu-rep"),
        ([str(ROOT / "specs/gemm_bf16_sm100a.yaml"), "--shape", SHAPE], "kernels of sm_100a are not measured yet"),
    ],
)
def test_what_is_asked_for_is_looked_at_first(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_module_of_a_toolkit(tmp_path: Path) -> None:
    """A toolkit's `bin/ncu` is a script, and Nsight Compute lies next to `bin`, possibly in several versions."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ncu").touch()
    for version in ("2024.3.2", "2025.10.0", "2025.3.1"):
        folder = tmp_path / f"nsight-compute-{version}/extras/python"
        folder.mkdir(parents=True)
        (folder / "ncu_report.py").touch()
    found = find_ncu_module(str(tmp_path / "bin/ncu"))
    assert found == tmp_path / "nsight-compute-2025.10.0/extras/python"
