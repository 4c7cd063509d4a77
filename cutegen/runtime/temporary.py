"""Temporary folders that a later process deletes if the one that made them was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cutegen.runtime.trust import open_folder

STALE_S = 3600.0  # a leftover this old belongs to a process that died
_NAME = re.compile(r"cutegen-[0-9a-f]{16}")


def fresh_name() -> str:
    """A name that nothing has yet, and that `sweep` knows as ours."""
    return f"cutegen-{os.urandom(8).hex()}"


class TemporaryFolder:
    """A folder of this user alone in the system's temporary directory, held by a lock until `delete`. OSError: it
    cannot be made. Forked processes hold it as well."""

    def __init__(self) -> None:
        system = Path(tempfile.gettempdir())
        if parent := _user_folder(system):
            sweep(parent)
            self.path = parent / fresh_name()
            self.path.mkdir(0o700)
        else:
            self.path = Path(tempfile.mkdtemp(prefix="cutegen-", dir=system))
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


def _user_folder(system: Path) -> Path | None:
    """The folder in the system's temporary directory that all of this user's lie in, apart from what else is there.
    None: its place is taken, or others may write it."""
    path = system / f"cutegen-{os.geteuid()}"
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
        with open_folder(system, path.name) as handle:
            return path if os.fstat(handle).st_uid == os.geteuid() else None
    return None


def sweep(parent: Path) -> None:
    """Deletes folders and files of this user in `parent` that have names as from `fresh_name`, are an hour old and not
    held."""
    with contextlib.suppress(OSError), os.scandir(parent) as found:
        for item in found:
            if _NAME.fullmatch(item.name):
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
