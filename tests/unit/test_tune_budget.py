"""`cutegen tune --budget` on a machine whose clock is simulated: 16 cores, 2.5 s a kernel, 0.3 s a look."""

from __future__ import annotations

from dataclasses import replace
from statistics import geometric_mean

import pytest
from tune_machine import Costs, Machine, Problem, Tuned, make_problems, tune_on

from cutegen.tune.budget import FIRST
from cutegen.tune.promise import Promise
from cutegen.tune.search import Trial
from cutegen.tune.stages import BRIEF_PROOF, LONG_PROOF, PROOF, SHORT_PROOF
from cutegen.tune.store import Timing, TimingStore

ROWS = (1, 16, 64, 128, 256, 512, 1024, 2000, 4000)


def check_answers(tuned: Tuned) -> None:
    """What is written was proved, in rounds of its own, and is faster."""
    for p in tuned.machine.problems:
        s = tuned.standings[p.m]
        if best := s.attempt.report.best:
            assert best.wins
            assert best.timing
            assert len(best.timing.own) in {proof.rounds for proof in (BRIEF_PROOF, SHORT_PROOF, PROOF, LONG_PROOF)}
            assert best.name in s.proved
            assert p.truth[best.name] < p.truth[p.default]


def test_80_seconds_over_nine_problems_find_about_the_best_of_each() -> None:
    speeds = []
    for seed in range(8):
        machine = Machine(make_problems(seed, ROWS))
        tuned = tune_on(machine, 80.0)
        check_answers(tuned)
        assert machine.now < 80.5
        speeds += [tuned.speed(p) for p in machine.problems]
    assert sum(speed >= 0.99 for speed in speeds) >= 0.95 * len(speeds)
    assert min(speeds) >= 0.97
    assert geometric_mean(speeds) >= 0.998


@pytest.mark.parametrize("seed", range(3))
def test_an_early_stop_leaves_what_was_proved_by_then(seed: int) -> None:
    """After the first pass each problem has an answer, at whatever second the tune is stopped."""
    first_pass_over, before = None, 0.0
    for stop in range(5, 80):
        machine = Machine(make_problems(seed, ROWS))
        tuned = tune_on(machine, 80.0, stop=float(stop))
        check_answers(tuned)
        answered = [p for p in machine.problems if tuned.standings[p.m].visits]
        if len(answered) == len(ROWS):
            first_pass_over = first_pass_over or stop
            speed = geometric_mean([tuned.speed(p) for p in answered])
            assert speed > before - 0.003  # proofs are noisy, too
            before = speed
        assert not first_pass_over or len(answered) == len(ROWS)
    assert first_pass_over
    assert first_pass_over < 50


def test_each_problem_is_visited_once_before_any_is_visited_again() -> None:
    machine = Machine(make_problems(0, ROWS))
    tune_on(machine, 80.0)
    opened = [text for _, text in machine.log if text.startswith("open")]
    assert len(set(opened[: len(ROWS)])) == len(ROWS)
    assert len(opened) > len(ROWS)
    # What the GPU measures first is compiled first: it does not wait for the kernels of all problems.
    first = next(now for now, text in machine.log if text.startswith("admit"))
    assert first < 4 + Costs().start


def test_a_kernel_of_several_problems_is_compiled_once() -> None:
    machine = Machine(make_problems(0, ROWS))
    tuned = tune_on(machine, 80.0)
    shared = [n for n in tuned.building.asked if sum(n in p.promised for p in machine.problems) > 1]
    assert shared
    assert len(tuned.building.asked) == len(set(tuned.building.asked))


@pytest.mark.parametrize(("cores", "budget"), [(2, 80.0), (4, 40.0), (16, 40.0), (16, 30.0)])
def test_little_time_is_for_all_problems(cores: int, budget: float) -> None:
    machine = Machine(make_problems(1, ROWS), cores=cores)
    tuned = tune_on(machine, budget)
    check_answers(tuned)
    assert machine.now < budget + 1
    visited = [s for s in tuned.standings.values() if s.visits]
    assert len(visited) == len(ROWS) if budget >= 40 else len(visited) >= 4


def test_time_for_everything_is_not_spent_for_nothing() -> None:
    """With an hour the proofs are those of a tune without a budget, and it ends when there is nothing to gain."""
    machine = Machine(make_problems(2, ROWS))
    tuned = tune_on(machine, 3600.0)
    check_answers(tuned)
    assert machine.now < 600
    for p in machine.problems:
        s = tuned.standings[p.m]
        assert tuned.speed(p) > 0.995
        best = s.attempt.report.best
        assert best is None or (best.timing and len(best.timing.own) in (PROOF.rounds, LONG_PROOF.rounds))


def test_what_fails_costs_itself_and_a_default_its_problem() -> None:
    problems = make_problems(3, ROWS)
    broken = [next(n for n in p.promised if n != p.default) for p in problems[:4]]
    machine = Machine(problems, broken=frozenset(broken))
    tuned = tune_on(machine, 80.0)
    check_answers(tuned)
    for name in broken:
        faults = [t.fault for s in tuned.standings.values() for t in s.trials if t.name == name]
        assert any(faults)
    lost = [s for s in tuned.standings.values() if s.attempt.beside.name in broken]
    assert all(s.attempt.lost for s in lost)
    assert all(s.visits for s in tuned.standings.values())


def test_equally_fast_kernels_win_nothing() -> None:
    problems = [replace(p, truth=dict.fromkeys(p.truth, 1e-5)) for p in make_problems(4, ROWS)]
    tuned = tune_on(Machine(problems), 80.0)
    assert not [s for s in tuned.standings.values() if s.attempt.report.best]
    assert not any(s.search.stopped for s in tuned.standings.values())  # so the lock says that the default stands


def test_the_same_command_goes_on() -> None:
    problems, store = make_problems(5, ROWS), TimingStore(None)
    first = tune_on(Machine(problems), 40.0, store=store)
    second = tune_on(Machine(problems), 40.0, store=store)
    check_answers(second)

    def looked(tuned: Tuned) -> int:
        return sum(bool(t.timing) for s in tuned.standings.values() for t in s.trials)

    assert looked(second) > 1.9 * looked(first)
    assert geometric_mean([second.speed(p) for p in problems]) >= geometric_mean([first.speed(p) for p in problems])


def test_a_longer_proof_that_does_not_hold_takes_the_winner_back() -> None:
    (s,) = tune_on(Machine(make_problems(6, [64])), 20.0).standings.values()
    assert s.best
    winner = s.best[0]
    winner.timing = Timing((1e-5,) * 15, (1e-5,) * 15)
    others = [t for t in s.trials if t is not winner]
    for t in others:
        t.timing = None
    s.attempt.report.best = None
    s.settle()
    s.conclude()
    assert s.attempt.report.best is None


def test_what_was_proved_before_stands_and_a_longer_proof_counts() -> None:
    problems, store = make_problems(6, ROWS), TimingStore(None)
    first = tune_on(Machine(problems), 300.0, store=store)
    again = tune_on(Machine(problems), 300.0, store=store)
    for p in problems:
        one, other = (t.standings[p.m].attempt.report.best for t in (first, again))
        assert (one is None) == (other is None)
        if one and other and other.timing:
            assert one.timing == other.timing if one.name == other.name else again.speed(p) > first.speed(p) - 0.005
            assert len(other.timing.own) >= PROOF.rounds
    # A brief proof that says otherwise than a longer one is out of date.
    m, s = next((m, s) for m, s in first.standings.items() if s.best)
    assert s.best
    kernel, place, default = s.best[0].kernel, s.attempt.place, s.attempt.beside.kernel
    slower = Timing((1e-5,) * 45, (0.9e-5,) * 45, (1e-5,) * 45, "cuBLAS")
    store.keep_timing(kernel, default, place, LONG_PROOF.key, slower)
    third = tune_on(Machine(problems), 60.0, store=store)
    best = third.standings[m].attempt.report.best
    assert best is None or best.kernel != kernel


def test_a_proof_that_was_interrupted_does_not_count() -> None:
    (s,) = tune_on(Machine(make_problems(6, [64])), 20.0).standings.values()
    assert s.best
    other = next(t for t in s.trials if t.timing and t is not s.best[0])
    other.timing, other.stage = Timing((1e-6,) * 9, (1e-5,) * 9), PROOF.name
    s.proved.pop(other.name, None)
    winner = s.best[0]
    s.settle()
    s.conclude()
    assert s.attempt.report.best is winner


# -- what there is to gain --


def timed(name: str, promised: float, own: float, default: float = 1.0, baseline: float = 1.0) -> Trial:
    figures = Timing((own,) * 3, (default,) * 3, (baseline,) * 3, "cuBLAS")
    return Trial(name, f"kernel {name}", timing=figures, promised=promised)


def untimed(name: str, promised: float) -> Trial:
    return Trial(name, f"kernel {name}", promised=promised)


def test_what_the_model_promises_more_is_to_gain_more() -> None:
    better, worse = untimed("a", 90.0), untimed("b", 120.0)
    promise = Promise([[timed("x", 100.0, 1.0), better, worse]])
    assert promise.gain(0, better) > promise.gain(0, worse) > 0
    assert promise.order(0, [worse, better]) == [better, worse]


def test_a_kernel_that_surprised_elsewhere_is_expected_to_do_so_here() -> None:
    here = [timed("x", 100.0, 1.0), untimed("quick", 110.0), untimed("slow", 110.0)]
    there = [timed("x", 100.0, 1.0), timed("quick", 110.0, 0.95), timed("slow", 110.0, 1.25)]
    promise = Promise([here, there])
    assert promise.gain(0, here[1]) > 3 * promise.gain(0, here[2])
    before = Promise([here, there[:1]])
    assert before.gain(0, here[1]) == pytest.approx(before.gain(0, here[2]))


def test_the_spread_follows_what_the_model_was_wrong_by() -> None:
    exact = Promise([[timed(f"k{i}", 100.0 + i, 1.0 + i / 100) for i in range(20)]])
    wrong = Promise([[timed(f"k{i}", 100.0 + i, 1.0 + i / 100 + 0.3 * (i % 2)) for i in range(20)]])
    assert exact.spread < 0.05 < wrong.spread


def test_a_problem_behind_the_baseline_counts_more() -> None:
    promise = Promise([[timed("x", 100.0, 1.0, baseline=0.9)], [timed("x", 100.0, 1.0, baseline=1.1)]])
    assert promise.weights[0] == pytest.approx(3.0)
    assert promise.weights[1] == 1.0


def test_without_a_model_all_promise_the_same_and_a_problem_without_figures_has_a_promise() -> None:
    a, b = untimed("a", 1.0), untimed("b", 1.0)
    promise = Promise([[a, b], []])
    assert promise.gain(0, a) == promise.gain(0, b) > 0
    assert promise.order(0, [a, b]) == [a, b]


def test_the_first_visit_has_fewer_candidates_where_compiling_takes_longer() -> None:
    problems: list[Problem] = make_problems(0, ROWS)
    assert tune_on(Machine(problems), 80.0).search.first == FIRST
    assert tune_on(Machine(problems, cores=3), 80.0).search.first < FIRST
