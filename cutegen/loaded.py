"""Packages rendered into the cache, imported as cutegen.loaded.NAME_DIGEST.

This module is their parent package: its __path__ is the cache, so that any process with the same cache can import them
(a pickled plan, a worker that compiles), and sys.path stays as it is. A package is found by the digest of its files,
compared with what would be rendered, and written anew when it differs.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType

from cutegen.render.package import RenderedPackage
from cutegen.runtime.cache import MANIFEST, KernelCache, default_root

FOLDER = "packages"
_lock = threading.RLock()


def _cached(root: Path | None) -> list[str]:
    return [str(root / FOLDER)] if root else []


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
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)
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
        if _is_whole(folder := cache.root / FOLDER / key, package):
            return folder
        with cache.lock(key), cache.stage() as staged:
            if _is_whole(folder, package):  # another process was first
                return folder
            if staged:
                _write(staged, package)
                if (entry := cache.publish(key, staged, {})) and _is_whole(entry.path, package):
                    return entry.path
    folder = Path(_temporary_folder()) / key
    if not _is_whole(folder, package):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _write(folder, package)
    return folder


def _is_whole(folder: Path, package: RenderedPackage) -> bool:
    """Whether a folder has these files and no others; bytecode aside, which Python makes."""
    try:
        names = {path.name for path in folder.iterdir()} - {MANIFEST, "__pycache__"}
        return names == package.files.keys() and all(
            (folder / name).read_bytes() == text.encode() for name, text in package.files.items()
        )
    except OSError:
        return False


def _write(folder: Path, package: RenderedPackage) -> None:
    for name, text in package.files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


_temporary: dict[int, str] = {}  # by process: a forked child neither shares nor removes its parent's


def _temporary_folder() -> str:
    process = os.getpid()
    if process not in _temporary:
        folder = tempfile.mkdtemp(prefix="cutegen-packages-")
        _temporary[process] = folder
        atexit.register(_remove, process, folder)
    return _temporary[process]


def _remove(process: int, folder: str) -> None:
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
