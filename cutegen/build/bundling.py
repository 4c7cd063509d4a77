"""Bundles: packages of many specs without their kernel modules, and one library with all kernels."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cutegen
from cutegen.build.c_translation import Translation
from cutegen.build.entries import Entry, write_entries
from cutegen.build.kernels import KernelReport, build_kernels
from cutegen.build.linker import compile_c, find_linker, link_library
from cutegen.diagnostics import CutegenError
from cutegen.families.registry import load_family
from cutegen.files import write_texts
from cutegen.loaded import import_package
from cutegen.render import RenderedPackage, render_package
from cutegen.render.standalone import share_parts
from cutegen.resolve import Resolution
from cutegen.roots import read_file
from cutegen.runtime.bundled import FORMAT, LIBRARY, MANIFEST, RUNTIME
from cutegen.runtime.cache import KernelCache, default_root
from cutegen.runtime.compile import OBJECT, find_compiled, kernel_symbol
from cutegen.runtime.header import MARK
from cutegen.runtime.sources import TORCH_REQUIREMENT, TVM_FFI_REQUIREMENT, distribution_versions
from cutegen.runtime.temporary import temporary_folder

LOADER = "__init__.py"
MOST_MANIFEST = 16 << 20  # bytes; some 400 B a kernel
_COMPILER = re.compile(r"^from cutegen\.runtime\.compile import load_kernel$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Bundle:
    """What was written. reports: of its kernels. size: bytes of all files, runtime: of those the DSL's runtime has."""

    folder: Path
    manifest: Mapping[str, Any]
    reports: tuple[KernelReport, ...]
    size: int
    runtime: int


def check_output(folder: Path) -> None:
    """CutegenError: no package can be imported by this name, or what lies there is not a bundle and nothing else."""
    if not folder.name.isidentifier():
        raise CutegenError(f"a bundle is a package, and {folder.name!r} is not a name of one", "use letters, digits, _")
    if not os.path.lexists(folder):
        return
    remedy = "choose another folder with -o, or move it away"
    if folder.is_symlink() or not folder.is_dir():
        raise CutegenError(f"{folder} exists and is not a folder", remedy)
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() or p.is_symlink()}
    found = {name for name in found if "__pycache__" not in name.split("/")}
    if others := sorted(found - _held(folder)):
        raise CutegenError(f"{folder} holds {others[0]}, which is not part of a bundle", remedy)


def _held(folder: Path) -> set[str]:
    """Files of the bundle that lies here, by its manifest."""
    try:
        manifest = json.loads(read_file(folder / MANIFEST, MOST_MANIFEST, folder))
        return {MANIFEST, LOADER, *manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def write_bundle(
    resolutions: Mapping[Path, Sequence[Resolution]],
    folder: Path,
    command: str,
    *,
    tilings: Sequence[str] = (),
    workers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    on_current: Callable[[Sequence[str]], None] = lambda names: None,
) -> Bundle:
    """Builds the kernels of resolved specs, by path, one for each of their architectures, and writes the bundle in one
    step, in place of an older one.

    command: what makes a bundle of all their kernels. tilings: patterns of those to take, by default all. CutegenError:
    a kernel does not compile or is not as planned, nothing can be linked, or the folder holds something else; then
    nothing is written.
    """
    check_output(folder)
    find_linker()
    kernels = [_choose(resolution.resolved, tilings) for found in resolutions.values() for resolution in found]
    if default_root() is None:
        raise CutegenError(
            "a bundle is made of kernels in the cache, and it is off", "unset CUTEGEN_CACHE", exit_code=2
        )
    packages = share_parts([_without_kernels([r.resolved for r in found]) for found in resolutions.values()])
    reports = build_kernels(kernels, workers=workers, on_progress=on_progress, on_current=on_current)
    if failed := [r for r in reports if not r.ok]:
        code = 2 if any(r.outcome.unknown for r in failed) else 1
        why = failed[0].outcome.error or ", ".join(c.id for c in failed[0].checks if c.ok is False)
        said = f"{failed[0].spec} {failed[0].tiling} is not as planned: {why}"
        raise CutegenError(said, "`cutegen build` shows all of it", exit_code=code)
    staged = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    try:
        staged.mkdir(parents=True)
        manifest = _fill(staged, folder.name, resolutions, packages, reports, command)
        _swap(staged, folder)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    sizes = {name: (folder / name).stat().st_size for name in (*manifest["files"], MANIFEST, LOADER)}
    return Bundle(folder, manifest, reports, sum(sizes.values()), sizes[RUNTIME])


class _Chosen:
    """A resolved kernel, of which some tilings are built."""

    def __init__(self, resolved: Any, built: tuple[Any, ...]) -> None:
        self._resolved, self.built = resolved, built

    def __getattr__(self, name: str) -> Any:
        return getattr(self._resolved, name)


def _choose(resolved: Any, patterns: Sequence[str]) -> Any:
    """The kernel with the tilings that a pattern matches. What is not a tiling, as a copy of rows, is always built."""
    if not patterns:
        return resolved
    names = {tiling.name for tiling in resolved.tilings}
    built = [t for t in resolved.built if any(fnmatch.fnmatchcase(t.name, pattern) for pattern in patterns)]
    if not built:
        listed = ", ".join(sorted(names))
        raise CutegenError(f"{resolved.name}: no tiling matches {', '.join(patterns)}", f"its tilings are {listed}")
    return _Chosen(resolved, (*built, *(t for t in resolved.built if t.numbers is None and t not in built)))


def _without_kernels(resolved: Sequence[Any]) -> RenderedPackage:
    """What of a package a bundle has: all but the modules of kernels, and kernels are loaded from its library."""
    package = render_package(*resolved)
    modules = {f"{tiling.module}.py" for of_arch in resolved for tiling in of_arch.built}
    files = {name: text for name, text in package.files.items() if name not in modules}
    files = {name: _COMPILER.sub("from cutegen.runtime.bundled import load_kernel", t) for name, t in files.items()}
    return replace(package, files=files)


def _fill(
    folder: Path,
    name: str,
    resolutions: Mapping[Path, Sequence[Resolution]],
    packages: Sequence[RenderedPackage],
    reports: Sequence[KernelReport],
    command: str,
) -> dict[str, Any]:
    """All files of a bundle; its manifest. CutegenError: a kernel has left the cache, or the library does not link."""
    header, code = _write_entries(name, resolutions.values(), reports, command)
    parts = {folder / p.name / file: text for p in packages for file, text in p.files.items()}
    write_texts(parts | {folder / f"{name}.h": header}, folder)
    runtime, tvm_ffi = _find_libraries()
    shutil.copyfile(runtime, folder / RUNTIME)
    host = _link(folder, {r.key for r in reports}, [folder / RUNTIME, tvm_ffi], code)
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    every = [r.resolved for found in resolutions.values() for r in found]
    names = {(r.name, r.arch, t.name): t for r in every for t in r.built}
    manifest = {
        "format": FORMAT,
        "cutegen": cutegen.__version__,
        "command": command,
        "machine": [sys.platform, platform.machine()],
        "host": host,
        "requires": [TORCH_REQUIREMENT, TVM_FFI_REQUIREMENT],
        "toolchain": dict(distribution_versions()),
        "specs": {found[0].resolved.name: _describe(found) for found in resolutions.values()},
        "kernels": [
            {
                "spec": report.spec,
                "tiling": report.tiling,
                "arch": report.arch,
                "module": names[report.spec, report.arch, report.tiling].module,
                "numbers": repr(names[report.spec, report.arch, report.tiling].numbers),
                "key": report.key,
                "symbol": kernel_symbol(report.key),
            }
            for report in reports
        ],
        "files": {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files},
    }
    data = json.dumps(manifest, indent=1) + "\n"
    seal, specs = hashlib.sha256(data.encode()).hexdigest(), list(dict.fromkeys(r.name for r in every))
    write_texts({folder / MANIFEST: data, folder / LOADER: _loader_text(specs, seal)}, folder)
    return manifest


def _write_entries(
    name: str, resolutions: Iterable[Sequence[Resolution]], reports: Sequence[KernelReport], command: str
) -> tuple[str, str]:
    """The header of the C entry, and its code. A spec for several architectures has an entry for each: C knows which
    device it calls on."""
    translation, entries = Translation(), []
    for found in resolutions:
        module = import_package(render_package(*(r.resolved for r in found)))
        family = load_family(found[0].spec.kernel)
        for arch in (r.document.arch for r in found):
            plan = module.PLAN.on(arch) if arch else module.PLAN
            described = family.c_entry(plan, translation)
            symbols = {r.tiling: kernel_symbol(r.key) for r in reports if (r.spec, r.arch) == (plan.name, plan.arch)}
            said = (sys.modules[type(plan).__module__].__doc__ or "").split("\n\n")[1:2]
            called = "_".join(filter(None, (plan.name, arch)))
            entries.append(Entry(called, plan.arch, " ".join(" ".join(said).split()), described, symbols))
    return write_entries(name, entries, translation, command)


def _link(folder: Path, keys: set[str], libraries: Sequence[Path], code: str) -> list[str]:
    """Links the kernels of these cache keys and the code of their C entry into `folder`, which has its header; the CPU
    features that their host code may use."""
    from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

    cache, host = KernelCache(default_root()), set()
    with temporary_folder() as objects:
        for key in sorted(keys):
            entry = find_compiled(cache, key)
            if entry is None:
                raise CutegenError("a kernel was taken out of the cache before it was linked", "make the bundle again")
            (objects / f"{key}.o").write_bytes(entry.files[OBJECT])
            host.update(entry.facts["host"])
        (objects / "entries.c").write_text(code, encoding="utf-8")
        includes = (folder, Path(find_include_path()), Path(find_dlpack_include_path()))
        compile_c(objects / "entries.c", includes, objects / "entries.o")
        link_library(sorted(objects.glob("*.o")), libraries, folder / LIBRARY)
    return sorted(host)


def _find_libraries() -> tuple[Path, Path]:
    """The DSL's runtime, and TVM FFI's library. CutegenError: they are not installed."""
    try:
        from cutlass.cute.runtime import find_runtime_libraries
    except ImportError as error:
        raise CutegenError(f"a bundle needs {error.name}, which is not installed", exit_code=2) from error
    found = {path.name: path for path in map(Path, find_runtime_libraries(enable_tvm_ffi=True))}
    runtime = found.pop(RUNTIME, None)
    if runtime is None or not found:
        raise CutegenError(f"nvidia-cutlass-dsl has no {RUNTIME}", "install it again", exit_code=2)
    return runtime, *found.values()  # type: ignore[return-value]


def _describe(found: Sequence[Resolution]) -> dict[str, Any]:
    """Provenance of a spec: hashes of its text and locks, and the devices that its winners were measured on. What it
    has for each of several architectures is separated by blanks."""
    return {
        "arch": " ".join(r.resolved.arch for r in found),
        "digest": " ".join(r.resolved.digest for r in found),
        "spec": hashlib.sha256(found[0].document.text.encode()).hexdigest(),
        "lock": " ".join(hashlib.sha256(r.lock.to_text().encode()).hexdigest() for r in found),
        "devices": sorted({winner.device for r in found for winner in r.lock.winners}),
    }


def _loader_text(names: Sequence[str], seal: str) -> str:
    listed = "\n".join(f"    {name}" for name in names)
    return f'''{MARK}
"""Compiled kernels, a package of each spec; {MANIFEST} says what they were made of.

{listed}

Importing it compares every file with the manifest and this machine with what the kernels were made for. ImportError:
they differ.
"""

from pathlib import Path

from ._cutegen.runtime.bundled import open_bundle

open_bundle(Path(__file__).parent, "{seal}")
'''


def _swap(staged: Path, folder: Path) -> None:
    """The staged folder takes the place of `folder`, which comes back where that fails."""
    old = staged.with_name(f"{staged.name}.old")
    if folder.exists():
        os.rename(folder, old)
    try:
        os.rename(staged, folder)
    except OSError:
        if old.exists():
            os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
