"""Packages rendered into the cache, imported as cutegen.loaded.NAME_DIGEST.

The digest is that of the package's files. Whoever imports one, with a spec at hand or only by its name (a pickled plan,
a worker that compiles), gets it from one finder: it reads the files once and compares them with the digest, and modules
are compiled from the very text that it compared. There is no bytecode on the disk, and sys.path stays as it is.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import linecache
import os
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from cutegen.render.package import RenderedPackage
from cutegen.runtime.cache import MANIFEST, KernelCache, default_root, describe_untrusted, warn_untrusted
from cutegen.runtime.cache_limit import ENTRY_NAMES
from cutegen.runtime.temporary import TemporaryFolder
from cutegen.runtime.trust import UntrustedError, make_folder, open_folder, read_file

FOLDER = "packages"
_REMEDY = "delete it, and load its spec again"
_lock = threading.RLock()

__path__: list[str] = []  # a package, whose modules `_Finder` finds


class _Held(NamedTuple):
    """A package whose files were compared with its digest. files: their texts by name."""

    folder: Path
    files: Mapping[str, str]


_held: dict[str, _Held] = {}  # by key, NAME_DIGEST


class _Loader(importlib.abc.ExecutionLoader):
    """One module of a package, from its text in memory."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = str(path), text

    def is_package(self, fullname: str) -> bool:
        return self.path.endswith(f"{os.sep}__init__.py")

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_source(self, fullname: str) -> str:
        return self.text

    def exec_module(self, module: ModuleType) -> None:
        # What `inspect` gives the DSL to compile is this text too; without a time nobody looks whether the file has
        # changed.
        linecache.cache[self.path] = len(self.text), None, self.text.splitlines(True), self.path
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{__name__}."):
            return None
        key, _, module = fullname[len(__name__) + 1 :].partition(".")
        if not ENTRY_NAMES[FOLDER].fullmatch(key):
            return None
        if key not in _held:
            _held[key] = _find(key, fullname)
        held, name = _held[key], f"{module or '__init__'}.py"
        if name not in held.files:
            return None
        loader = _Loader(held.folder / name, held.files[name])
        spec = importlib.util.spec_from_loader(fullname, loader)
        if spec and not module:
            spec.submodule_search_locations = []  # no other finder looks into the folder
        return spec


sys.meta_path.append(_Finder())


def _find(key: str, module: str) -> _Held:
    """The package of this name in the cache. ImportError: there is none, it is damaged, or others may have written
    it."""
    root = default_root()
    if root is None:
        raise ModuleNotFoundError(f"{module} lies in a cache, and there is none: set CUTEGEN_CACHE_DIR", name=module)
    folder = root / FOLDER / key
    try:
        files = _read(root, FOLDER, key)
    except UntrustedError as error:
        raise ImportError(describe_untrusted(error), name=module) from None
    except (FileNotFoundError, NotADirectoryError):
        said = (
            f"{folder} is not a package: load its spec with this cache, or set CUTEGEN_CACHE_DIR to the one that has it"
        )
        raise ModuleNotFoundError(said, name=module) from None
    except OSError as error:
        raise ImportError(f"{folder} cannot be read ({error.strerror}): {_REMEDY}", name=module) from None
    if _key(key, files) != key:
        raise ImportError(f"{folder} is not what its name says: {_REMEDY}", name=module)
    return _Held(folder, files)


def import_package(package: RenderedPackage) -> ModuleType:
    """The module of a rendered package, from the cache, where it is written if it is not there or damaged. Without a
    cache it lies in a temporary folder, as long as this process lives."""
    key = _key(f"{package.name}_", package.files)
    name = f"{__name__}.{key}"
    with _lock:
        _held[key] = _Held(_place(KernelCache(default_root(), FOLDER), key, package), package.files)
        if name in sys.modules:
            return sys.modules[name]
        try:
            return importlib.import_module(name)
        except BaseException:
            for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
                del sys.modules[module]
            raise


def _key(name: str, files: Mapping[str, str]) -> str:
    """NAME_DIGEST of a package with these files. name: `NAME_`, or a key that it was given before."""
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:20]
    return f"{name.rpartition('_')[0]}_{digest}"


def _place(cache: KernelCache, key: str, package: RenderedPackage) -> Path:
    """The folder that has the package, whole."""
    if cache.root is not None:
        if _is_whole(package, cache.root, FOLDER, key):
            return cache.root / FOLDER / key
        with cache.lock(key), cache.stage() as staged:
            if _is_whole(package, cache.root, FOLDER, key):  # another process was first
                return cache.root / FOLDER / key
            if staged:
                _write(staged, package)
                if cache.publish(key, staged, {}) and _is_whole(package, cache.root, FOLDER, key):
                    return cache.root / FOLDER / key
    root = _temporary_folder()
    if not _is_whole(package, root, key):
        shutil.rmtree(root / key, ignore_errors=True)
        _write(make_folder(root, key), package)
    return root / key


def _is_whole(package: RenderedPackage, root: Path, *names: str) -> bool:
    """Whether a folder has these files and no others. Not, with a warning, where others than the user and root may
    write it."""
    try:
        return _read(root, *names) == package.files
    except UntrustedError as error:
        warn_untrusted(error)
    except OSError:
        pass
    return False


def _read(root: Path, *names: str) -> dict[str, str]:
    """The texts of the files in root/names[0]/..., by name. OSError: they cannot be read; UntrustedError."""
    folder = root.joinpath(*names)
    with open_folder(root, *names) as handle:
        found = sorted({*os.listdir(handle)} - {MANIFEST})
        return {name: read_file(handle, folder / name).decode(errors="replace") for name in found}


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
