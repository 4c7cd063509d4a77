"""Kernels of a bundle, which `cutegen bundle` compiled: found in its library, never compiled.

A bundle has a copy of this module of its own, so what is open here is one bundle. Importing this module imports neither
torch nor tvm_ffi.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cutegen.runtime.sources import host_features

FORMAT = 1
MANIFEST, LIBRARY, RUNTIME = "manifest.json", "kernels.so", "libcute_dsl_runtime.so"
_CHUNK = 1 << 20


class BundleError(ImportError):
    """A bundle is damaged, or was made for another machine or for other libraries."""


class _Bundle:
    """An open bundle. symbols: of its library, by spec, module and numbers of a tiling."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.symbols = {(k["spec"], k["module"], k["numbers"]): k["symbol"] for k in manifest["kernels"]}
        self._library: Any = None
        self._lock = threading.Lock()

    def library(self) -> Any:
        """The loaded library. BundleError: the process has the runtime of another DSL, which its kernels would call."""
        with self._lock:
            if self._library is None:
                self._refuse_other_runtime()
                import tvm_ffi

                self._library = tvm_ffi.load_module(str(self.folder / LIBRARY))
            return self._library

    def _refuse_other_runtime(self) -> None:
        """The dynamic linker takes the first runtime of this name that a process has."""
        for path in _mapped(RUNTIME):
            if path.is_file() and _hash(path) != self.manifest["files"][RUNTIME]:
                made = self.manifest["toolchain"].get("nvidia_cutlass_dsl", "another version")
                raise BundleError(
                    f"{self.folder}: this process has loaded {path}, and the bundle was made with nvidia-cutlass-dsl "
                    f"{made}: call warm_up() of its plans before that library is loaded, or make the bundle with "
                    "the version that is installed"
                )


_open: list[_Bundle] = []


def open_bundle(folder: Path, digest: str) -> None:
    """Compares every file with the manifest, whose hash is `digest`, and this machine with what the bundle was made
    for. Loads no library. BundleError: they differ, with every reason that was found."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise BundleError(f"{folder}: {MANIFEST} cannot be read ({error.strerror}): {_AGAIN}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise BundleError(f"{folder}: {MANIFEST} is not what the bundle was made with: {_AGAIN}")
    manifest = json.loads(data)
    if damaged := [why for name, value in manifest["files"].items() if (why := _damage(folder / name, value))]:
        raise BundleError(f"{folder}: {'; '.join(damaged)}: {_AGAIN}")
    if faults := _find_misfits(manifest):
        raise BundleError(f"{folder}: " + "\n  ".join(faults))
    _open[:] = [_Bundle(folder, manifest)]


def load_kernel(module: str, tiling: object, arch: str) -> Callable[..., None]:
    """The callable of one instance, as `cutegen.runtime.compile.load_kernel` has it. RuntimeError: it is not in the
    bundle."""
    (bundle,) = _open
    spec, part = module.split(".")[-2:]
    symbol = bundle.symbols.get((spec, part, repr(tiling)))
    if symbol is None:
        raise RuntimeError(
            f"{spec}: this kernel of {part} for {arch} is not in the bundle {bundle.folder}, and a bundle compiles "
            f"nothing; `{bundle.manifest['command']}` adds it:\n  {tiling}"
        )
    kernel: Callable[..., None] = bundle.library()[symbol]
    return kernel


_AGAIN = "install the bundle again, or make it again with `cutegen bundle`"


def _damage(path: Path, expected: str) -> str:
    try:
        return "" if _hash(path) == expected else f"{path.name} is not the file that the bundle was made with"
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror})"


def _hash(path: Path) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _find_misfits(manifest: Mapping[str, Any]) -> list[str]:
    """Why the bundle does not run on this machine, with these libraries; each with a remedy."""
    faults = []
    if manifest["format"] != FORMAT:
        faults.append(f"its format is {manifest['format']}, and its loader reads {FORMAT}: make the bundle again")
    made, here = manifest["machine"], [sys.platform, platform.machine()]
    if made != here:
        faults.append(f"it was made for {' on '.join(made)}, and this is {' on '.join(here)}: make one here")
    elif lacking := sorted(set(manifest["host"]) - host_features()):
        faults.append(
            f"it was made on a CPU with {', '.join(lacking)}, which this one lacks: make it on the oldest of your CPUs"
        )
    faults += [fault for text in manifest["requires"] if (fault := _find_unmet(text))]
    return faults


def _find_unmet(requirement: str) -> str:
    """What is wrong with the installed version of `NAME>=A,<B`; "" where nothing is."""
    name, *bounds = re.split(r"(?=[<>])|,", requirement)
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"it needs {name}, which is not installed: pip install '{requirement}'"
    found = _numbers(version)
    for bound in filter(None, bounds):
        kept = found >= _numbers(bound[2:]) if bound.startswith(">=") else found < _numbers(bound[1:])
        if not kept:
            return f"it needs {requirement}, and {name} {version} is installed: pip install '{requirement}'"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _mapped(name: str) -> set[Path]:
    """Files of this name that the process has mapped."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            paths = (Path(line.rstrip("\n").split(maxsplit=5)[-1]) for line in lines)
            return {path for path in paths if path.name == name}
    except OSError:
        return set()
