"""Reading and making the files of a cache so that nobody but the user and root can have a hand in them.

A folder or file is checked by the descriptor that it is read through, so no path is opened again after its check.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

PRIVATE = 0o700  # of the folders that are made here
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_BYTES = 64 << 20  # of one file: kernels take some 0.2 MB
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UntrustedError(PermissionError):
    """Others than the user and root may have written a file, or may replace it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(errno.EPERM, reason, str(path))


@contextlib.contextmanager
def open_folder(root: Path, *names: str, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder root/names[0]/...; below `root` no link is followed. make: what is missing below
    `root` is made, for those who may read that. OSError: there is none; UntrustedError: others may write one of these
    folders, and nothing was made in it."""
    path, handle = root, os.open(root, _FOLDER)
    try:
        _check(path, handle)
        mode = shared_mode(handle)
        for name in names:
            path, made = path / name, make and _make(name, handle)
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
            _check(path, handle)
            if made:
                os.fchmod(handle, mode)
        yield handle
    finally:
        os.close(handle)


def _make(name: str, folder: int) -> bool:
    """Whether there was no such folder in an open one."""
    try:
        os.mkdir(name, PRIVATE, dir_fd=folder)
    except FileExistsError:
        return False
    return True


def make_folder(root: Path, *names: str) -> Path:
    """The folder root/names[0]/..., made where it is missing: `root` for the user alone, what is below it for those who
    may read `root`. Errors as those of open_folder."""
    if not root.exists():
        root.mkdir(PRIVATE, parents=True, exist_ok=True)
    with open_folder(root, *names, make=True):
        return root.joinpath(*names)


def shared_mode(root: Path | int) -> int:
    """Permissions of a folder below `root`: those of `root`, and no writing for others."""
    return PRIVATE | stat.S_IMODE(os.stat(root).st_mode) & 0o055


def read_file(folder: int, path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of the file path.name in an open folder; `path` is for messages. OSError: it is missing, has more than
    `most` bytes or is not a plain file; UntrustedError."""
    with _open_file(folder, path) as handle, open(handle, "rb", closefd=False) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, "is larger than any such file of the cache", str(path))
    return data


def check_file(folder: int, path: Path) -> None:
    """OSError: the file path.name is missing in an open folder, or is not a plain file; UntrustedError. Who opens it by
    its path later finds the same: only the user and root may change the folder."""
    with _open_file(folder, path):
        pass


@contextlib.contextmanager
def _open_file(folder: int, path: Path) -> Iterator[int]:
    handle = os.open(path.name, _FILE, dir_fd=folder)
    try:
        _check(path, handle)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "is not a plain file", str(path))
        yield handle
    finally:
        os.close(handle)


def _check(path: Path, handle: int) -> None:
    """UntrustedError: the file belongs to neither the user nor root, or others may write it. In a folder with the
    sticky bit, such as /tmp, they cannot replace what is not theirs."""
    status = os.fstat(handle)
    if status.st_uid not in (0, os.geteuid()):
        raise UntrustedError(path, f"belongs to user {status.st_uid}, who is neither this user nor root")
    if status.st_mode & OTHERS_WRITE and not (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        raise UntrustedError(path, f"may be written by others (mode {stat.S_IMODE(status.st_mode):03o})")


def seal(data: bytes) -> bytes:
    """Data behind a line with its hash."""
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def unseal(sealed: bytes) -> bytes:
    """The data that `seal` was given. ValueError: these bytes are not what it returned."""
    digest, _, data = sealed.partition(b"\n")
    if hashlib.sha256(data).hexdigest().encode() != digest:
        raise ValueError("damaged")
    return data
