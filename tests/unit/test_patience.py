"""Baselines that take long to get ready, with the fake device of `test_bench`."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from test_bench import SHAPE, CpuPlan, FakeDevice, measured

from cutegen.families.gemm.proving import DenseProving
from cutegen.families.proving import Baseline
from cutegen.run.bench import Settings, measure
from cutegen.run.patience import Patience
from cutegen.run.row import Row
from cutegen.run.subject import plan_subject
from cutegen.runtime.gemm.plan import KernelPlan


def lingering(seconds: float, calls: list[str], *, deaf: bool = False) -> Callable[[KernelPlan], Any]:
    """A list of a baseline whose launches take that long, and of one more. deaf: it goes on after exceptions."""

    def launch() -> None:
        calls.append("slow")
        for _ in range(2):
            try:
                time.sleep(seconds)
                break
            except Exception:
                if not deaf:
                    raise

    def list_both(self: Any, plan: KernelPlan) -> Any:
        yield Baseline("slow", "takes its time", lambda i, o: launch, complete=False)
        yield Baseline("fast", "does not", lambda i, o: lambda: None, complete=False)

    return list_both


@pytest.mark.parametrize("deaf", [False, True])
def test_a_baseline_that_takes_too_long_is_left_out(deaf: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(DenseProving, "list_baselines", lingering(30, calls, deaf=deaf))
    rows = [Row(SHAPE), Row(SHAPE | {"m": 48})]
    begin = time.monotonic()
    subject = plan_subject(CpuPlan(), Path("plain"))
    said: list[str] = []
    settings = Settings(rounds=5, slice_seconds=0.01, patience=0.3)
    report = measure([(subject, rows)], (), FakeDevice(), {"gpu": None}, settings, said.append)
    assert time.monotonic() - begin < 10
    first, second = (p.skipped["slow"] for p in report.problems)
    assert (first, second) == (
        "not ready within 0.3 s (--patience)",
        "not ready within 0.3 s (--patience) on an earlier problem",
    )
    assert calls == ["slow"]
    assert "slow, which gets 0.3 s" in said
    assert all([m.candidate.name for m in p.measured] == ["plain", "fast"] for p in report.problems)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_all_launches_before_the_timing_count(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(DenseProving, "list_baselines", lingering(0.2, calls))
    (problem,) = measured(CpuPlan(), settings=Settings(rounds=5, slice_seconds=0.01, patience=0.5)).problems
    assert problem.skipped == {"slow": "not ready within 0.5 s (--patience)"}
    assert len(calls) == 3  # the first call, then one set after the other


def test_what_a_baseline_raises_in_time_is_told_as_it_is() -> None:
    patience = Patience(60.0)
    with pytest.raises(ValueError, match="no such layout"), patience.spend("it"):
        raise ValueError("no such layout")
    assert not patience.late
    finished = []

    def elsewhere() -> None:  # nothing is interrupted there, and what is ready in time counts
        with patience.spend("it"):
            finished.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert finished
