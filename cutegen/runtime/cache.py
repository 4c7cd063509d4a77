"""The disk cache of compiled kernels, and of rendered packages: one directory per key, published whole, checked when
it is read.

A cache never makes a compile fail: a broken entry is a miss and is replaced, a full or read-only disk is a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutegen.runtime.cache_limit import LIMIT, keep_limit, mark_used

FORMAT = 1
MANIFEST = "entry.json"
LOCK_WAIT_S = 300.0  # longer than any compile: then the holder hangs, and working twice is better than hanging too
ROOM = 4 << 20  # bytes a kernel's files may take: 0.2 MB as planned, 1 MB where it spills
STALE_S = 3600.0  # an unpublished directory this old belongs to a process that died


class CacheWarning(RuntimeWarning):
    """The cache cannot be used as it should; the kernel is compiled all the same."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One compiled kernel on disk. facts: what the publisher wrote beside the files."""

    path: Path
    facts: Mapping[str, Any]

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()


def default_root() -> Path | None:
    """CUTEGEN_CACHE_DIR, else the user's cache directory; None when CUTEGEN_CACHE is 0, or there is no such place."""
    if os.environ.get("CUTEGEN_CACHE", "1").lower() in ("0", "off", "false", "no"):
        return None
    chosen, base = os.environ.get("CUTEGEN_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME", "")
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "cutegen"
    except (RuntimeError, OSError) as error:  # no home directory, or no working directory
        if chosen:
            warn_unusable(f"nothing is kept in CUTEGEN_CACHE_DIR={chosen} ({error})")
        return None


class KernelCache:
    """Entries in a folder of `root`; with root None nothing is found and nothing is kept."""

    def __init__(self, root: Path | None, folder: str = "kernels") -> None:
        self.root, self.folder = root, folder

    def find(self, key: str) -> Entry | None:
        """The entry of `key` if it is whole: manifest readable, and every file of the hash it tells."""
        if self.root is None:
            return None
        path = self._entry(key)
        try:
            manifest = json.loads((path / MANIFEST).read_bytes())
            if manifest["format"] != FORMAT or manifest["key"] != key:
                return None
            if all(_digest((path / name).read_bytes()) == digest for name, digest in manifest["files"].items()):
                mark_used(path)
                return Entry(path, manifest["facts"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Holds the key against other processes. Where locking does not work it is skipped: publishing is atomic."""
        handle = None
        with contextlib.suppress(OSError, ImportError):  # read-only (`stage` reports it), or no locks
            handle = self._acquire(key)
        try:
            yield
        finally:
            if handle is not None:
                self._release(handle)

    def _acquire(self, key: str) -> int | None:
        if self.root is None:
            return None
        import fcntl

        path = self.root / "locks" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        deadline = time.monotonic() + LOCK_WAIT_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        os.close(handle)
        return None

    def _release(self, handle: int) -> None:
        import fcntl

        # Closing is not enough: a process that was forked meanwhile has the handle, and the lock with it.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    @contextlib.contextmanager
    def stage(self) -> Iterator[Path | None]:
        """A fresh directory to fill and then publish: in the cache; where that is full or read-only, with a warning, in
        the system's temporary directory; else None."""
        path = None
        for parent in ([self.root / "stage"] if self.root else []) + [None]:
            try:
                path = self._stage_in(parent or Path(tempfile.gettempdir()))
                break
            except OSError as error:
                warn_unusable(f"cannot write to {parent or 'a temporary directory'} ({error.strerror or error})")
        try:
            yield path
        finally:
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)

    def _stage_in(self, parent: Path) -> Path:
        parent.mkdir(parents=True, exist_ok=True)
        if self.root in parent.parents:
            self._sweep(parent)
            path = parent / f"cutegen-{os.urandom(8).hex()}"
            path.mkdir()  # readable as the umask says: what root built for an image is for others to load
        else:
            path = Path(tempfile.mkdtemp(prefix="cutegen-", dir=parent))
        try:
            (path / "room").write_bytes(b"\1" * ROOM)  # on a full disk the DSL fails with errors of any kind
            (path / "room").unlink()
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return path

    def publish(self, key: str, staged: Path, facts: Mapping[str, Any]) -> Entry | None:
        """Moves a staged directory to its place in one step. None, with a warning, when that fails."""
        if self.root is None or self.root / "stage" != staged.parent:
            return None
        path = self._entry(key)
        try:
            files = {f.name: _digest(f.read_bytes()) for f in sorted(staged.iterdir())}
            manifest = {"format": FORMAT, "key": key, "files": files, "facts": facts}
            (staged / MANIFEST).write_text(json.dumps(manifest, indent=1))
            path.parent.mkdir(parents=True, exist_ok=True)
            self.discard(key)
            os.rename(staged, path)
            self._keep_limit()
        except OSError as error:
            if found := self.find(key):  # another process was first
                return found
            warn_unusable(f"cannot keep a compiled kernel in {self.root} ({error.strerror or error})")
            return None
        return Entry(path, facts)

    def _keep_limit(self) -> None:
        assert self.root is not None
        try:
            keep_limit(self.root / "kernels", self.root / "stage")
        except ValueError as error:
            warnings.warn(f"{LIMIT}: {error}; the cache has no limit", CacheWarning, 4)

    def discard(self, key: str) -> None:
        """Takes an entry out of the way in one step, then deletes it."""
        if self.root is not None and (path := self._entry(key)).exists():
            with tempfile.TemporaryDirectory(dir=self.root / "stage", ignore_cleanup_errors=True) as trash:
                os.rename(path, Path(trash) / "entry")

    def note(self, entry: Entry, name: str, value: object) -> None:
        """Writes a JSON file beside the files of an entry; failing to is a warning."""
        try:
            write_atomic(entry.path / name, json.dumps(value, indent=1))
        except OSError as error:
            warn_unusable(f"cannot write {entry.path / name} ({error.strerror or error})")

    def _entry(self, key: str) -> Path:
        assert self.root is not None
        return self.root / self.folder / key

    def _sweep(self, parent: Path) -> None:
        for path in parent.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_S:
                    shutil.rmtree(path, ignore_errors=True)


def write_atomic(path: Path, text: str) -> None:
    """Writes through a temporary file in the same directory, so that a reader sees the old text or the new."""
    temporary = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    try:
        with open(temporary, "x") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def warn_unusable(text: str) -> None:
    """Tells that the cache does not do its work, and what to set."""
    warnings.warn(f"{text}; set CUTEGEN_CACHE_DIR to a writable directory, or CUTEGEN_CACHE=0", CacheWarning, 3)
