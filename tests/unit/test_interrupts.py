"""Ctrl-C is 130 wherever it lands, and closed streams are not an error of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from cutegen import cli
from cutegen.interrupts import is_interrupt

ROOT = Path(__file__).parents[2]


def wrap(*, hide: bool) -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        if hide:
            raise ValueError("invalid schema") from None
        raise ValueError("invalid schema")  # noqa: B904 (as libraries do)


def forget() -> None:
    """As compiled code does: the interrupt becomes an exception that knows nothing of it."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    except KeyboardInterrupt:
        pass
    raise ValueError("invalid schema")


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


class Last:
    def __del__(self) -> None:
        raise KeyboardInterrupt


def drop() -> None:
    Last()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("action", [lambda: wrap(hide=True), lambda: wrap(hide=False), drop, forget])
def test_an_interrupt_is_130(
    action: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = click.Command("list", callback=action)
    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, ctx, name: command)
    hook = sys.unraisablehook
    assert cli.main(["list"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert sys.unraisablehook is hook


def test_other_errors_are_no_interrupts() -> None:
    error = ValueError("x")
    error.__context__ = TypeError("y")
    error.__context__.__context__ = error
    assert not is_interrupt(error)
    assert not is_interrupt(None)


IMPORTING = """\
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            raise KeyboardInterrupt
wanted, sys.argv[1:] = sys.argv[1], ["list"]
sys.meta_path.insert(0, Finder())
from cutegen.__main__ import start
raise SystemExit(start())
"""


@pytest.mark.parametrize("module", ["cutegen.cli", "click", "cutegen.cli.author"])
def test_an_interrupt_while_modules_are_imported(module: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", IMPORTING, module], capture_output=True, text=True, env=environment)
    assert (run.returncode, run.stderr.strip()) == (130, "interrupted")


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "explain specs/gemm_bf16_sm90a.yaml",
        "resolve specs/gemm_bf16_sm90a.yaml",
        "validate specs/gemm_bf16_sm90a.yaml",
        "explain unknown-key",
        "no-such-command",
    ],
)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams(command: str, closed: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUTEGEN_CACHE_DIR": str(tmp_path)}
    line = f"{sys.executable} -m cutegen {command} {closed}"
    run = subprocess.run(["sh", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == (2 if command == "no-such-command" else 0), run.stderr
    assert "internal error" not in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize(
    "command", ["validate no-such.yaml 2>/dev/full", "no-such-command 2>/dev/full", "list >/dev/full 2>/dev/full"]
)
def test_full_streams(command: str) -> None:
    """Nothing can be reported then, and the exit code says that it went wrong."""
    line = f"{sys.executable} -m cutegen {command}; echo $? >&3"
    run = subprocess.run(["sh", "-c", f"exec 3>&1; {{ {line}; }} 2>&1"], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == "2\n"


def test_little_is_imported_before_an_interrupt_is_caught() -> None:
    """What takes longer than all of it."""
    code = "import os, sys; old = {*sys.modules}; import cutegen.__main__; print(*{*sys.modules} - old)"
    run = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert set(run.stdout.split()) == {"__future__", "cutegen", "cutegen.__main__", "cutegen.interrupts"}
