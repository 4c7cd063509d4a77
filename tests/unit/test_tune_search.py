"""The search of one problem through the measuring process; kernels and their times are scripted."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_backend import FACTORY, Script

from cutegen.diagnostics import CutegenError
from cutegen.run.intervals import speed_ratio
from cutegen.tune import measuring_process as stations
from cutegen.tune.measuring_process import Station
from cutegen.tune.search import MAX_LOST, Search, Trial
from cutegen.tune.stages import HEAT, LONG_PROOF, PROOF, STAGES, WORTHWHILE, Stage, heats, planned_samples, samples
from cutegen.tune.store import Place, Timing, TimingStore

PROBLEM = {"m": 64, "n": 4096, "k": 4096}
PLACE = Place("m=64 n=4096 k=4096", "Scripted GPU", "1.0")
DEFAULT = 10e-6


class Bench:
    """A search over scripted candidates; the store outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, TimingStore(folder / "timings.sqlite")
        self.searches: list[Search] = []

    def run(self, seconds: dict[str, float], stages: Any = STAGES, **options: Any) -> tuple[Trial | None, list[Trial]]:
        log = self.folder / "log"
        log.write_text("")
        script = {k: options.pop(k) for k in ("does", "noise", "baseline", "others", "device") if k in options}
        times = {"default": DEFAULT, "cuBLAS": 9e-6, **seconds}
        station = Station(FACTORY, (Script(log, times, **script),))
        trials = [Trial(name, f"kernel of {name}") for name in seconds]
        search = Search(station, self.store, PROBLEM, PLACE, Trial("default", "kernel of default"), **options)
        self.searches.append(search)
        try:
            return search.run(trials, stages), trials
        finally:
            station.end()

    @property
    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def many(count: int, slower: float = 1.5) -> dict[str, float]:
    return {f"c{i}": DEFAULT * (slower + 0.01 * i) for i in range(count)}


def test_the_fastest_wins_and_its_gain_is_that_of_the_proof(bench: Bench) -> None:
    best, trials = bench.run({**many(30), "fast": 8e-6, "good": 8.5e-6})
    assert best
    assert best.name == "fast"
    assert best.stage == PROOF.name
    assert best.timing
    assert len(best.timing.own) == PROOF.rounds
    assert best.speed
    assert best.speed.low > 1.2
    assert best.speed.high < 1.3
    assert best.beside_baseline
    assert best.beside_baseline.median == pytest.approx(9 / 8, rel=0.01)
    stages = Counter(t.stage for t in trials)
    assert stages == {"first look": 22, "second look": 5, "final": 4, "proof": 1}


@pytest.fixture
def unsteady(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """unsteady(short, long): medians of proofs, of whose first 15 rounds five are at 0.9; of 45 none is."""

    def script(short: float, long: float) -> None:
        def take_turns(search: Search, stage: Stage, members: Sequence[Trial]) -> dict[str, list[float]]:
            search.station.start()
            speeds = [0.9] * 5 + [short] * 10 if stage.rounds == PROOF.rounds else [long] * stage.rounds
            return {"default": [DEFAULT] * len(speeds), members[0].name: [DEFAULT / s for s in speeds]}

        monkeypatch.setattr(Search, "_take_turns", take_turns)

    return script


def test_a_proof_that_leaves_a_gain_open_is_repeated_with_more_rounds(bench: Bench, unsteady: Any) -> None:
    planned: list[int] = []
    unsteady(1.2, 1.05)
    best, _ = bench.run({"ahead": DEFAULT}, stages=(), on_sample=planned.append)
    assert best
    assert best.timing
    assert best.speed
    assert (len(best.timing.own), best.speed.median) == (LONG_PROOF.rounds, pytest.approx(1.05))
    assert planned == [-samples(LONG_PROOF, 1)]  # what nobody planned is planned when it begins
    short = bench.store.find_timing(best.kernel, "kernel of default", PLACE, PROOF.key)
    assert short
    assert speed_ratio(short.default, short.own).low < WORTHWHILE
    again, _ = bench.run({"ahead": DEFAULT}, stages=())
    assert bench.log == []
    assert again
    assert again.timing == best.timing


@pytest.mark.parametrize(
    ("short", "long", "rounds"),
    [
        (1.2, 1.004, LONG_PROOF.rounds),  # more rounds say otherwise
        (1.01, 1.05, PROOF.rounds),  # too little to ask again
    ],
)
def test_a_gain_that_more_rounds_do_not_hold_is_none(
    short: float, long: float, rounds: int, bench: Bench, unsteady: Any
) -> None:
    unsteady(short, long)
    best, (trial,) = bench.run({"ahead": DEFAULT}, stages=())
    assert best is None
    assert trial.timing
    assert len(trial.timing.own) == rounds


def test_no_proof_is_repeated_when_the_budget_is_spent(bench: Bench, unsteady: Any) -> None:
    unsteady(1.2, 1.05)
    best, (trial,) = bench.run({"ahead": DEFAULT}, stages=(), deadline=0.0, clock=lambda: 1.0)
    assert best is None
    assert trial.timing
    assert len(trial.timing.own) == PROOF.rounds


def test_everyone_is_timed_in_turn_with_default_and_baseline(bench: Bench) -> None:
    bench.run(many(3))
    sampled = [line.removeprefix("sample ") for line in bench.log if line.startswith("sample")]
    first = sampled[: 5 * (STAGES[0].rounds + 1)]
    assert first[:5] == ["default", "c2", "cuBLAS", "c1", "c0"]
    assert Counter(first) == dict.fromkeys(["default", "cuBLAS", "c0", "c1", "c2"], STAGES[0].rounds + 1)


def timed(own: float, default: float, baseline: float = 0) -> Trial:
    figures = [(x * 1e-6,) * 3 for x in (own, default, *([baseline] if baseline else []))]
    return Trial("some", "kernel", timing=Timing(*figures))


def test_candidates_are_compared_beside_the_faster_of_default_and_baseline() -> None:
    """A slow default takes other times in other heats; by them the slower candidate would be ahead."""
    better, worse = timed(12.0, 41.0, 14.0), timed(12.5, 47.0, 14.0)
    assert better.speed
    assert worse.speed
    assert better.speed.median < worse.speed.median
    assert better.score == pytest.approx(14 / 12)
    assert worse.score < better.score
    assert timed(12.0, 13.0, 41.0).score == pytest.approx(13 / 12)
    assert timed(12.0, 13.0).score == pytest.approx(13 / 12)
    assert Trial("some", "kernel").score == 0


def test_figures_beside_no_baseline_are_compared_beside_the_default(bench: Bench) -> None:
    """As when the baseline was installed in between: what the store knows has none."""
    bench.run({"old": 8e-6}, baseline="")
    best, trials = bench.run({"old": 8e-6, "fast": 7.5e-6})
    assert best
    assert best.name == "fast"
    assert [bool(t.timing and t.timing.baseline) for t in trials] == [False, True]


def test_the_default_stands_where_nothing_beats_it_beyond_noise(bench: Bench) -> None:
    best, trials = bench.run({"slower": 11e-6, "same": DEFAULT, "hair": DEFAULT / 1.004}, noise=0.01)
    assert best is None
    assert all(t.speed and t.speed.low < 1.005 for t in trials)


def test_a_second_search_measures_nothing(bench: Bench) -> None:
    times = {**many(10), "fast": 8e-6}
    does = {("admit", "c3"): "wrong"}
    first, _ = bench.run(times, does=does)
    assert "start" in bench.log
    second, trials = bench.run(times, does=does)
    assert bench.log == []
    assert first
    assert second
    assert second.timing == first.timing
    assert all(t.stored for t in trials)
    assert [t.fault.kind for t in trials if t.fault] == ["wrong"]


def test_fresh_measures_again(bench: Bench) -> None:
    times = {"fast": 8e-6}
    bench.run(times)
    best, _ = bench.run(times, fresh=True)
    assert best
    assert not best.stored
    assert "start" in bench.log


def test_another_default_is_another_comparison(bench: Bench) -> None:
    place = Place("p", "d", "1")
    bench.store.keep_timing("k", "default", place, "s", Timing((1.0,), (2.0,)))
    assert bench.store.find_timing("k", "default", place, "s") == Timing((1.0,), (2.0,))
    assert bench.store.find_timing("k", "another", place, "s") is None
    assert bench.store.find_timing("k", "default", Place("p", "d", "2"), "s") is None


@pytest.mark.parametrize(
    ("operation", "deed", "kind", "reason"),
    [
        ("admit", "crash", "crashed", "the process ended (SIGABRT)"),
        ("sample", "exit", "crashed", "the process ended (exit code 3): CUDA error: an illegal memory access"),
        ("admit", "raise", "failed", "RuntimeError: raise of bad"),
        ("sample", "fault", "crashed", "RuntimeError: fault of bad"),
        ("admit", "wrong", "wrong", "3 of 100 elements are wrong"),
    ],
)
def test_what_one_candidate_does_costs_that_candidate_only(
    bench: Bench, operation: str, deed: str, kind: str, reason: str
) -> None:
    best, trials = bench.run({"bad": 1e-6, "fast": 8e-6, **many(9)}, does={(operation, "bad"): deed})
    assert best
    assert best.name == "fast"
    faults = {t.name: t.fault for t in trials if t.fault}
    assert set(faults) == {"bad"}
    assert faults["bad"].kind == kind
    assert faults["bad"].reason.startswith(reason)
    assert bench.store.find_fault("kernel of bad", PLACE) == faults["bad"]
    assert bench.log.count("start") == (2 if kind == "crashed" else 1)


def test_who_was_killed_from_outside_is_tried_again(bench: Bench) -> None:
    does = {("sample", "late"): "kill"}
    best, trials = bench.run({"late": 1e-6, "fast": 8e-6}, does=does)
    assert best
    assert best.name == "fast"
    (fault,) = (t.fault for t in trials if t.fault)
    assert (fault.kind, fault.reason) == ("killed", "the process ended (SIGKILL)")
    best, trials = bench.run({"late": 1e-6, "fast": 8e-6})
    assert best
    assert best.name == "late"


def test_a_hang_ends_in_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stations, "SAMPLE_SECONDS", 1.0)
    start = time.monotonic()
    best, trials = bench.run({"bad": 1e-6, "fast": 8e-6}, does={("sample", "bad"): "hang"})
    assert time.monotonic() - start < 20
    assert best
    assert best.name == "fast"
    assert trials[0].fault
    assert (trials[0].fault.kind, trials[0].fault.reason) == ("hung", "no answer within 1.005 s")


def test_results_are_judged_again_after_timing(bench: Bench) -> None:
    best, trials = bench.run({"bad": 7e-6, "fast": 8e-6}, does={("recheck", "bad"): "wrong"})
    assert best
    assert best.name == "fast"
    assert trials[0].fault
    assert trials[0].fault.reason == "after timing: 3 of 100 elements are wrong"


@pytest.mark.parametrize(("deed", "kind"), [("crash", "crashed"), ("fault", "crashed"), ("raise", "failed")])
def test_who_fails_as_its_results_are_judged_again_costs_itself_only(bench: Bench, deed: str, kind: str) -> None:
    best, trials = bench.run({"bad": 7e-6, "fast": 8e-6}, does={("recheck", "bad"): deed})
    assert best
    assert best.name == "fast"
    assert [(t.name, t.fault.kind) for t in trials if t.fault] == [("bad", kind)]


def test_a_process_that_ends_as_others_are_counted_is_not_replaced_for_ever(bench: Bench) -> None:
    best, trials = bench.run({"fast": 8e-6}, does={("others", ""): "kill"})
    assert best is None
    assert bench.searches[-1].stopped == f"{MAX_LOST} measuring processes were lost"
    assert not any(t.fault for t in trials)


def test_a_wrong_default_ends_the_search(bench: Bench) -> None:
    with pytest.raises(CutegenError, match="the default kernel: wrong: 3 of 100") as error:
        bench.run({"fast": 8e-6}, does={("admit", "default"): "wrong"})
    assert "cutegen check" in error.value.remedy


def test_a_process_on_another_device_measures_nothing(bench: Bench) -> None:
    with pytest.raises(CutegenError, match="is on Another GPU, the tune is for Scripted GPU") as error:
        bench.run({"fast": 8e-6}, device="Another GPU")
    assert error.value.exit_code == 2
    assert not any(line.startswith("sample") for line in bench.log)


def test_too_many_lost_processes_end_the_search(bench: Bench) -> None:
    times = {f"bad{i}": 1e-6 for i in range(MAX_LOST + 3)}
    best, trials = bench.run(times, does={("admit", name): "crash" for name in times})
    assert best is None
    assert bench.searches[-1].stopped == f"{MAX_LOST} measuring processes were lost"
    assert sum(t.fault is not None for t in trials) == MAX_LOST


def test_a_spent_budget_proves_what_is_best_so_far(bench: Bench) -> None:
    ticks = iter(range(1000))
    times = {"fast": 8e-6, **many(3 * HEAT)}
    best, trials = bench.run(times, clock=lambda: next(ticks), deadline=2)
    assert best
    assert best.name == "fast"
    assert bench.searches[-1].stopped == "the budget is spent"
    assert sum(bool(t.timing) for t in trials) < len(trials)
    # ... and the next search goes on where this one was.
    bench.run(times)
    assert bench.log.count("sample c0") == STAGES[1].rounds + 1 + STAGES[2].rounds + 1


def test_nothing_is_kept_when_another_process_is_on_the_gpu(bench: Bench) -> None:
    bench.run({"fast": 8e-6}, others=2)
    search = bench.searches[-1]
    assert search.crowded
    assert search.notes == ["2 other processes on the GPU: these figures are not trusted, nor kept"]
    assert bench.store.count()["timings"] == 0


def test_no_baseline_is_a_note(bench: Bench) -> None:
    best, _ = bench.run({"fast": 8e-6}, baseline="")
    assert best
    assert best.beside_baseline is None
    assert bench.searches[-1].notes == ["no baseline: not installed"]


def test_an_interrupt_leaves_no_process_and_keeps_what_was_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = children()
    done = 0

    def interrupt(count: int) -> None:
        nonlocal done
        done += count
        if done > 120:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(many(40), on_sample=interrupt)
    assert children() == before
    kept = bench.store.count()["timings"]
    assert kept > 0
    bench.run(many(40))
    assert bench.log.count("sample c0") == STAGES[1].rounds + 1 + STAGES[2].rounds + 1


def test_progress_ends_where_it_was_planned_to(bench: Bench) -> None:
    done = 0

    def count(samples: int) -> None:
        nonlocal done
        done += samples

    for _ in range(2):  # measured, and from the store
        done = 0
        bench.run({**many(20), "fast": 8e-6}, on_sample=count)
        assert done == planned_samples(21)


def test_heats_are_even() -> None:
    assert [len(heat) for heat in heats(list(range(17)))] == [5, 6, 6]
    assert list(heats([])) == []


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
