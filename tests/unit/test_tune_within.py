"""`cutegen tune --budget` on a spec: packages, defaults and the lock; kernels and their times are scripted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mla_specs import MLA
from scripted_backend import ScriptedMeasuring
from tune_setup import lock_spec, script_measuring, tune, winners

from cutegen.resolve import lock_path, read_lock
from cutegen.tune import session
from cutegen.tune.store import TimingStore

PROBLEMS = [{"m": m, "n": 4096, "k": 4096} for m in (16, 64, 512)]


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lock_spec(tmp_path, monkeypatch)


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedMeasuring]:
    return script_measuring(tmp_path, monkeypatch)


def test_problems_with_defaults_that_differ(spec: Path, measuring: Any) -> None:
    """Prefetching is fastest, and one CTA with it; two variants are the defaults, and there is no cost model."""
    measuring(lambda t: (10 - 2 * t.prefetch + t.cluster + t.overhead / 10) * 1e-6)
    spec.write_text(MLA)
    lock_path(spec).unlink()
    problems = ("batch=1,query_len=1,heads=16,kv_len=1000", "batch=32,query_len=1,heads=128,kv_len=4096")
    assert tune(spec, *(word for problem in problems for word in ("--shape", problem)), "--budget", "60s") == 0
    small, large = winners(spec)
    lock = read_lock(lock_path(spec))
    assert lock
    for winner, gain in ((small, 11.2 / 9.1), (large, 10.2 / 9.1)):
        knobs = lock.tilings[winner.tiling]
        assert (knobs["variant"], knobs["pipeline.prefetch"], knobs["scheduler.overhead"]) == ("seesaw", 1, 1)
        assert winner.gain
        assert winner.gain[1] == pytest.approx(gain, rel=0.01)


def test_a_default_that_does_not_build_costs_its_problems(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = measuring()
    made.breaks = lambda tiling: "no registers" if tiling.tile == (128, 256, 64) else ""
    assert tune(spec, "--shape", "m=64,n=4096,k=4096", "--candidates", "4", "--budget", "60s") == 1
    assert "the default kernel does not build: no registers" in capsys.readouterr().err
    assert winners(spec) == ()


def test_winners_of_the_lock_are_confirmed_within_a_budget(spec: Path, measuring: Any) -> None:
    measuring()
    shapes = [word for m in (16, 64) for word in ("--shape", f"m={m},n=4096,k=4096")]
    assert tune(spec, *shapes, "--candidates", "6", "--budget", "60s") == 0
    before = winners(spec)
    made = measuring(software="driver 2.0")
    assert tune(spec, "--confirm", "--budget", "60s") == 0
    assert [(w.tiling, w.calls) for w in winners(spec)] == [(w.tiling, w.calls) for w in before]
    assert all("driver 2.0" in w.toolchain for w in winners(spec))
    assert len(made.built) == 1 + len({w.tiling for w in before})


@pytest.mark.parametrize("most", [600, 60])
def test_time_that_is_left_is_for_further_candidates(
    spec: Path, measuring: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int
) -> None:
    """In one package after the other; what was looked at is not looked at again."""
    monkeypatch.setattr(session, "FURTHER_SECONDS", 0.0)
    monkeypatch.setattr(session, "MOST", most)
    ticks = iter(range(10**9))
    options = session.Options(12.0, candidates=40, fresh=True, clock=lambda: 0.0002 * next(ticks))
    report = session.Session(spec, measuring(), TimingStore(None), options).run(PROBLEMS)
    assert [p.problem for p in report.problems] == PROBLEMS
    assert all(len(p.trials) >= 40 for p in report.problems)
    assert all(p.best and p.best.wins for p in report.problems)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines.count("start") > 1
    looked = sum(bool(t.timing) for p in report.problems for t in p.trials)
    # A default, a baseline and eight candidates take turns in a heat of four rounds.
    assert sum(line.startswith("sample") for line in lines) < 60 * looked


def test_no_time_is_no_result(spec: Path, measuring: Any) -> None:
    made = measuring()
    ticks = iter(range(10**9))
    options = session.Options(2.0, clock=lambda: float(next(ticks)))
    report = session.Session(spec, made, TimingStore(None), options).run(PROBLEMS)
    assert (report.problems, report.not_reached) == ([], PROBLEMS)
    assert made.built == []
