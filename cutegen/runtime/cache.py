"""The disk cache of compiled kernels, and of rendered packages: one directory per key, published whole, checked when
it is read.

A cache never makes a compile fail: a broken entry is a miss and is replaced, one that others than the user and root may
have written is a miss with a warning, and a full or read-only disk is a warning.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cutegen.runtime.cache_limit import KERNELS, LIMIT, STAGE, keep_limit, mark_used, remove
from cutegen.runtime.temporary import fresh_name, sweep, temporary_folder
from cutegen.runtime.trust import UntrustedError, make_folder, open_folder, read_file, seal, shared_mode, unseal

FORMAT = 2
LOCKS = "locks"
MANIFEST = "manifest"
LOCK_WAIT_S = 300.0  # longer than any compile: then the holder hangs, and working twice is better than hanging too
MOST_MANIFEST = 1 << 20  # bytes: some 5 kB as written
ROOM = 4 << 20  # bytes a kernel's files may take: 0.2 MB as planned, 1 MB where it spills


class CacheWarning(RuntimeWarning):
    """The cache cannot be used as it should; the kernel is compiled all the same."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One compiled kernel. files: what its files held when they were checked, by name. facts: what the publisher says
    of them. notes: what was found out later, by name. kept: whether it lies in the cache."""

    key: str
    files: Mapping[str, bytes]
    facts: Mapping[str, Any]
    notes: Mapping[str, Any] = field(default_factory=dict)
    kept: bool = False


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

    def __init__(self, root: Path | None, folder: str = KERNELS) -> None:
        self.root, self.folder = root, folder

    def find(self, key: str) -> Entry | None:
        """The entry of `key` if it is whole: a manifest as it was written, and every file of the hash that it gives."""
        if self.root is None:
            return None
        path = self._entry(key)
        try:
            with open_folder(self.root, self.folder, key) as folder:
                manifest = json.loads(unseal(read_file(folder, path / MANIFEST, MOST_MANIFEST)))
                if (manifest["format"], manifest["key"]) != (FORMAT, key):
                    return None
                files = {name: read_file(folder, path / name) for name in manifest["files"]}
                if {name: _digest(data) for name, data in files.items()} != manifest["files"]:
                    return None
                mark_used(folder)
                return Entry(key, files, manifest["facts"], manifest["notes"], kept=True)
        except UntrustedError as error:
            warn_untrusted(error)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        return None

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Holds the key against other processes. Where locking does not work it is skipped: publishing is atomic."""
        handle = None
        with contextlib.suppress(OSError):  # read-only (`stage` reports it), or no locks
            handle = self._acquire(key)
        try:
            yield
        finally:
            if handle is not None:
                self._release(handle)

    def _acquire(self, key: str) -> int | None:
        if self.root is None:
            return None
        path = make_folder(self.root, LOCKS) / key
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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
        # Closing is not enough: a process that was forked meanwhile has the handle, and the lock with it.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    @contextlib.contextmanager
    def stage(self) -> Iterator[Path | None]:
        """A fresh directory of this user to fill and then publish: in the cache; where that is full, read-only or
        others', with a warning, in the system's temporary directory; else None."""
        with contextlib.ExitStack() as stack:
            staged = None
            places = [(str(self.root / STAGE), self._fresh_folder)] if self.root else []
            for where, make in [*places, ("a temporary directory", temporary_folder)]:
                try:
                    path = stack.enter_context(make())
                    _try_room(path)
                    staged = path
                    break
                except UntrustedError as error:
                    warn_untrusted(error)
                except OSError as error:
                    warn_unusable(f"cannot write to {where} ({error.strerror or error})")
            yield staged

    def publish(self, key: str, staged: Path, facts: Mapping[str, Any]) -> Entry | None:
        """Moves a staged directory to its place in one step. None, with a warning, when that fails."""
        if self.root is None or self.root / STAGE != staged.parent:
            return None
        path = self._entry(key)
        try:
            entry = Entry(key, read_staged(staged), facts, kept=True)
            make_folder(self.root, self.folder)
            mode = shared_mode(self.root)
            (staged / MANIFEST).write_bytes(_manifest(entry))
            for file in staged.iterdir():
                file.chmod(0o600 | mode & 0o044)
            staged.chmod(mode)
            self.discard(key)
            os.rename(staged, path)
            self._keep_limit()
        except UntrustedError as error:
            warn_untrusted(error)
            return None
        except OSError as error:
            if found := self.find(key):  # another process was first
                return found
            warn_unusable(f"cannot keep a compiled kernel in {self.root} ({error.strerror or error})")
            return None
        return entry

    def _keep_limit(self) -> None:
        assert self.root is not None
        try:
            keep_limit(self.root)
        except ValueError as error:
            warnings.warn(f"{LIMIT}: {error}; the cache has no limit", CacheWarning, 4)

    def discard(self, key: str) -> None:
        """Takes an entry out of the way in one step, then deletes it. OSError: it stays."""
        if self.root is not None:
            with contextlib.suppress(FileNotFoundError):
                remove(self.root, self.folder, key)

    def note(self, entry: Entry, name: str, value: object) -> None:
        """Adds something to the notes of an entry that is kept; failing to is a warning."""
        if self.root is None or not entry.kept:
            return
        noted = replace(entry, notes={**entry.notes, name: value})
        try:
            write_kept(self.root, (self.folder, entry.key), MANIFEST, _manifest(noted))
        except UntrustedError as error:
            warn_untrusted(error)
        except OSError as error:
            warn_unusable(f"cannot write to {self._entry(entry.key)} ({error.strerror or error})")

    def _entry(self, key: str) -> Path:
        assert self.root is not None
        return self.root / self.folder / key

    @contextlib.contextmanager
    def _fresh_folder(self) -> Iterator[Path]:
        assert self.root is not None
        path = _fresh_path(self.root)
        path.mkdir(0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def read_staged(staged: Path) -> dict[str, bytes]:
    """The files of a staged directory, which nobody else may write, by name."""
    return {file.name: file.read_bytes() for file in sorted(staged.iterdir()) if file.is_file()}


def _manifest(entry: Entry) -> bytes:
    files = {name: _digest(data) for name, data in entry.files.items()}
    held = {"format": FORMAT, "key": entry.key, "files": files, "facts": entry.facts, "notes": entry.notes}
    return seal(json.dumps(held, indent=1).encode())


def read_kept(root: Path, folder: str, name: str) -> bytes | None:
    """What `write_kept` was given; None, with a warning where others may have written it, when that is not there."""
    try:
        with open_folder(root, folder) as handle:
            return unseal(read_file(handle, root / folder / name))
    except UntrustedError as error:
        warn_untrusted(error)
    except (OSError, ValueError):
        pass
    return None


def write_kept(root: Path, folders: tuple[str, ...], name: str, sealed: bytes) -> None:
    """Replaces a file of the cache in one step. OSError, UntrustedError: it cannot. sealed: bytes that `seal`
    returned. The first of `folders` is made where it is missing."""
    make_folder(root, folders[0])
    with open_folder(root, *folders) as handle:
        temporary = _fresh_path(root)
        try:
            with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(sealed)
            temporary.chmod(0o600 | shared_mode(root) & 0o044)
            os.replace(temporary, name, dst_dir_fd=handle)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _fresh_path(root: Path) -> Path:
    """A new path in the folder of a cache where what is unfinished lies, and is deleted by others if we die."""
    folder = make_folder(root, STAGE)
    sweep(folder)
    return folder / fresh_name()


def _try_room(folder: Path) -> None:
    """OSError: the disk is full. Then the DSL would fail with errors of any kind."""
    try:
        (folder / "room").write_bytes(b"\1" * ROOM)
    finally:
        (folder / "room").unlink(missing_ok=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def warn_untrusted(error: UntrustedError) -> None:
    """Tells that something in the cache is left aside because others may have written it."""
    warnings.warn(describe_untrusted(error), CacheWarning, 3)


def describe_untrusted(error: UntrustedError) -> str:
    remedy = "if you know who wrote it, change its owner or take that permission away; if not, delete it"
    return f"{error.filename} {error.strerror}: it is not used; {remedy}"


def warn_unusable(text: str) -> None:
    """Tells that the cache does not do its work, and what to set."""
    warnings.warn(f"{text}; set CUTEGEN_CACHE_DIR to a writable directory, or CUTEGEN_CACHE=0", CacheWarning, 3)
