"""A cache and a compiler that several share: threads, copies of the runtime, forked processes, machines."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.util
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_kernel_cache import KERNEL, Kernels, Tiling, make_kernels

from cutegen.runtime import compile as compile_module
from cutegen.runtime import sources
from cutegen.runtime.cache import KernelCache


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    return make_kernels(tmp_path, monkeypatch)


def test_a_process_that_was_forked_meanwhile_does_not_block(kernels: Kernels) -> None:
    """It has the handle of the lock, and lives on."""
    cache = KernelCache(kernels.cache.root)
    with cache.lock("k" * 64):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        with contextlib.closing(os.fdopen(os.open(cache.root / "locks" / ("k" * 64), os.O_RDWR))) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_copies_of_the_runtime_compile_one_after_another(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The DSL fails when two threads use it, and every standalone package has a runtime of its own."""
    spec = importlib.util.spec_from_file_location("copy_of_compile", compile_module.__file__)
    assert spec
    assert spec.loader
    copy = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "copy_of_compile", copy)
    spec.loader.exec_module(copy)
    kernels.path.write_text(
        KERNEL + "\nimport threading\n"
        "alone, overlapped, once = threading.Lock(), [], compile_kernel\n"
        "def compile_kernel(*arguments):\n"
        "    overlapped.append(not alone.acquire(blocking=False))\n"
        "    try:\n"
        "        return once(*arguments)\n"
        "    finally:\n"
        "        alone.release()\n"
    )
    monkeypatch.setenv("CUTEGEN_CACHE", "0")
    monkeypatch.setenv("COMPILE_SECONDS", "0.2")
    copies = (compile_module, copy)
    for module in copies:
        monkeypatch.setattr(module, "_load", lambda data, key: print)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda m: m.load_kernel("fake_kernel", Tiling((5, 5)), "sm_90a"), copies)) == [print] * 2
    assert importlib.import_module("fake_kernel").overlapped == [False, False]


def test_an_object_for_another_cpu_is_a_miss(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """The DSL compiles host code for the CPU that it runs on, and a cache may be that of several machines."""
    monkeypatch.setattr(compile_module, "host_features", lambda: frozenset({"avx2", "avx512f"}))
    kernels.compile()
    monkeypatch.setattr(compile_module, "host_features", lambda: frozenset({"avx2"}))
    assert [kernels.compile()[0] for _ in range(2)] == [False, True]
    monkeypatch.setattr(compile_module, "host_features", lambda: frozenset({"avx2", "avx512f"}))
    assert kernels.compile()[0]  # what runs there runs here
    assert kernels.runs == 2


def test_what_another_machine_published_meanwhile_is_not_loaded_either(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_module, "host_features", lambda: frozenset({"avx2", "avx512f"}))
    kernels.compile()
    monkeypatch.setattr(compile_module, "host_features", lambda: frozenset({"avx2"}))
    monkeypatch.setattr(kernels.cache, "discard", lambda key: None)  # it came after this one looked
    arguments = (kernels.cache, "k" * 64, "fake_kernel", Tiling(), "sm_90a")
    with compile_module.compile_kernel(*arguments) as compiled:
        assert compiled.entry
        assert compiled.entry.facts["host"] == ["avx2"]
        assert compiled.entry.files[compile_module.OBJECT]


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
@pytest.mark.parametrize(
    ("made", "folder", "file"), [(None, 0o700, 0o600), (0o755, 0o755, 0o644), (0o750, 0o750, 0o640)]
)
def test_a_cache_is_the_users_unless_its_folder_was_opened_to_readers(
    kernels: Kernels, umask: int, made: int | None, folder: int, file: int
) -> None:
    """An image is built by root, and the server in it is another user."""
    root = kernels.cache.root
    if made:
        root.mkdir()
        root.chmod(made)
    before = os.umask(umask)
    try:
        kernels.compile()
        entry = kernels.cache.find("k" * 64)
        assert entry
        kernels.cache.note(entry, "facts", {"registers": 1})
    finally:
        os.umask(before)
    found = kernels.cache.find("k" * 64)
    assert found
    assert found.notes == {"facts": {"registers": 1}}
    path = root / "kernels" / ("k" * 64)
    folders = [root, root / "kernels", root / "stage", path]
    assert {p.stat().st_mode & 0o777 for p in folders} == {folder}
    assert {p.stat().st_mode & 0o777 for p in path.iterdir()} == {file}


def test_features_of_a_cpu(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nflags\t\t: fpu sse2 avx2 avx512f amx_tile\n\nprocessor\t: 1\nflags\t\t: fpu avx\n")
    assert sources.read_features(info) == {"avx2", "avx512f"}
    info.write_text("processor\t: 0\nFeatures\t: fp asimd evtstrm atomics sve\n")
    assert sources.read_features(info) == {"asimd", "atomics", "sve"}
    assert sources.read_features(tmp_path / "none") == frozenset()
