"""`bench --floor`: a problem that falls short is measured once more; the second time counts, the first is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_bench import SETTINGS, CpuPlan, FakeDevice, measured, shown

from cutegen.cli import main
from cutegen.cli.bench import repeat
from cutegen.report.result import load_result
from cutegen.report.stored import pack
from cutegen.run.device import Rates

torch = pytest.importorskip("torch")
ALONE = replace(SETTINGS, baselines=("torch.mm",))


class Slowed(FakeDevice):
    """The kernel takes 2 us and the baseline 1, until they are prepared for the second time: then 1 and 1.5."""

    def sample(self, prepared: int, seconds: float) -> tuple[float, None]:
        super().sample(prepared, seconds)
        return (2e-6, 1e-6, 1e-6, 1.5e-6)[prepared] * (1 + 1e-3 * len(self.order)), None

    def measure_rates(self, dtype: str) -> Rates:
        return Rates(4e12, 4.2e12, 7e14, dtype)


def test_the_second_time_counts_and_both_are_kept(tmp_path: Path) -> None:
    report = measured(CpuPlan(), device=Slowed(), settings=replace(ALONE, floor=0.98))
    (problem,) = shown(report).problems
    kernel, first = problem.candidates[0], problem.first[0]
    assert (len(first.samples), len(kernel.samples)) == (6, 15)
    assert first.speed
    assert first.speed.median == pytest.approx(0.5, rel=0.01)
    assert kernel.speed
    assert kernel.speed.median == pytest.approx(1.5, rel=0.01)
    assert shown(report).summaries["plain"]["cuBLAS"].least == pytest.approx(1.5, rel=0.01)
    path = tmp_path / "kept.json"
    path.write_text(pack(report.to_json("cutegen bench x")))
    again = load_result(path)
    assert again.floor == 0.98
    assert [len(c.samples) for c in (*again.problems[0].candidates, *again.problems[0].first)] == [15, 15, 6, 6]
    assert "first" in json.loads(path.read_text())["problems"][0]


def test_the_second_time_counts_when_it_is_worse() -> None:
    class Worse(Slowed):
        def sample(self, prepared: int, seconds: float) -> tuple[float, None]:
            taken, reading = super().sample(prepared, seconds)
            return taken * (1, 1, 4, 1)[prepared], reading

    report = measured(CpuPlan(), device=Worse(), settings=replace(ALONE, floor=0.98, again=7))
    (problem,) = shown(report).problems
    assert problem.rounds == 7
    speed = problem.candidates[0].speed
    assert speed
    assert speed.median == pytest.approx(0.375, rel=0.01)


@pytest.mark.parametrize("floor", [None, 0.4])
def test_what_is_above_the_floor_is_measured_once(floor: float | None) -> None:
    report = measured(CpuPlan(), device=Slowed(), settings=replace(ALONE, floor=floor))
    (problem,) = shown(report).problems
    assert problem.first == []
    assert problem.rounds == 6


def test_a_wrong_result_the_first_time_is_not_forgotten() -> None:
    report = measured(CpuPlan(), device=Slowed(), settings=replace(ALONE, floor=0.98))
    assert report.ok
    report.problems[0].first[0].right = False
    assert not report.ok


def test_the_command_repeats_the_floor() -> None:
    words = repeat([Path("a.yaml")], (), replace(SETTINGS, floor=0.98))
    assert "--floor 0.98 --rounds 6" in words
    assert "--floor 0.98 --again 21 --rounds 6" in repeat([Path("a.yaml")], (), replace(SETTINGS, floor=0.98, again=21))
    assert "--floor" not in repeat([Path("a.yaml")], (), SETTINGS)


@pytest.mark.parametrize("option", ["--rounds", "--again"])
def test_rounds_have_an_end(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As those of a file that is read have."""
    (tmp_path / "x.yaml").write_text("")
    assert main(["bench", str(tmp_path / "x.yaml"), option, "10001"]) == 2
    assert "is not in the range 5<=x<=10000" in capsys.readouterr().err
