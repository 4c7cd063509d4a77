"""Temporary folders of processes that were killed are deleted; those of living ones stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cutegen.runtime import temporary
from cutegen.runtime.temporary import STALE_S, temporary_folder

HOLD = "from cutegen.runtime.temporary import *; f = TemporaryFolder(); print(f.path, flush=True); input()"


def grow_old(path: Path) -> None:
    then = path.stat().st_mtime - STALE_S - 60
    os.utime(path, (then, then))


def test_folders_go_with_their_process_or_an_hour_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    held = Path(holder.stdout.readline().strip())
    (held / "file").touch()
    (tmp_path / "cutegen-file").touch()
    (tmp_path / "another").mkdir()
    for path in (held, tmp_path / "cutegen-file", tmp_path / "another"):
        grow_old(path)
    with temporary_folder() as own:
        assert own.stat().st_mode & 0o777 == 0o700
        assert held.exists()
        assert not (tmp_path / "cutegen-file").exists()
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        with temporary_folder():
            assert own.exists()
        assert not held.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["another"]


def test_a_young_folder_that_nobody_holds_stays(tmp_path: Path) -> None:
    (tmp_path / "cutegen-young").mkdir()
    temporary.sweep(tmp_path)
    assert (tmp_path / "cutegen-young").exists()
    grow_old(tmp_path / "cutegen-young")
    temporary.sweep(tmp_path)
    assert not (tmp_path / "cutegen-young").exists()
