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
    left, kept = held.with_name("cutegen-0123456789abcdef"), tmp_path / "cutegen-notes"
    left.touch()
    kept.mkdir()
    for path in (held, left, kept):
        grow_old(path)
    with temporary_folder() as own:
        assert own.parent == held.parent == tmp_path / f"cutegen-{os.geteuid()}"
        assert own.stat().st_mode & 0o777 == 0o700
        assert held.exists()
        assert not left.exists()
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        with temporary_folder():
            assert own.exists()
        assert not held.exists()
    assert set(tmp_path.rglob("*")) == {own.parent, kept}


@pytest.mark.parametrize("how", ["file", "link", "open", "foreign"])
def test_a_place_that_is_taken_is_left_alone(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(tmp_path))
    place, other = tmp_path / f"cutegen-{os.geteuid()}", tmp_path / "other"
    left = other / "cutegen-0123456789abcdef"
    left.mkdir(parents=True)
    grow_old(left)
    if how == "link":
        place.symlink_to(other)
    elif how == "file":
        place.touch()
    else:
        other.rename(place)
        left = place / left.name
        if how == "open":
            place.chmod(0o777)
        elif os.geteuid() == 0:
            os.chown(place, 65534, -1)
        else:
            pytest.skip("only root gives folders away")
    with temporary_folder() as own:
        assert own.parent == tmp_path
        assert own.stat().st_mode & 0o777 == 0o700
    assert not own.exists()
    assert left.exists()


def test_a_young_folder_that_nobody_holds_stays(tmp_path: Path) -> None:
    young = tmp_path / temporary.fresh_name()
    young.mkdir()
    temporary.sweep(tmp_path)
    assert young.exists()
    grow_old(young)
    temporary.sweep(tmp_path)
    assert not young.exists()
