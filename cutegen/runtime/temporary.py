"""Temporary folders that a later process deletes if the one that made them was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "cutegen-"
STALE_S = 3600.0  # a leftover this old belongs to a process that died


class TemporaryFolder:
    """A folder of this user alone in the system's temporary directory, held by a lock until `delete`. OSError: it
    cannot be made. Forked processes hold it as well."""

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # no locks on this file system: the folder is kept for an hour
            fcntl.flock(self._handle, fcntl.LOCK_SH)

    def delete(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._handle)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = TemporaryFolder()
    try:
        yield folder.path
    finally:
        folder.delete()


def sweep(parent: Path) -> None:
    """Deletes folders and files of this user in `parent` that are named as here, are an hour old and not held."""
    with contextlib.suppress(OSError), os.scandir(parent) as found:
        for item in found:
            if item.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _sweep_one(Path(item.path), item.stat(follow_symlinks=False))


def _sweep_one(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or time.time() - status.st_mtime < STALE_S:
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its process lives
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    finally:
        os.close(handle)
