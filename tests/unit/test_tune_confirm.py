"""`cutegen tune --confirm`: winners measured again, where defaults or tools have changed; times are scripted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import ALONE
from scripted_backend import ScriptedMeasuring
from tune_setup import SHAPE, lock_spec, script_measuring, tune, winners

from cutegen.cli import main
from cutegen.resolve import lock_path, read_lock, resolve_file
from cutegen.resolve.winners import DEFAULT
from cutegen.tune import session
from cutegen.tune.store import TimingStore


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lock_spec(tmp_path, monkeypatch)


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedMeasuring]:
    return script_measuring(tmp_path, monkeypatch)


def test_confirm_measures_winners_alone(spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]) -> None:
    measuring()
    assert tune(spec, "--confirm") == 2
    assert "the lock has no winner for Scripted GPU" in capsys.readouterr().err
    assert tune(spec, *SHAPE, "--shape", "m=512,n=4096,k=4096", "--candidates", "12") == 0
    before = winners(spec)
    made = measuring(software="driver 2.0")
    capsys.readouterr()
    assert tune(spec, "--shape", "m=16,n=1024,k=512", "--candidates", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["stale"]) == 2
    made = measuring(software="driver 2.0")
    assert tune(spec, "--confirm") == 0
    after = winners(spec)
    assert len(made.built) == 1 + len({w.tiling for w in after})  # the default, and a winner for each problem
    assert all("driver 2.0" in w.toolchain for w in after)
    assert {(w.tiling, w.calls["m"]) for w in before} < {(w.tiling, w.calls["m"]) for w in after}
    measuring(lambda tiling: 10e-6)
    assert tune(spec, "--confirm") == 0
    assert {w.tiling for w in winners(spec)} == {DEFAULT}
    # That nothing won is not confirmed, but found again.
    measuring(software="driver 3.0")
    capsys.readouterr()
    assert tune(spec, *SHAPE, "--candidates", "1") == 0
    out = capsys.readouterr().out
    assert "problems for which nothing that beats the default was found on this device" in out
    assert "a tune without --confirm searches again" in out
    assert "--confirm measures" not in out


def test_a_winner_that_fails_by_now_is_taken_out_of_the_lock(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring()
    assert tune(spec, *SHAPE, "--candidates", "6") == 0
    (winner,) = winners(spec)
    assert winner.tiling != DEFAULT
    measuring(software="driver 2.0", does={("admit", winner.tiling): "wrong"})
    capsys.readouterr()
    assert tune(spec, "--confirm") == 1
    assert "m=64 n=4096 k=4096: the winner of the lock fails, and is taken out" in capsys.readouterr().err
    assert winners(spec) == ()
    assert main(["render", str(spec), "--locked", "-o", str(spec.parent / "out")]) == 0


def test_a_failing_winner_of_an_older_lock_that_lacks_a_knob_is_taken_out(spec: Path, measuring: Any) -> None:
    measuring()
    assert tune(spec, *SHAPE, "--candidates", "6") == 0
    (winner,) = winners(spec)
    lock = lock_path(spec)
    text = lock.read_text()
    tilings = text.partition("tilings:")[2]
    older = re.sub(r", pdl\.trigger: \"\w+\"", "", tilings)
    assert older != tilings
    lock.write_text(text.replace(tilings, older))
    measuring(software="driver 2.0", does={("admit", winner.tiling): "wrong"})
    assert tune(spec, "--confirm") == 1
    assert winners(spec) == ()


def test_a_winner_that_the_default_has_become_is_taken_out(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring()
    assert tune(spec, *SHAPE, "--candidates", "12") == 0
    lock = read_lock(lock_path(spec))
    assert lock
    space = session.Session(spec, measuring(), TimingStore(None), session.Options()).space
    default = space.describe(space.find_default({"m": 64, "n": 4096, "k": 4096}))
    lock_path(spec).write_text(lock.with_winners(dict.fromkeys(lock.tilings, default), lock.winners).to_text())
    assert tune(spec, "--confirm") == 0
    assert "the default is by now what won there" in capsys.readouterr().out
    assert not winners(spec)
    assert tune(spec, "--confirm") == 2
    assert "the lock has no winner" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["killed", "starved"])
def test_a_winner_whose_compiler_was_killed_or_starved_stays(
    spec: Path, measuring: Any, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    measuring()
    assert tune(spec, *SHAPE, "--candidates", "6") == 0
    before = winners(spec)
    made = measuring(software="driver 2.0")
    resolved = resolve_file(spec).resolved
    (won,) = (t.numbers for t in resolved.tilings if t.name == before[0].tiling)
    made.breaks = lambda tiling: end if tiling == won else ""
    capsys.readouterr()
    assert tune(spec, "--confirm") == 0
    assert f"1 {end}" in capsys.readouterr().out
    assert winners(spec) == before
    measuring(software="driver 2.0")
    assert tune(spec, "--confirm") == 0
    assert [(w.tiling, "driver 2.0" in w.toolchain) for w in winners(spec)] == [(before[0].tiling, True)]


@pytest.mark.parametrize(
    "calls",
    [
        {"m": 64, "n": 4096, "k": 4096},  # twice, as a merge by hand leaves it
        {"m": 64, "n": (8, 4096), "k": 4096},
        {"rows": 64, "n": 4096, "k": 4096},  # from before a dim had another name
        {"m": 64, "n": 4096, "depth": 4096},
    ],
)
def test_what_a_tune_writes_can_be_read_whatever_stood_there(spec: Path, measuring: Any, calls: dict[str, Any]) -> None:
    measuring(lambda tiling: 10e-6)
    assert tune(spec, *SHAPE, "--candidates", "2") == 0
    lock = read_lock(lock_path(spec))
    assert lock
    (stands,) = lock.winners
    assert stands.tiling == DEFAULT
    both = lock.with_winners(lock.tilings, [stands, replace(stands, calls=calls)])
    lock_path(spec).write_text(both.to_text())
    measuring()
    assert tune(spec, "--between") == 0
    assert tune(spec, "--shape", "m=16,n=4096,k=4096", "--candidates", "4") == 0
    used = [w for w in winners(spec) if not w.unused]
    assert {tuple(w.calls) for w in used} == {("m", "n", "k")}
    assert [w.calls["m"] for w in used] == [(1, 16), (17, 64)]


@pytest.mark.parametrize("faster_with_pdl", [True, False])
def test_confirm_measures_winners_with_what_the_default_has_by_now(
    spec: Path, measuring: Any, faster_with_pdl: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A winner from before the default had programmatic launch is timed as it is, and with it; the faster one stays."""
    measuring()
    spec.write_text(ALONE + "pdl: {wait: false, trigger: none}\n")
    assert tune(spec, *SHAPE, "--candidates", "4") == 0
    (before,) = winners(spec)
    spec.write_text(ALONE)
    assert main(["lock", str(spec), "--upgrade"]) == 0
    default = resolve_file(spec).resolved.default.name
    made = measuring()
    made.factor = lambda name: 1.05 if ("_no_pdl" in name) is faster_with_pdl and name != default else 1.0
    capsys.readouterr()
    assert tune(spec, "--confirm") == 0
    assert "measured beside another" not in capsys.readouterr().out
    assert len(made.built) == 3  # the default, and two of the winner
    (after,) = winners(spec)
    assert (after.calls, after.beside != before.beside) == (before.calls, True)
    lock = read_lock(lock_path(spec))
    assert lock
    assert lock.tilings[after.tiling]["pdl.wait"] is faster_with_pdl
    assert ("_no_pdl" in after.tiling) is not faster_with_pdl


def test_a_stale_winner_is_measured_before_others_and_nobody_drops_one(
    spec: Path, measuring: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring()
    other = ["--shape", "m=512,n=4096,k=4096"]
    assert tune(spec, *SHAPE, *other, "--candidates", "12") == 0
    before = winners(spec)
    assert len(before) == 2
    spec.write_text(ALONE + "epilogue: {d: relu(acc)}\n")
    assert main(["render", str(spec), "-o", str(tmp_path / "out")]) == 0
    assert "are in the lock, and no call runs them: what was measured is another problem" in capsys.readouterr().err
    assert "Scripted GPU" not in (tmp_path / "out" / "product" / "plan.py").read_text()
    marked = winners(spec)
    assert [replace(w, unused="") for w in marked] == list(before)
    assert all(w.unused for w in marked)
    made = measuring()
    assert tune(spec, *SHAPE, "--candidates", "1") == 0
    assert before[0].tiling in made.built
    after = winners(spec)
    assert [(w.problem["m"], bool(w.unused)) for w in after] == [(512, True), (64, False)]
    assert after[1].measured not in ("", before[0].measured)
    capsys.readouterr()
    assert tune(spec, "--confirm") == 0  # the rest of them, too
    assert not any(w.unused for w in winners(spec))
