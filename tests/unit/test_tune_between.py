"""`cutegen tune --between`: ranges of winners are divided where another kernel is faster; times are scripted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_backend import ScriptedMeasuring
from tune_setup import GPU, lock_spec, script_measuring, tune, winners

from cutegen.cli import main
from cutegen.families.resolved import dispatch
from cutegen.resolve import lock_path, resolve_file
from cutegen.resolve.winners import DEFAULT, Winner
from cutegen.tune import session
from cutegen.tune.problems_between import middles
from cutegen.tune.store import TimingStore

DIMS = ("m", "n", "k")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lock_spec(tmp_path, monkeypatch)


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedMeasuring]:
    return script_measuring(tmp_path, monkeypatch)


def answer(low: int, high: int, tiling: str, **others: int) -> Winner:
    calls: Mapping[str, Any] = {"m": (low, high), "n": 4096, "k": 4096, **others}
    return Winner(GPU, calls, tiling, 1.0, None, "", None, "x", "y")


def divided(*answers: Winner, step: int = 1, within: tuple[Winner, ...] | None = None) -> list[int]:
    return [p["m"] for p in middles(answers, DIMS, "m", step, answers if within is None else within)]


def test_wide_ranges_are_divided_in_the_middle_at_round_extents() -> None:
    assert divided(answer(17, 64, "a"), answer(65, 128, "b"), answer(129, 256, "c"), answer(257, 512, "d")) == [
        96,
        192,
        384,
    ]
    assert divided(answer(1025, 4096, "a")) == [2560]
    assert divided(answer(65, 128, "a"), step=24) == [96]
    assert divided(answer(65, 128, "a"), step=128) == []
    # Of many rows a few tiles are little.
    assert divided(answer(3585, 4096, "a"), answer(4097, 4600, "b")) == [3840]


def test_what_wins_at_both_ends_is_left_alone() -> None:
    assert divided(answer(65, 128, "a"), answer(129, 256, "a"), answer(257, 512, "a")) == [96]
    # The same tiling of another n says nothing.
    assert divided(answer(65, 128, "a", n=8192), answer(129, 256, "a")) == [96, 192]
    # Nor does a winner that ends elsewhere.
    assert divided(answer(65, 100, "a"), answer(129, 256, "a")) == [192]


def test_only_ranges_that_were_asked_for() -> None:
    answers = (answer(65, 128, "a"), answer(129, 192, "b"), answer(193, 256, "c"), answer(129, 256, "c", k=64))
    assert divided(*answers, within=(answer(129, 256, "c"),)) == [160, 224]
    assert divided(*answers, within=(answers[0],)) == [96]


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=6, unique=True), st.sampled_from([1, 8, 24, 128]))
def test_middles_are_inside_and_end(ends: list[int], step: int) -> None:
    """Each is a legal extent below the end of its range, so answering it makes two of one; after some rounds no range
    is divided any more, however winners change."""
    tilings = map(str, itertools.count())
    within = [answer(low + 1, high, next(tilings)) for low, high in zip([0, *sorted(ends)], sorted(ends))]
    ranges = list(within)
    for _ in range(12):
        for middle in divided(*ranges, step=step, within=tuple(within)):
            cut = next(r for r in ranges if r.span("m")[0] <= middle <= r.span("m")[1])
            low, high = cut.span("m")
            assert low <= middle < high
            assert middle % step == 0
            ranges.remove(cut)
            ranges += [answer(low, middle, next(tilings)), answer(middle + 1, high, cut.tiling)]
    assert divided(*ranges, step=step, within=tuple(within)) == []


def by_tiles(tiling: Any) -> float:
    """A tile of 128 x 128 takes 10 us, one of 192 rows 11, one of 256 rows 12; the default, 128 x 256, 50."""
    return {128: 10e-6, 192: 11e-6, 256: 12e-6}[tiling.tile[0]] * (1 if tiling.tile[1] == 128 else 5)


def script(measuring: Any, seconds: Callable[[Any], float] = by_tiles) -> ScriptedMeasuring:
    made: ScriptedMeasuring = measuring(seconds)
    made.rows = lambda tiling: tiling.tile[0]
    return made


_ends: list[str] = []


def tune_ends(spec: Path, measuring: Any) -> ScriptedMeasuring:
    """Three tiles, each the fastest somewhere: 192 rows are two of 128, one of 192, or one of 256 that is not full.
    What was measured is in the lock alone."""
    spec.write_text(spec.read_text() + "tune: {tile: [[128, 128, 64], [192, 128, 64], [256, 128, 64]]}\n")
    made = script(measuring)
    if not _ends:
        ends = [x for m in (128, 256, 512) for x in ("--shape", f"m={m},n=4096,k=4096")]
        assert tune(spec, *ends) == 0
        _ends.append(lock_path(spec).read_text())
    lock_path(spec).write_text(_ends[0])
    return made


def runs(spec: Path, m: int) -> int:
    """The rows of the tile that a call runs."""
    resolved = resolve_file(spec, locked=True).resolved
    name = dispatch(resolved.dispatch, {"m": m, "n": 4096, "k": 4096}, GPU)
    rows: int = next(t.numbers for t in resolved.tilings if t.name == name).tile[0]
    return rows


@pytest.mark.parametrize(("m", "known"), [(16, 0), (32, 1), (64, 2), (100, 2), (128, 3)])
def test_winners_of_near_problems_are_candidates(
    m: int, known: int, spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 128, 256 and 512 rows. What wins with many times the rows would only take time."""
    tune_ends(spec, measuring)
    capsys.readouterr()
    assert tune(spec, "--shape", f"m={m},n=4096,k=4096", "--json") == 0
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert [c["why"] for c in problem["candidates"]].count("a winner of the lock") == known


def test_what_answers_now_is_the_first_candidate(spec: Path, measuring: Any, tmp_path: Path) -> None:
    """Also amid its range."""
    made = tune_ends(spec, measuring)
    store = TimingStore(tmp_path / "timings.sqlite")
    for m in (100, 160, 200, 300, 500):
        problem = {"m": m, "n": 4096, "k": 4096}
        pool = session.Session(spec, made, store, session.Options()).pool(problem, 8)
        assert pool.tried[0].candidate.tile[0] == runs(spec, m)


def test_a_range_is_divided_where_another_kernel_is_faster(
    spec: Path, measuring: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tune_ends(spec, measuring)
    lock, log = lock_path(spec), tmp_path / "log"
    before, text = winners(spec), lock.read_text()
    assert [w.calls["m"] for w in before] == [(33, 128), (129, 256), (257, 512)]
    assert [runs(spec, m) for m in (128, 192, 256, 300, 512)] == [128, 256, 256, 256, 256]
    capsys.readouterr()
    assert tune(spec, "--between", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    # 384 rows are two tiles of 192, and 320 as well, so what is above 320 is settled; at 448 those of 512 win.
    assert [p["problem"]["m"] for p in result["problems"]] == [80, 192, 384, 160, 224, 320, 448, 288, 416]
    assert [runs(spec, m) for m in (80, 128, 160, 192, 224, 256, 288, 384, 385, 448, 512)] == [
        *(128, 128, 192, 192, 256, 256, 192, 192, 256, 256, 256)
    ]  # fmt: skip
    after = {w.problem["m"]: w.tiling for w in winners(spec)}
    assert {m: after[m] for m in (128, 256, 512)} == {w.problem["m"]: w.tiling for w in before}
    new = set(after.values()) - {w.tiling for w in before}
    assert len(new) <= 2  # of the first round, in which 192 and 384 rows know nothing of each other
    assert len(made.built) <= 1 + 5 + 8  # of the last: the default, the lock's and a few
    assert main(["render", str(spec), "--locked", "-o", str(spec.parent / "out")]) == 0
    capsys.readouterr()
    assert tune(spec, "--between") == 0
    assert "unchanged" in capsys.readouterr().out
    # From the lock of before it comes to the same, and measures nothing.
    divided_lock = lock.read_text()
    lock.write_text(text)
    log.write_text("")
    made.built = []
    assert tune(spec, "--between") == 0
    assert lock.read_text() == divided_lock
    assert made.built == []
    assert log.read_text() == ""


@pytest.mark.parametrize(("ahead", "rows"), [(1.015, 256), (1.025, 192)])
def test_a_newcomer_has_to_be_clearly_faster(spec: Path, measuring: Any, ahead: float, rows: int) -> None:
    """Two tiles that 192 rows fit in: one wins at 256, the other would be a kernel more."""
    tune_ends(spec, measuring)
    script(measuring, lambda tiling: by_tiles(tiling) if tiling.tile[0] != 192 else 12e-6 / ahead)
    assert tune(spec, "--between", "--fresh", "--shape", "m=256,n=4096,k=4096") == 0
    assert runs(spec, 192) == rows


def test_only_the_ranges_of_problems_that_were_named(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tune_ends(spec, measuring)
    assert tune(spec, "--shape", "m=512,n=1024,k=1024", "--candidates", "2") == 0
    capsys.readouterr()
    assert tune(spec, "--between", "--shape", "m=256,n=4096,k=4096", "--json") == 0
    asked = [p["problem"] for p in json.loads(capsys.readouterr().out)["problems"]]
    assert asked[0] == {"m": 192, "n": 4096, "k": 4096}
    assert all(p["n"] == 4096 and 128 < p["m"] < 256 for p in asked)


def test_the_budget_ends_it(spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tune_ends(spec, measuring)
    capsys.readouterr()
    assert tune(spec, "--between", "--budget", "1s", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert "--between" in result["command"]
    asked = {p["problem"]["m"] for p in result["problems"]}
    assert {p["m"] for p in result["not_reached"]}
    assert {w.problem["m"] for w in winners(spec)} == {128, 256, 512} | asked


def test_what_the_first_round_proved_outlasts_an_error_in_the_second(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tune_ends(spec, measuring)
    build, calls = made.build, itertools.count()

    def break_second(kernels: Any, **options: Any) -> Any:
        if next(calls) == 1:
            made.breaks = lambda tiling: "no compiler"
        return build(kernels, **options)

    made.build = break_second  # type: ignore[method-assign]
    capsys.readouterr()
    assert tune(spec, "--between", "--json") != 0
    result = json.loads(capsys.readouterr().out)
    assert [p["problem"]["m"] for p in result["problems"]] == [80, 192, 384]
    assert len(result["faults"]) == 4
    assert result["faults"][0] == "m=160 n=4096 k=4096: the default kernel does not build: no compiler"
    assert {w.problem["m"] for w in winners(spec)} == {80, 128, 192, 256, 384, 512}


def test_figures_of_a_crowded_gpu_divide_nothing(spec: Path, measuring: Any) -> None:
    tune_ends(spec, measuring)
    before = lock_path(spec).read_text()
    made = measuring(by_tiles, others=1)
    made.rows = lambda tiling: tiling.tile[0]
    tune(spec, "--between", "--fresh")
    assert lock_path(spec).read_text() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--between"], "the lock has no answer for Scripted GPU"),
        (["--between", "--confirm"], "exclude each other"),
        (["--between", "--suite", "x"], "--between goes without --suite"),
        (["--between", "--dry-run"], "--between goes without --suite and --dry-run"),
    ],
)
def test_bad_requests(
    spec: Path, measuring: Any, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = measuring()
    assert tune(spec, *options) == 2
    assert message in capsys.readouterr().err
    assert made.built == []


def test_a_lock_without_that_problem_or_without_wide_ranges(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring()
    assert tune(spec, "--shape", "m=16,n=4096,k=4096", "--candidates", "2") == 0
    capsys.readouterr()
    assert tune(spec, "--between", "--shape", "m=64,n=4096,k=4096") == 2
    assert "the lock has no answer for m=64 n=4096 k=4096" in capsys.readouterr().err
    assert tune(spec, "--between") == 0
    assert "no range of the lock is left to look into" in capsys.readouterr().out
    assert {w.tiling for w in winners(spec)} != {DEFAULT}
