"""The timing store: every measurement and every fault of a tune, so that none is made twice.

One SQLite file in the cache directory, in write-ahead mode: each entry is one transaction, so a process that is killed
loses at most the entry that it was writing, and two processes can share the file.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cutegen.diagnostics import CutegenError
from cutegen.runtime.trust import check_file, make_folder, open_folder

# Of the tables and of how their figures are taken: a file of another version is left alone.
VERSION = 3
_COMPANIONS = ("-wal", "-shm", "-journal")  # files that SQLite reads with the store
BUSY_S = 30.0  # an entry of another process takes milliseconds

FaultKind: TypeAlias = Literal["failed", "wrong", "crashed", "hung", "killed", "starved"]
_TABLES = """
CREATE TABLE IF NOT EXISTS timings (
    kernel TEXT, rival TEXT, problem TEXT, device TEXT, software TEXT, stage TEXT, figures TEXT, digest TEXT,
    PRIMARY KEY (kernel, rival, problem, device, software, stage)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS faults (
    kernel TEXT, problem TEXT, device TEXT, software TEXT, kind TEXT, reason TEXT, digest TEXT,
    PRIMARY KEY (kernel, problem, device, software)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel was measured. problem: extents by dim, as text. device: as the driver names it. software: what is
    around the kernel, versions of the driver and of torch, which brings cuBLAS."""

    problem: str
    device: str
    software: str


# A fault of compiling: on no problem and no device.
NOWHERE = Place("", "", "")


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per launch by round, of a kernel, of the default beside it, and of the baseline of that name (empty:
    there is none)."""

    own: tuple[float, ...]
    default: tuple[float, ...]
    baseline: tuple[float, ...] = ()
    baseline_name: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a candidate is out. failed: does not compile, breaks its contract, or is refused at launch; wrong: results;
    crashed, hung: the process that ran it had to be replaced; killed: from outside;
    starved: the disk or the memory was full when it was to be compiled."""

    kind: FaultKind
    reason: str

    @property
    def lasting(self) -> bool:
        """Whether it says anything of the candidate, and would happen again."""
        return self.kind not in ("killed", "starved")


class TimingStore:
    """Timings by (kernel, default, place, stage), faults by (kernel, place).

    A kernel goes by the hash of its source, the modules it imports, its tiling, target, and the versions of DSL, CUDA
    flavour and TVM FFI. path: of the file; None keeps everything in memory. unusable: why nothing outlives the process
    though it should.
    """

    def __init__(self, path: Path | None) -> None:
        self.path, self.unusable = path, ""
        try:
            self._connection = _open(path)
        except (sqlite3.OperationalError, OSError) as error:
            self.unusable = f"measurements are not kept: {path}: {error}; set CUTEGEN_CACHE_DIR to a writable directory"
            self._connection = _open(None)
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from None

    def find_timing(self, kernel: str, default: str, place: Place, stage: str) -> Timing | None:
        key = kernel, default, *_columns(place), stage
        rows = self._run("SELECT figures, digest FROM timings WHERE kernel=? AND rival=? AND problem=? AND device=? "
                         "AND software=? AND stage=?", *key)  # fmt: skip
        return _timing(rows[0][0]) if rows and rows[0][1] == _digest(*key, rows[0][0]) else None

    def keep_timing(self, kernel: str, default: str, place: Place, stage: str, timing: Timing) -> None:
        """And no longer what it failed by before, there or when it was compiled: it runs now."""
        for where in (place, NOWHERE):
            self._run("DELETE FROM faults WHERE kernel=? AND problem=? AND device=? AND software=?",
                      kernel, *_columns(where))  # fmt: skip
        figures = json.dumps([timing.own, timing.default, timing.baseline, timing.baseline_name])
        row = kernel, default, *_columns(place), stage, figures
        self._run("INSERT OR REPLACE INTO timings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row, _digest(*row))

    def find_fault(self, kernel: str, place: Place) -> Fault | None:
        key = kernel, *_columns(place)
        rows = self._run("SELECT kind, reason, digest FROM faults WHERE kernel=? AND problem=? AND device=? "
                         "AND software=?", *key)  # fmt: skip
        kind, reason, digest = rows[0] if rows else (None, "", "")
        return Fault(kind, reason) if kind and digest == _digest(*key, kind, reason) else None

    def keep_fault(self, kernel: str, place: Place, fault: Fault) -> None:
        row = kernel, *_columns(place), fault.kind, fault.reason
        self._run("INSERT OR REPLACE INTO faults VALUES (?, ?, ?, ?, ?, ?, ?)", *row, _digest(*row))

    def count(self) -> Mapping[str, int]:
        """Entries by table."""
        return {table: self._run(f"SELECT count(*) FROM {table}")[0][0] for table in ("timings", "faults")}

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str, *values: str) -> list[Any]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            raise CutegenError(f"{self.path}: {error}", "free some space, or set CUTEGEN_CACHE_DIR", 2) from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from None

    def _damaged(self, error: sqlite3.Error) -> CutegenError:
        return CutegenError(
            f"{self.path} is damaged: {error}",
            "delete it, what it holds can be measured again; or set CUTEGEN_CACHE_DIR to another directory",
            exit_code=2,
        )


def store_path(root: Path | None) -> Path | None:
    """The store's file in a cache directory; None where there is none."""
    return root / f"timings-{VERSION}.sqlite" if root else None


def _open(path: Path | None) -> sqlite3.Connection:
    if path:
        make_folder(path.parent)
        with open_folder(path.parent) as folder:
            for suffix in ("", *_COMPANIONS):
                with suppress(FileNotFoundError):
                    check_file(folder, path.with_name(path.name + suffix))
    connection = sqlite3.connect(path or ":memory:", timeout=BUSY_S, isolation_level=None)
    try:
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA user_version={VERSION}")  # a write: what cannot be written shows now
        connection.executescript(_TABLES)
    except BaseException:
        connection.close()
        raise
    return connection


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """An answer, not an error, where the file system cannot. Who opens a new file at the same time has it locked for a
    moment, which this statement, unlike others, does not wait for."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _columns(place: Place) -> tuple[str, str, str]:
    return place.problem, place.device, place.software


def _digest(*columns: object) -> str:
    """Of a row, so that a damaged one is none: the file has no hash of its own."""
    return hashlib.sha256(json.dumps(columns).encode()).hexdigest()


def _timing(text: str) -> Timing | None:
    """None for what this version did not write."""
    try:
        *rows, name = json.loads(text)
        own, default, baseline = (tuple(map(float, row)) for row in rows)
    except (ValueError, TypeError, RecursionError):
        return None
    if len({len(row) for row in (own, default, baseline or own)}) > 1:
        return None  # ratios are of one round
    return Timing(own, default, baseline, str(name))
