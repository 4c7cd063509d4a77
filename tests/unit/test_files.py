"""Files that are replaced as a whole, and what is there instead of a file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from capabilities import bound_by_permissions

from cutegen.files import STALE_S, keep_style, write_output, write_text, write_texts


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    file, link, dangling = kept / "file", tmp_path / "link", tmp_path / "dangling"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    dangling.symlink_to("kept/other")
    write_texts({link: "new", dangling: "first"})
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert (file.read_text(), (kept / "other").read_text()) == ("new", "first")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(p.name for p in kept.iterdir()) == ["file", "other"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_output(pipe, "text")
    reader.join(10)
    assert found == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_nobody_has_named_for_an_output_is_a_file_or_nothing(tmp_path: Path) -> None:
    """To write to a pipe that nobody reads would wait for ever."""
    pipe, other = tmp_path / "x.lock.yaml", tmp_path / "other"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file") as caught:
        write_texts({other: "text", pipe: "text"})
    assert caught.value.filename == str(pipe)
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path, "text")
    assert list(tmp_path.iterdir()) == [pipe]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/null", "/dev/full"])
def test_devices_are_written_to(name: str) -> None:
    code = f"from pathlib import Path; from cutegen.files import write_output; write_output(Path({name!r}), 'text')"
    before = os.stat(name).st_mode
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout == ("text" if name == "/dev/stdout" else "")
    assert run.stderr.rsplit("\n", 2)[-2:] == (
        ["OSError: [Errno 28] No space left on device: '/dev/full'", ""] if name == "/dev/full" else [""]
    )
    assert stat.S_IFMT(os.stat(name).st_mode) == stat.S_IFMT(before)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="/dev/shm is not writable")
def test_files_in_shared_memory_are_files() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "new" / "file"
        assert write_text(path, "text")
        assert not write_text(path, "text")
        assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_file_that_must_not_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o444)
    with bound_by_permissions(), pytest.raises(PermissionError, match="file"):
        write_texts({tmp_path / "before": "text", file: "new"})
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"file": "old"}


@pytest.mark.parametrize("old", ["a\nb\n", "a\r\nb\r\n", "\ufeffa\nb\n", "\ufeffa\r\nb\r\n"])
def test_line_ends_and_the_byte_order_mark_stay(old: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(old.encode())
    assert not write_text(file, keep_style("a\nb\n", file.read_bytes()))
    assert write_text(file, keep_style("a\nc\n", file.read_bytes()))
    assert file.read_bytes() == old.replace("b", "c").encode()


@pytest.mark.parametrize("text", ["old", "new"])
def test_what_a_killed_process_left_is_swept(text: str, tmp_path: Path) -> None:
    """Whether or not there is anything to write."""
    file = tmp_path / "file"
    file.write_text("old")
    left, young, own = tmp_path / ".x.yaml.0123abcd.cutegen", tmp_path / ".y.89abcdef.cutegen", tmp_path / ".z.0123abcd"
    for path in (left, young, own):
        path.write_text("half")
    for path in (left, own):
        then = path.stat().st_mtime - STALE_S - 60
        os.utime(path, (then, then))
    write_text(file, text)
    assert not left.exists()
    assert young.exists()
    assert own.exists()  # not named as ours are


def test_a_target_that_goes_away_meanwhile_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    access = os.access

    def look(path: Path, mode: int, **options: bool) -> bool:
        may = access(path, mode)
        file.unlink(missing_ok=True)
        return may

    monkeypatch.setattr(os, "access", look)
    write_texts({file: "new"})
    assert file.read_text() == "new"
