"""How much a cache may hold: what was used least recently is taken out when something is added.

An entry is moved away in one step and then deleted, so that another process sees all of it or nothing, which is a miss.
What was used a moment ago stays, whatever the limit: a process may be reading it. Folders are listed and changed by the
descriptors that `open_folder` checks, and only what has a name as the cache gives is looked at: a link leads nowhere
else, and a folder of the user that is called a cache loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cutegen.runtime.temporary import fresh_name
from cutegen.runtime.trust import make_folder, open_folder

STAGE = "stage"  # the folder of a cache in which things are made, and unmade
KERNELS = "kernels"
# Names of entries by kind, each but the last in a folder of that name. A package ends in its digest.
ENTRY_NAMES = {
    KERNELS: re.compile(r"[0-9a-f]{64}"),
    "packages": re.compile(r"[A-Za-z_]\w*_[0-9a-f]{20}", re.ASCII),
    "templates": re.compile(r"[0-9a-f]{40}\.jinja-[\w.]+-[0-9a-f]{12}(-markup)?", re.ASCII),
    "timings": re.compile(r"timings-\d+\.sqlite(-wal|-shm|-journal)?", re.ASCII),
}
LIMIT = "CUTEGEN_CACHE_LIMIT"
RECENT_S = 600.0  # reading an entry takes milliseconds, and what a build has made it reads when all is built
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


class Held(NamedTuple):
    """An entry: a folder or a file. size: in bytes. used: when it was written or read last, in seconds since 1970."""

    path: Path
    size: int
    used: float


def mark_used(folder: int) -> None:
    """Says that an entry was read. Where that cannot be said, as in a cache of others, when it was written counts."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def list_held(root: Path, *folders: str, form: re.Pattern[str]) -> list[Held]:
    """What lies in a folder of a cache with names of a form, least recently used first; what goes away meanwhile is
    left out. OSError: the folder is none, or cannot be read; UntrustedError."""
    found = []
    with contextlib.suppress(FileNotFoundError), open_folder(root, *folders) as handle:
        for name in filter(form.fullmatch, os.listdir(handle)):
            with contextlib.suppress(OSError):
                used = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mtime
                found.append(Held(root.joinpath(*folders, name), sum(_sizes(name, handle)), used))
    return sorted(found, key=lambda held: held.used)


def _sizes(name: str, folder: int) -> Iterator[int]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        yield status.st_size
        return
    for _, _, files, place in os.fwalk(name, dir_fd=folder):
        for file in files:
            with contextlib.suppress(OSError):
                yield os.stat(file, dir_fd=place, follow_symlinks=False).st_size


def read_size(text: str) -> int:
    """Bytes of `500MB`, `5 GB`, `1.5GiB` or `1000`. ValueError: it is not a size."""
    parts = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]i?|)b?\s*", text, re.IGNORECASE)
    if not parts:
        raise ValueError(f"`{text}` is not a size; write 500MB or 5GB")
    return int(float(parts[1]) * _UNITS[parts[2].lower()])


def find_limit() -> int | None:
    """Bytes that kernels may take; None: any. ValueError: the environment says something else than a size."""
    text = os.environ.get(LIMIT, "").strip()
    return read_size(text) if text else None


def over_limit(entries: Iterable[Held], limit: int, now: float) -> list[Held]:
    """Of entries, least recently used first, those to take out, so that the others fit; none that was used just now."""
    held = list(entries)
    room, chosen = limit - sum(entry.size for entry in held), []
    for entry in held:
        if room >= 0:
            break
        if now - entry.used > RECENT_S:
            room += entry.size
            chosen.append(entry)
    return chosen


def take_out(entries: Iterable[Held], root: Path) -> list[Held]:
    """Deletes entries of a cache; those that are gone. What others own or use up first stays."""
    gone = []
    for entry in entries:
        with contextlib.suppress(OSError):
            remove(root, *entry.path.relative_to(root).parts)
            gone.append(entry)
    return gone


def remove(root: Path, *names: str) -> None:
    """Deletes root/names[0]/..., moved away before in one step. OSError: there is none, or it cannot be moved;
    UntrustedError."""
    make_folder(root, STAGE)
    *folders, name = names
    with open_folder(root, *folders) as folder, open_folder(root, STAGE) as stage:
        trash = fresh_name()
        os.rename(name, trash, src_dir_fd=folder, dst_dir_fd=stage)
        with contextlib.suppress(OSError):  # `sweep` finds what is left
            if stat.S_ISDIR(os.stat(trash, dir_fd=stage, follow_symlinks=False).st_mode):
                shutil.rmtree(f"/proc/self/fd/{stage}/{trash}", ignore_errors=True)  # dir_fd is of Python 3.11
            else:
                os.unlink(trash, dir_fd=stage)


def keep_limit(root: Path) -> None:
    """Takes kernels out of a cache until those that stay fit in the limit of the environment. ValueError: that is not a
    size; OSError, UntrustedError: the kernels cannot be listed."""
    limit = find_limit()
    if limit is not None:
        take_out(over_limit(list_held(root, KERNELS, form=ENTRY_NAMES[KERNELS]), limit, time.time()), root)
