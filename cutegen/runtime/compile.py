"""From one kernel instance (a generated kernel module and a tiling) to a callable, through the disk cache.

Imports neither torch nor cutlass until something has to be compiled or loaded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.abc import InspectLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from cutegen.runtime.cache import Entry, KernelCache, default_root, read_staged
from cutegen.runtime.sources import (
    DSL_FLOOR,
    DSL_REQUIREMENT,
    LINE_INFO,
    TVM_FFI_REQUIREMENT,
    distribution_versions,
    dsl_version,
    host_features,
    kernel_key,
)

# Files of a cache entry. There are no remarks where the DSL does not pass on what ptxas said.
OBJECT, PTX, CUBIN, REMARKS = "kernel.o", "kernel.ptx", "kernel.cubin", "remarks.yaml"
# ptxas's own report (registers, spills, C75xx). 4.7 tells of spills only, and takes three times as long to compile.
REMARKS_SINCE = (4, 8)

Kernel = Callable[..., None]
_lock = threading.RLock()
_kept_in: ContextVar[tuple[Path, dict[str, Path]] | None] = ContextVar("kept_in", default=None)
# The DSL compiles for one thread at a time. Every copy of this module in a process, those of standalone packages, has
# to wait for the others: so their lock is where all of them find it.
_compiler: threading.RLock = vars(sys).setdefault("_cutegen_compiler_lock", threading.RLock())
_modules: list[Any] = []  # a loaded module has to outlive its functions
_imported: dict[str, str] = {}  # of kernel modules, the text that they were imported from


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled kernel: its files (None where nothing could be written), else only the function.

    cached: no compiler ran. seconds: what tracing and compiling took, now or when the entry was made.
    """

    entry: Entry | None
    function: Kernel | None
    cached: bool
    seconds: float


def load_kernel(module: str, tiling: object, arch: str) -> Kernel:
    """The callable of one instance of the kernel module (a dotted name), from memory, disk or the compiler.

    It is called with (*inputs, *outputs, sm_count) and launches on torch's current stream. ImportError: no DSL.
    """
    with _lock:
        kernel = _load_kernel(module, tiling, arch)
        if kept := _kept_in.get():
            _keep(module, tiling, arch, *kept)
        return kernel


@contextlib.contextmanager
def keep_artefacts(folder: Path) -> Iterator[dict[str, Path]]:
    """Inside of it, `load_kernel` also writes what the compiler made of each instance to `folder`: paths by name."""
    written: dict[str, Path] = {}
    token = _kept_in.set((folder, written))
    try:
        yield written
    finally:
        _kept_in.reset(token)


def _keep(module: str, tiling: object, arch: str, folder: Path, written: dict[str, Path]) -> None:
    """OSError: they cannot be written, or the compiler had no place for them."""
    path = find_source(module)
    text = _first_text(module, path)
    key, cache = instance_key(text, module, path, tiling, arch), KernelCache(default_root())
    with compile_kernel(cache, key, module, tiling, arch, text) as compiled:
        if compiled.entry is None:
            raise OSError(f"{module}: the compiler has no folder to write to: set CUTEGEN_CACHE_DIR to one")
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in compiled.entry.files.items():
            written[name] = folder / name
            written[name].write_bytes(data)


@functools.cache
def _load_kernel(module: str, tiling: object, arch: str) -> Kernel:
    path = find_source(module)
    text = _first_text(module, path)
    # Without the versions of the DSL a key would be too wide.
    cache = KernelCache(default_root() if dsl_version() else None)
    key = instance_key(text, module, path, tiling, arch)
    for attempt in range(2):
        with compile_kernel(cache, key, module, tiling, arch, text) as compiled:
            if compiled.entry is None:
                assert compiled.function is not None
                return compiled.function
            try:
                return _load(compiled.entry.files[OBJECT], key)
            except Exception:
                if attempt or not compiled.cached:
                    raise
        try:
            cache.discard(key)  # whole, yet it does not load here: compiled again, once
        except OSError:
            cache = KernelCache(None)
    raise AssertionError("the second attempt returns or raises")


@functools.cache
def _first_text(module: str, path: Path) -> str:
    """What a kernel module said when this process first asked: that is what runs here, and what its keys are made of,
    even if the package is rendered again meanwhile."""
    return _read_source(module)


def _read_source(module: str) -> str:
    """The text of a module, from the loader that imports it. ImportError: there is none."""
    spec = importlib.util.find_spec(module)
    loader = spec.loader if spec else None
    text = loader.get_source(module) if isinstance(loader, InspectLoader) else None
    if text is None:
        raise ImportError(f"{module!r} has no source")
    return text


def find_source(module: str) -> Path:
    """The file of a module that is not imported for it. ImportError: there is none."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"no module named {module!r}")
    return Path(spec.origin)


def instance_key(text: str, module: str, path: Path, tiling: object, arch: str) -> str:
    """The cache key of one instance; `text` is the source of the kernel module, `path` where it lies or would lie."""
    return kernel_key(text, module, path, tiling, arch, base_options(arch))


def base_options(arch: str) -> str:
    return f"--gpu-arch {arch} --enable-tvm-ffi"


@contextlib.contextmanager
def compile_kernel(
    cache: KernelCache, key: str, module: str, tiling: object, arch: str, text: str = ""
) -> Iterator[Compiled]:
    """One instance, found or compiled, with its files readable inside the `with` (they may lie in a temporary place).
    text: of the module, where its file may change; another that was imported is not published under this key.

    Two processes that want the same key: one compiles, the other waits for it and finds it.
    """
    if entry := _find(cache, key):
        yield _found(entry)
        return
    with cache.lock(key), cache.stage() as staged:
        if entry := _find(cache, key):
            yield _found(entry)
        else:
            with _compiler:
                compiled = _compile(cache, key, module, tiling, arch, staged, text)
            yield compiled


def find_compiled(cache: KernelCache, key: str) -> Entry | None:
    """The entry of `key` if it is what this module publishes: the files that it needs, and facts of the right types."""
    entry = cache.find(key)
    return entry if entry and _is_complete(entry) else None


def _is_complete(entry: Entry) -> bool:
    facts = entry.facts if isinstance(entry.facts, dict) else {}
    seconds, host = facts.get("seconds"), facts.get("host")
    return (
        entry.files.keys() >= {OBJECT, PTX, CUBIN}
        and isinstance(entry.notes, dict)
        and isinstance(seconds, float)
        and 0.0 <= seconds < math.inf
        and isinstance(facts.get("arch"), str)
        and isinstance(host, list)
        and all(isinstance(feature, str) for feature in host)
    )


def _find(cache: KernelCache, key: str) -> Entry | None:
    entry = find_compiled(cache, key)
    return entry if entry and _runs_here(entry) else None


def _runs_here(entry: Entry) -> bool:
    """Whether its host code runs on this CPU: machines may share a cache."""
    return host_features().issuperset(entry.facts["host"])


def _found(entry: Entry) -> Compiled:
    return Compiled(entry, None, cached=True, seconds=entry.facts["seconds"])


def _compile(
    cache: KernelCache, key: str, module: str, tiling: object, arch: str, staged: Path | None, text: str
) -> Compiled:
    if (version := dsl_version()) and version < DSL_FLOOR:
        least = ".".join(map(str, DSL_FLOOR))
        raise ImportError(
            f"nvidia-cutlass-dsl {'.'.join(map(str, version))} is too old, kernels need {least} or later: "
            f"pip install '{DSL_REQUIREMENT}'"
        )
    try:
        kernels = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("cutlass", "cuda", "tvm_ffi"):
            raise ImportError(
                f"compiling needs {error.name}, which is not installed: "
                f"pip install '{DSL_REQUIREMENT}' '{TVM_FFI_REQUIREMENT}'"
            ) from error
        raise
    if text and not _runs(module, text):
        staged = None
    if staged is None:
        start = time.perf_counter()
        function = kernels.compile_kernel(tiling, base_options(arch))
        return Compiled(None, function, cached=False, seconds=time.perf_counter() - start)
    seconds = _compile_files(kernels, tiling, arch, key, staged)
    facts = {
        "seconds": seconds,
        "module": module,
        "tiling": repr(tiling),
        "arch": arch,
        "host": sorted(host_features()),
        "distributions": dict(distribution_versions()),
    }
    entry = cache.publish(key, staged, facts)
    if entry is None or not _runs_here(entry):  # not kept, or another machine published first
        entry = Entry(key, read_staged(staged), facts)
    return Compiled(entry, None, cached=False, seconds=seconds)


def _runs(module: str, text: str) -> bool:
    """Whether an imported module has this text: its file had not changed when it was imported."""
    if _imported.get(module) != text and _read_source(module) == text:
        _imported[module] = text
    return _imported.get(module) == text


def _compile_files(kernels: ModuleType, tiling: object, arch: str, key: str, staged: Path) -> float:
    """Compiles into `staged` the object, its PTX and cubin and the compiler's remarks; the seconds it took.

    kernels: a kernel module. What its PIPELINE_OPTIONS say is for passes of the DSL, where this version takes that.
    """
    dump = staged / "dump"  # what the DSL writes itself: long names, and the remarks again when the process ends
    dump.mkdir()
    remarks = dump / REMARKS
    with _plain_name(dump) as folder, _without_locations():
        options = f"{base_options(arch)} --keep-ptx --keep-cubin --dump-dir {folder}"
        if (dsl_version() or REMARKS_SINCE) >= REMARKS_SINCE:
            compact = ",".join(("remarks{ptx}", *getattr(kernels, "PIPELINE_OPTIONS", ())))
            options += f" {compact} --remark-output {folder}/{REMARKS}"
        start = time.perf_counter()
        function = kernels.compile_kernel(tiling, options)
        seconds = time.perf_counter() - start
    (staged / PTX).write_text(function.__ptx__)
    (staged / CUBIN).write_bytes(function.__cubin__)
    function.export_to_c(str(staged / OBJECT), function_name=kernel_symbol(key))
    if remarks.exists():
        (staged / REMARKS).write_text(remarks.read_text())
    shutil.rmtree(dump)
    return seconds


@contextlib.contextmanager
def _plain_name(folder: Path) -> Iterator[str]:
    """A name of an existing folder that the DSL can take: an option is parsed three times, by other rules each time,
    and no way to quote an apostrophe or a newline survives that."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


@contextlib.contextmanager
def _without_locations() -> Iterator[None]:
    """Asked for remarks, the DSL takes down the source line of every operation that it traces, for a third of the time
    of a compile. ptxas's report has no use for them; who wants line information in the cubin keeps them."""
    from cutlass.base_dsl import dsl

    switch = "_set_enable_frame_filtering"  # the DSL offers no option for it; without it compiles only take longer
    original = getattr(dsl, switch, None)
    if original is None or os.environ.get(LINE_INFO):
        yield
        return
    setattr(dsl, switch, lambda enable: original(False))
    try:
        yield
    finally:
        setattr(dsl, switch, original)


def _load(data: bytes, key: str) -> Kernel:
    """The kernel of an object file with these bytes, which no other process can reach."""
    from cutlass.cute.runtime import load_module

    with open(os.memfd_create("cutegen-kernel"), "wb") as file:
        file.write(data)
        file.flush()
        module = load_module(f"/proc/self/fd/{file.fileno()}", enable_tvm_ffi=True)
    _modules.append(module)
    kernel: Kernel = getattr(module, kernel_symbol(key))
    return kernel


def kernel_symbol(key: str) -> str:
    """The name of an instance in its object file, by its cache key."""
    return f"cutegen_{key[:16]}"
