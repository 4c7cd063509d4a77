"""Remedies that work where cutegen is not on a package index, knobs that are named once, and what is under way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gemm_specs import PLAIN

from cutegen.build.doctor import COMPILER_REMEDY
from cutegen.build.worker import Outcome
from cutegen.cli import main
from cutegen.cli.progress import Bar
from cutegen.resolve import resolve_file
from cutegen.runtime.gpu import Driver, Torch, _torch_fault

ROOT = Path(__file__).parents[2]
ONE_TILING = "portfolio: 1\n"


def extra(name: str) -> list[str]:
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(rf"^{name} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    assert listed
    return re.findall(r'"([^"]+)"', listed[1])


def test_what_compiling_needs_is_named_package_by_package() -> None:
    assert COMPILER_REMEDY.startswith("pip install '")
    assert re.findall(r"'([^']+)'", COMPILER_REMEDY) == extra("dsl")


def test_torch_comes_with_numpy_without_which_it_warns() -> None:
    assert [re.split("[>=[]", r)[0] for r in extra("run")] == ["cutegen", "torch", "numpy"]
    fault = _torch_fault(Torch(None, None), Driver(None, (), ""))
    assert fault == "torch is not installed: pip install torch numpy"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "probe.yaml").write_text(PLAIN + ONE_TILING)
    return tmp_path / "probe.yaml"


def test_what_refuses_a_knob_is_said_once(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(spec), "--why-not", "tile=64x128 stages=20"]) == 0
    out = capsys.readouterr().out
    assert [out.count(f"refused[{rule}]") for rule in ("tile-m", "stages")] == [1, 1]
    assert out.count("= help: leave it `auto` for the most that fits") == 1


def test_an_unknown_knob_is_answered_by_each_knob_once(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(spec), "--why-not", "warp_count=3"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: there is no knob `warp_count`\n  = help: write ")
    named = err.partition("knobs: ")[2].strip().split(", ")
    assert len(named) == len(set(named))
    assert "pipeline.stages" in named
    assert "stages" not in named
    assert main(["explain", str(spec), "--why-not", "stage=3"]) == 2
    assert "did you mean `stages`?" in capsys.readouterr().err


def test_pin_says_what_it_wrote(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pin", str(spec), "--key", "tiling.tile", "--key", "pipeline.stages"]) == 0
    out = capsys.readouterr().out
    assert out == f"{spec}: 2 decisions written\n  tiling.tile: [128, 256, 64]\n  pipeline.stages: 4\n"
    assert main(["pin", str(spec), "--key", "pdl.wait"]) == 0
    assert f"{spec}: 1 decision written\n  pdl.wait: true\n" in capsys.readouterr().out


class Drawn:
    def __init__(self) -> None:
        self.description, self.completed = "", -1

    def add_task(self, what: str, total: None) -> int:
        self.description = what
        return 0

    def update(self, task: int, description: str = "", completed: int = -1, total: int = 0) -> None:
        self.description = description or self.description
        self.completed = max(self.completed, completed)


def test_a_bar_names_what_is_under_way() -> None:
    drawn = Drawn()
    bar = Bar("compiling", drawn)
    bar.progress(1, 6)
    bar.name(["gemm t128x256", "gemm t64x128"])
    assert (drawn.description, drawn.completed) == ("compiling gemm t128x256, gemm t64x128", 1)
    bar.name(["a", "b", "c", "d"])
    assert drawn.description == "compiling a, b and 2 more"
    bar.name([])
    assert drawn.description == "compiling"
    Bar("compiling").name(["silent off a terminal"])


def test_a_build_names_the_kernels_it_compiles(spec: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cutegen.build import kernels

    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_require_toolchain", lambda: None)

    def run_jobs(jobs: list[object], workers: int, timeout_s: float, done: object) -> None:
        for index in range(len(jobs)):
            done(index, Outcome(error="not compiled here"))  # type: ignore[operator]

    monkeypatch.setattr(kernels, "run_jobs", run_jobs)
    other = tmp_path / "other.yaml"
    other.write_text(PLAIN + ONE_TILING)
    seen: list[list[str]] = []
    resolved = [resolve_file(path).resolved for path in (spec, other)]
    kernels.build_kernels(resolved, workers=1, on_current=lambda names: seen.append(list(names)))
    assert [[name.partition(" ")[0] for name in names] for names in seen] == [["probe"], ["other"], []]
