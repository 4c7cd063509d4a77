"""Packages rendered into the cache, imported as cutegen.loaded.NAME_DIGEST.

This module is their parent package: its __path__ is the cache, so that any process with the same cache can import them
(a pickled plan, a worker that compiles), and sys.path stays as it is. A package is found by the digest of its files,
compared with what would be rendered, and written again when it differs.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import shutil
import sys
import threading
from pathlib import Path
from types import ModuleType

from cutegen.render.package import RenderedPackage
from cutegen.runtime.cache import MANIFEST, KernelCache, default_root, warn_untrusted
from cutegen.runtime.temporary import TemporaryFolder
from cutegen.runtime.trust import UntrustedError, make_folder, open_folder, read_file

FOLDER = "packages"
BYTECODE = "__pycache__"
_lock = threading.RLock()


def _cached(root: Path | None) -> list[str]:
    """Where packages are imported from by their names: a folder that nobody but the user and root may write."""
    try:
        if root:
            with open_folder(root, FOLDER):
                return [str(root / FOLDER)]
    except UntrustedError as error:
        warn_untrusted(error)
    except OSError:
        pass  # made when the first package is written
    return []


__path__ = _cached(default_root())


def import_package(package: RenderedPackage) -> ModuleType:
    """The module of a rendered package, from the cache, where it is written if it is not there or damaged. Without a
    cache it lies in a temporary folder, as long as this process lives."""
    key = f"{package.name}_{_digest(package)}"
    name = f"{__name__}.{key}"
    with _lock:
        cache = KernelCache(default_root(), FOLDER)
        folder = _place(cache, key, package)
        if name in sys.modules:
            return sys.modules[name]
        try:
            return _import(name, folder)
        except Exception:
            # The files are what they should be; their bytecode may not be.
            shutil.rmtree(folder / BYTECODE, ignore_errors=True)
            return _import(name, folder)


def _digest(package: RenderedPackage) -> str:
    texts = "".join(f"{name}\0{text}\0" for name, text in sorted(package.files.items()))
    return hashlib.sha256(texts.encode()).hexdigest()[:20]


def _import(name: str, folder: Path) -> ModuleType:
    parent = str(folder.parent)
    __path__[:] = [parent, *(p for p in __path__ if p != parent)]
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except BaseException:
        for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
            del sys.modules[module]
        raise


def _place(cache: KernelCache, key: str, package: RenderedPackage) -> Path:
    """The folder that has the package, whole."""
    if cache.root is not None:
        if _is_whole(folder := cache.root / FOLDER / key, package, cache.root):
            return folder
        with cache.lock(key), cache.stage() as staged:
            if _is_whole(folder, package, cache.root):  # another process was first
                return folder
            if staged:
                _write(staged, package)
                if cache.publish(key, staged, {}) and _is_whole(folder, package, cache.root):
                    make_folder(cache.root, FOLDER, key, BYTECODE)
                    return folder
    root = _temporary_folder()
    if not _is_whole(root / key, package, root):
        shutil.rmtree(root / key, ignore_errors=True)
        _write(make_folder(root, key), package)
        make_folder(root, key, BYTECODE)  # Python would let the group write to it where the umask does
    return root / key


def _is_whole(folder: Path, package: RenderedPackage, root: Path) -> bool:
    """Whether a folder below `root` has these files and no others; bytecode aside, which Python makes. Not, with a
    warning, where others than the user and root may write it or its bytecode."""
    names = folder.relative_to(root).parts
    try:
        with open_folder(root, *names) as handle:
            found = set(os.listdir(handle)) - {MANIFEST}
            if BYTECODE in found:
                with open_folder(root, *names, BYTECODE) as compiled:
                    for file in os.listdir(compiled):
                        read_file(compiled, folder / BYTECODE / file)
            return found - {BYTECODE} == package.files.keys() and all(
                read_file(handle, folder / name) == text.encode() for name, text in package.files.items()
            )
    except UntrustedError as error:
        warn_untrusted(error)
    except OSError:
        pass
    return False


def _write(folder: Path, package: RenderedPackage) -> None:
    for name, text in package.files.items():
        with open(folder / name, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text.encode())


_temporary: dict[int, TemporaryFolder] = {}  # by process: a forked child neither shares nor removes its parent's


def _temporary_folder() -> Path:
    process = os.getpid()
    if process not in _temporary:
        folder = _temporary[process] = TemporaryFolder()
        atexit.register(_remove, process, folder)
    return _temporary[process].path


def _remove(process: int, folder: TemporaryFolder) -> None:
    if process == os.getpid():
        folder.delete()
