"""How much a cache may hold: what was used least recently is taken out when something is added.

An entry is moved away in one step and then deleted, so that another process sees all of it or nothing, which is a miss.
What was used a moment ago stays, whatever the limit: a process may be reading it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LIMIT = "CUTEGEN_CACHE_LIMIT"
RECENT_S = 600.0  # reading an entry takes milliseconds, and what a build has made it reads when all is built
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


class Held(NamedTuple):
    """An entry: a folder or a file. size: in bytes. used: when it was written or read last, in seconds since 1970."""

    path: Path
    size: int
    used: float


def mark_used(path: Path) -> None:
    """Says that an entry was read. Where that cannot be said, as in a cache of others, when it was written counts."""
    with contextlib.suppress(OSError):
        os.utime(path)


def list_held(folder: Path) -> list[Held]:
    """What lies in a folder, least recently used first; what goes away meanwhile is left out."""
    found = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                found.append(Held(path, sum(_sizes(path)), path.lstat().st_mtime))
    return sorted(found, key=lambda held: held.used)


def _sizes(path: Path) -> Iterator[int]:
    if path.is_symlink() or not path.is_dir():
        yield path.lstat().st_size
        return
    for place, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(place, name)).st_size


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


def take_out(entries: Iterable[Held], stage: Path) -> list[Held]:
    """Deletes entries, each moved to `stage` before; those that are gone. What others own or use up first stays."""
    gone = []
    for entry in entries:
        trash = stage / f"cutegen-{os.urandom(8).hex()}"
        with contextlib.suppress(OSError):
            os.makedirs(stage, exist_ok=True)
            os.rename(entry.path, trash)
            gone.append(entry)
            if trash.is_dir() and not trash.is_symlink():
                shutil.rmtree(trash, ignore_errors=True)
            else:
                trash.unlink()
    return gone


def keep_limit(kernels: Path, stage: Path) -> None:
    """Takes kernels out until those that stay fit in the limit of the environment. ValueError: that is not a size."""
    limit = find_limit()
    if limit is not None:
        take_out(over_limit(list_held(kernels), limit, time.time()), stage)
