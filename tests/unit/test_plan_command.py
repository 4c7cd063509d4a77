"""`python -m` of a generated package on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest
from test_plan import CpuPlan, ZeroPlan

from cutegen.runtime.command import benchmark_kernel_argparse

pytest.importorskip("torch")


@pytest.fixture
def plan() -> CpuPlan:
    return CpuPlan()


def test_command_line(plan: CpuPlan, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark_kernel_argparse(plan, ["--m", "24", "--n", "16", "--k", "32", "--check"]) == 0
    assert "d: right, 0 of 384 elements beyond 0.0078 |ref|" in capsys.readouterr().out
    assert benchmark_kernel_argparse(ZeroPlan(), ["--m", "24", "--n", "16", "--k", "32", "--check"]) == 1
    assert "d: wrong, 384 of 384" in capsys.readouterr().out
    assert benchmark_kernel_argparse(plan, ["--m", "24", "--n", "16", "--k", "31"]) == 2
    with pytest.raises(SystemExit, match="2"):
        benchmark_kernel_argparse(plan, ["--m", "24", "--n", "16", "--k", "32", "--iterations", "0"])
    assert "k) is 31, needs a multiple of 8 elements: pad k to 32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--m", "24"], "--n, --k missing; the dims are --m M --n N --k K"),
        (["--m=24", "--n=16", "--k=32", "--s=1", "--it", "3"], "unknown option --s, --it; the dims are"),
        (["--m=24", "--n=16", "32"], "unknown option 32; the dims are"),
    ],
)
def test_wrong_flags_are_answered_by_the_right_ones(
    plan: CpuPlan, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        benchmark_kernel_argparse(plan, arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
    assert plan.launched == []


def test_short_options_stand_for_dims(plan: CpuPlan, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a plan that has some; it answers as a method as well."""

    class Short(CpuPlan):
        short_options: ClassVar[Mapping[str, str]] = {"m": "rows"}

    assert Short().benchmark_kernel_argparse(["--rows", "24", "--n", "16", "--k", "32", "--check"]) == 0
    assert "m=24" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        plan.benchmark_kernel_argparse(["--rows", "24", "--n", "16", "--k", "32"])
