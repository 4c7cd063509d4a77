"""The timing store survives what happens to files: kills, other processes, damage, directories nobody may write to."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from capabilities import bound_by_permissions

from cutegen.diagnostics import CutegenError
from cutegen.tune import store as stores
from cutegen.tune.store import NOWHERE, Fault, Place, Timing, TimingStore, store_path

PLACE = Place("m=1 n=2 k=3", "GPU", "580.1")
TIMING = Timing((1.0, 1.5), (2.0, 2.5), (3.0, 3.5), "torch.mm")
WRITER = """
import sys
from pathlib import Path
from cutegen.tune.store import NOWHERE, Place, Timing, TimingStore
store = TimingStore(Path(sys.argv[1]))
for i in range(int(sys.argv[3])):
    store.keep_timing(f"{sys.argv[2]} {i}", "default", Place("p", "d", "1"), "s", Timing((i,), (i,)))
    print(i, flush=True)
"""


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "timings.sqlite"
    first = TimingStore(path)
    first.keep_timing("kernel", "default", PLACE, "3 x 5 ms", TIMING)
    first.keep_fault("kernel", NOWHERE, Fault("failed", "spills 40 B"))
    first.close()
    again = TimingStore(path)
    assert again.find_timing("kernel", "default", PLACE, "3 x 5 ms") == TIMING
    assert again.find_timing("kernel", "default", PLACE, "9 x 60 ms") is None
    assert again.find_fault("kernel", NOWHERE) == Fault("failed", "spills 40 B")
    assert again.find_fault("kernel", PLACE) is None
    assert again.count() == {"timings": 1, "faults": 1}


def test_a_later_figure_replaces_an_earlier_one(tmp_path: Path) -> None:
    store = TimingStore(tmp_path / "t.sqlite")
    for figure in (1.0, 4.0):
        store.keep_timing("kernel", "default", PLACE, "s", Timing((figure,), (2.0,)))
    found = store.find_timing("kernel", "default", PLACE, "s")
    assert found == Timing((4.0,), (2.0,))


def test_what_runs_now_has_no_fault_any_more(tmp_path: Path) -> None:
    store = TimingStore(tmp_path / "t.sqlite")
    elsewhere = replace(PLACE, device="another")
    for place in (PLACE, elsewhere):
        store.keep_fault("kernel", place, Fault("crashed", "killed"))
    store.keep_fault("kernel", NOWHERE, Fault("failed", "compiling took longer than 300 s"))
    store.keep_timing("kernel", "default", PLACE, "s", TIMING)
    assert store.find_fault("kernel", PLACE) is None
    assert store.find_fault("kernel", NOWHERE) is None
    assert store.find_fault("kernel", elsewhere)


def test_a_killed_writer_loses_at_most_its_last_entry(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), "a", "1000000"], stdout=subprocess.PIPE)
    assert writer.stdout
    written = [writer.stdout.readline() for _ in range(50)]
    writer.send_signal(signal.SIGKILL)
    written += writer.stdout.readlines()
    writer.wait()
    kept = TimingStore(path).count()["timings"]
    assert len(written) <= kept <= len(written) + 1
    assert len(written) >= 50


def test_two_processes_share_a_store(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, "300"], stdout=subprocess.DEVNULL)
        for name in ("a", "b")
    ]
    assert [w.wait() for w in writers] == [0, 0]
    assert TimingStore(path).count()["timings"] == 600


def test_a_damaged_store_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(b"no database at all, but long enough to be one" * 100)
    with pytest.raises(CutegenError, match="is damaged: file is not a database") as error:
        TimingStore(path)
    assert "delete it" in error.value.remedy
    assert path.read_bytes().startswith(b"no database")


def test_pages_damaged_later_are_an_error_too(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    store = TimingStore(path)
    for i in range(300):
        store.keep_timing(f"kernel {i}", "default", PLACE, "s", TIMING)
    store.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(CutegenError, match="is damaged"):
        TimingStore(path).find_timing("kernel 7", "default", PLACE, "s")


@pytest.mark.parametrize("figures", ["x", '[[1.0, 2.0], [1.0], [], ""]'])
def test_foreign_figures_are_a_miss(tmp_path: Path, figures: str) -> None:
    path = tmp_path / "t.sqlite"
    store = TimingStore(path)
    store.keep_timing("kernel", "default", PLACE, "s", TIMING)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE timings SET figures = ?", (figures,))
    assert store.find_timing("kernel", "default", PLACE, "s") is None


@pytest.mark.parametrize("figures", ["[" * 100_000, "1", "[1, 2, 3, 4]", "null"])
def test_what_this_version_did_not_write_is_no_timing(figures: str) -> None:
    assert stores._timing(figures) is None


def test_where_nothing_can_be_written_everything_stays_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = TimingStore(tmp_path / "file" / "t.sqlite")
    assert store.unusable.startswith("measurements are not kept: ")
    assert "CUTEGEN_CACHE_DIR" in store.unusable
    store.keep_timing("kernel", "default", PLACE, "s", TIMING)
    assert store.find_timing("kernel", "default", PLACE, "s") == TIMING


def test_a_file_nobody_may_write_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    TimingStore(path).close()
    path.chmod(0o444)
    with bound_by_permissions():
        assert TimingStore(path).unusable


def test_another_version_has_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_path(None) is None
    now = store_path(tmp_path)
    monkeypatch.setattr(stores, "VERSION", 99)
    assert store_path(tmp_path) != now


def test_a_changed_digit_is_a_miss(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    store = TimingStore(path)
    store.keep_timing("kernel", "default", PLACE, "s", TIMING)
    store.keep_fault("other", PLACE, Fault("failed", "spills 40 B"))
    with sqlite3.connect(path) as other:
        other.execute("UPDATE timings SET figures = replace(figures, '1.5', '0.5')")
        other.execute("UPDATE faults SET kernel = 'another'")
    assert store.find_timing("kernel", "default", PLACE, "s") is None
    assert store.find_fault("another", PLACE) is None


def test_a_store_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    TimingStore(path).close()
    path.chmod(0o666)
    assert "may be written by others" in TimingStore(path).unusable
    path.chmod(0o600)
    assert not TimingStore(path).unusable
    tmp_path.chmod(0o777)
    assert "may be written by others" in TimingStore(path).unusable


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("how", ["link", "pipe", "open"])
def test_what_sqlite_reads_beside_a_store_is_checked_too(suffix: str, how: str, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "t.sqlite"
    TimingStore(path).close()
    beside = path.with_name(path.name + suffix)
    if how == "link":
        beside.symlink_to(tmp_path / "elsewhere")
    elif how == "pipe":
        os.mkfifo(beside, 0o600)
    else:
        beside.touch()
        beside.chmod(0o666)
    store = TimingStore(path)
    assert "measurements are not kept" in store.unusable
    store.keep_fault("kernel", NOWHERE, Fault("failed", "x"))  # in memory
    assert not (tmp_path / "elsewhere").exists()
