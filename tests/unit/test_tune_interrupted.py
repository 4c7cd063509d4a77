"""What happens to a tune meanwhile: files that change, Ctrl-C, kill -9; kernels and their times are scripted."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_backend import ScriptedMeasuring
from tune_setup import SHAPE, by_columns, lock_spec, script_measuring, tune, tune_command, winners

from cutegen.resolve import lock_path
from cutegen.tune.store import TimingStore, store_path


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lock_spec(tmp_path, monkeypatch)


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedMeasuring]:
    return script_measuring(tmp_path, monkeypatch)


@pytest.mark.parametrize("what", ["spec", "lock"])
def test_a_file_that_changes_meanwhile_is_not_overwritten(
    spec: Path, measuring: Any, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spec if what == "spec" else lock_path(spec)
    changed = path.read_text() + "# edited\n"

    def edit(tiling: Any) -> float:
        path.write_text(changed)
        return by_columns(tiling)

    measuring(edit)
    before = lock_path(spec).read_text()
    assert tune(spec, *SHAPE, "--candidates", "4") == 1
    assert "has changed while it was tuned" in (err := capsys.readouterr().err)
    assert f"cutegen tune {spec} --shape m=64,n=4096,k=4096" in err
    assert path.read_text() == changed
    assert lock_path(spec).read_text() == (before if what == "spec" else changed)
    made = measuring()
    assert tune(spec, *SHAPE, "--candidates", "4") == 0
    assert made.built == []
    assert winners(spec)


def test_an_interrupt_writes_nothing_and_keeps_what_was_measured(
    spec: Path, measuring: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measuring()
    before = lock_path(spec).read_text()

    class Bar:
        def __enter__(self) -> Any:
            def show(what: str, done: int, total: int) -> None:
                if "measuring" in what and done > 60:
                    raise KeyboardInterrupt

            return show

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(tune_command, "_progress", Bar)
    assert tune(spec, *SHAPE, "--candidates", "30") == 130
    assert lock_path(spec).read_text() == before
    assert TimingStore(store_path(tmp_path / "cache")).count()["timings"] > 0


@pytest.mark.parametrize("options", [["--candidates", "6"], ["--candidates", "6", "--budget", "60s"]])
def test_an_interrupt_leaves_the_problems_that_were_proved(
    spec: Path, measuring: Any, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring()
    shapes = [word for m in (16, 64, 512) for word in ("--shape", f"m={m},n=4096,k=4096")]

    class Bar:
        def __enter__(self) -> Any:
            def show(what: str, done: int, total: int) -> None:
                if "2 of 3, m=64" in what:
                    raise KeyboardInterrupt

            return show

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(tune_command, "_progress", Bar)
    assert tune(spec, *shapes, *options) == 130
    assert [w.calls["m"] for w in winners(spec)] == [(1, 16)]
    assert "interrupted: 2 problems are left; the same command goes on" in capsys.readouterr().out


KILLED = """
import sys
sys.path[:0] = {paths!r}
import importlib
from pathlib import Path
from scripted_backend import ScriptedMeasuring
from tune_setup import by_columns
from cutegen.cli import main
from cutegen.tune import session
from cutegen.tune.report import TuneReport
made = ScriptedMeasuring(Path({log!r}), by_columns)
importlib.import_module("cutegen.cli.tune").make_measuring = lambda: made
session.build_kernels = lambda *args, **more: tuple(made.build(*args, **more))
session.KernelStream = made.stream
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_tune_leaves_spec_and_lock_and_goes_on(spec: Path, measuring: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    before = spec.read_text(), lock_path(spec).read_text()
    code = KILLED.format(paths=sys.path, log=str(log))
    command = [sys.executable, "-c", code, "tune", str(spec), *SHAPE, "--candidates", "30"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while log.read_text().count("sample") < 60:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (spec.read_text(), lock_path(spec).read_text()) == before
    kept = TimingStore(store_path(tmp_path / "cache")).count()["timings"]
    assert kept > 0
    measuring()
    assert tune(spec, *SHAPE, "--candidates", "30") == 0
    assert winners(spec)
