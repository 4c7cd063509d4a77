"""What a tune says while it works: the time left is that of the whole tune."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_backend import ScriptedMeasuring
from tune_setup import lock_spec, script_measuring

from cutegen.cli.progress import show_stages
from cutegen.tune import session
from cutegen.tune.store import TimingStore

PROBLEMS = [{"m": m, "n": 4096, "k": 4096} for m in (16, 64, 512)]


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lock_spec(tmp_path, monkeypatch)


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedMeasuring]:
    return script_measuring(tmp_path, monkeypatch)


def said(spec: Path, measuring: Any, options: session.Options) -> list[tuple[str, int, int]]:
    told: list[tuple[str, int, int]] = []
    tune = session.Session(spec, measuring(), TimingStore(None), options, lambda *words: told.append(words))
    tune.run(PROBLEMS)
    return told


def test_without_a_budget_it_counts_the_kernel_time_of_all_problems(spec: Path, measuring: Any) -> None:
    told = said(spec, measuring, session.Options(candidates=5))
    counts = [done for _, done, _ in told]
    assert counts == sorted(counts)
    assert told[-1][1] == told[-1][2]
    assert len({total for what, _, total in told if "measuring" in what}) == 1
    assert [what for what, _, _ in told if "compiling" in what] != []
    assert any(what == "2 of 3, m=64 n=4096 k=4096: measuring" for what, _, _ in told)


def test_with_one_it_counts_its_seconds(spec: Path, measuring: Any) -> None:
    ticks = iter(range(10**9))
    options = session.Options(20.0, candidates=5, clock=lambda: 0.01 * next(ticks))
    told = said(spec, measuring, options)
    counts = [done for _, done, _ in told]
    assert counts == sorted(counts)
    assert {total for _, _, total in told} == {20}
    assert counts[-1] > 0
    for number, m in enumerate((16, 64, 512), 1):
        assert f"first pass, {number} of 3, m={m} n=4096 k=4096: measuring" in [what for what, _, _ in told]


def test_one_bar_for_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    from cutegen.cli import progress

    updates: list[tuple[Any, dict[str, Any]]] = []

    class Bar:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None: ...

        def add_task(self, what: str, total: Any) -> int:
            return 7

        def update(self, task: int, **fields: Any) -> None:
            updates.append((task, fields))

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "_bar", Bar)
    with show_stages() as show:
        show("compiling", 0, 0)
        show("measuring", 3, 80)
    assert updates == [
        (7, {"description": "compiling", "completed": 0, "total": None}),
        (7, {"description": "measuring", "completed": 3, "total": 80}),
    ]
