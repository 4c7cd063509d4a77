"""What this machine can do and why not, from files, the driver, and a kernel that a child process compiles; imports
neither torch nor cutlass."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from cutegen import __version__
from cutegen.arch import ARCHS
from cutegen.build.cpu import C_COMPILER_REMEDY, find_c_compiler, lacking_for_cpu
from cutegen.build.facts import NVDISASM_REMEDY, find_nvdisasm
from cutegen.build.linker import find_linker
from cutegen.build.trial import try_compiler
from cutegen.cache_words import OFF, show_size
from cutegen.diagnostics import CutegenError
from cutegen.runtime.cache import default_root
from cutegen.runtime.cache_limit import ENTRY_NAMES, KERNELS, list_held
from cutegen.runtime.gpu import arch_capability, driver_needed, probe_driver, probe_gpu, probe_torch
from cutegen.runtime.sources import (
    DSL_FLOOR,
    DSL_REQUIREMENT,
    TVM_FFI_REQUIREMENT,
    distribution_versions,
    dsl_version,
)

TESTED_DSL = ((4, 6), (4, 8))  # generated kernels are compiled in CI with the first and the last
DSL_REMEDY = f"pip install '{DSL_REQUIREMENT}'"
TVM_FFI_REMEDY = f"pip install '{TVM_FFI_REQUIREMENT}'"
# All that compiling needs, by the names that package indices have.
COMPILER_REMEDY = " ".join(
    ["pip install", *(r.removeprefix("pip install ") for r in (DSL_REMEDY, TVM_FFI_REMEDY, NVDISASM_REMEDY))]
)
DSL_NAME = "nvidia_cutlass_dsl"  # and of the wheels that it consists of, the beginning
TRIAL_ARCH = "sm_90a"


@dataclass(frozen=True, slots=True)
class Item:
    """One fact of the machine. ok: None where nothing depends on it. remedy: what to do about it if it is not ok."""

    name: str
    value: str
    ok: bool | None
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a command can do its work here. why: what prevents it, with the remedy."""

    command: str
    ok: bool
    why: str = ""


def examine() -> tuple[tuple[Item, ...], tuple[Verdict, ...]]:
    """Facts of this machine and a verdict per command."""
    tools = [_dsl(), _dsl_wheels(), _tvm_ffi(), _nvdisasm()]
    if not any(item.ok is False for item in tools):
        tools.append(_compiler())
    items = (_python(), Item("cutegen", __version__, None), *tools, *_running(), _c_compiler(), _cache())
    compiling = [f"{item.name} {item.value}: {item.remedy}".strip(": ") for item in tools if item.ok is False]
    verdicts = [
        Verdict("validate, resolve, lock, pin, render, explain", True),
        Verdict("build", not compiling, "; ".join(compiling)),
    ]
    linking = [*compiling, *_lacking_for_bundles()]
    verdicts.append(Verdict("bundle", not linking, "; ".join(linking)))
    running = [*compiling, *probe_gpu().reasons]
    on_cpu = [*compiling, *lacking_for_cpu()]
    verdicts.append(Verdict("check --on cpu", not on_cpu, "; ".join(on_cpu)))
    return items, (*verdicts, Verdict("check, bench, tune", not running, "; ".join(running)))


def _python() -> Item:
    where = f"{platform.python_version()}, {sys.platform} {platform.machine()}"
    return Item("Python", where, sys.version_info >= (3, 10), "cutegen needs Python 3.10 or later")


def _dsl() -> Item:
    version, installed = dsl_version(), distribution_versions()
    if version is None:
        return Item("CuTe DSL", "not installed", False, DSL_REMEDY)
    flavours = ", ".join(f for f in ("cu12", "cu13") if f"nvidia_cutlass_dsl_libs_{f}" in installed) or "no CUDA libs"
    text = f"{installed['nvidia_cutlass_dsl']} ({flavours})"
    if importlib.util.find_spec("cutlass") is None:
        return Item("CuTe DSL", f"{text}, but `import cutlass` finds nothing", False, "reinstall nvidia-cutlass-dsl")
    if version < DSL_FLOOR:
        return Item("CuTe DSL", f"{text}, too old: kernels need {_dotted(DSL_FLOOR)} or later", False, DSL_REMEDY)
    first, last = TESTED_DSL
    if not first <= version[:2] <= last:
        text += f", outside the tested {_dotted(first)} to {_dotted(last)}"
    return Item("CuTe DSL", text, True)


def _dsl_wheels() -> Item:
    """The DSL is several wheels with files in the same folders: of two versions, it is neither."""
    found = {name: version for name, version in distribution_versions().items() if name.startswith(DSL_NAME)}
    versions = set(found.values())
    if not found:
        return Item("DSL wheels", "none", None)
    if len(versions) == 1:
        return Item("DSL wheels", f"{len(found)}, all {versions.pop()}", True)
    names = [name.replace("_", "-") for name in found]
    told = ", ".join(f"{name} {version}" for name, version in zip(names, found.values()))
    remedy = f"pip uninstall -y {' '.join(names)} && {DSL_REMEDY}"
    return Item("DSL wheels", f"of several versions: {told}", False, remedy)


def _compiler() -> Item:
    trial = try_compiler(TRIAL_ARCH)
    if trial.error:
        remedy = f"reinstall it: {DSL_REMEDY} --force-reinstall"
        return Item("compiler", f"a trial kernel does not compile: {' '.join(trial.error.split())}", False, remedy)
    return Item("compiler", f"a trial kernel compiles for {TRIAL_ARCH}, {trial.seconds:.1f} s", True)


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _tvm_ffi() -> Item:
    version = distribution_versions().get("apache_tvm_ffi")
    return Item("TVM FFI", version or "not installed", version is not None, TVM_FFI_REMEDY)


def _nvdisasm() -> Item:
    path = find_nvdisasm()
    return Item("nvdisasm", path or "not found", path is not None, NVDISASM_REMEDY)


def _running() -> tuple[Item, ...]:
    torch, driver, needed = probe_torch(), probe_driver(), driver_needed()
    build = f"for CUDA {torch.cuda}" if torch.cuda else "CPU build"
    torch_item = Item("torch", f"{torch.version} ({build})" if torch.version else "not installed", bool(torch.cuda))
    want = f", the DSL needs {needed[0]}.{needed[1]}" if needed else ""
    supports = f"CUDA {driver.cuda[0]}.{driver.cuda[1]}{want}" if driver.cuda else "not found"
    driver_item = Item("NVIDIA driver", supports, bool(driver.cuda and (not needed or driver.cuda >= needed)))
    names = [
        f"{name} ({cc[0]}.{cc[1]}: {', '.join(a for a in ARCHS if arch_capability(a) == cc) or 'no kernels for it'})"
        for name, cc in driver.devices
    ]
    return torch_item, driver_item, Item("GPU", "; ".join(names) or "none", bool(names))


def _c_compiler() -> Item:
    path = find_c_compiler()
    return Item("C compiler", path or "not found", path is not None, C_COMPILER_REMEDY)


def _lacking_for_bundles() -> list[str]:
    """What linking kernels of the cache lacks, each with its remedy."""
    missing = []
    try:
        find_linker()
    except CutegenError as error:
        missing.append(f"{error.message}: {error.remedy}")
    if default_root() is None:
        missing.append("the cache is off: unset CUTEGEN_CACHE")
    return missing


def _cache() -> Item:
    root = default_root()
    if root is None:
        return Item("cache", OFF, None)
    existing = next(p for p in (root, *root.parents) if p.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        return Item("cache", f"{root} is not writable", False, "set CUTEGEN_CACHE_DIR to a writable folder")
    try:
        kernels = list_held(root, KERNELS, form=ENTRY_NAMES[KERNELS])
    except OSError as error:
        said = "let nobody but you and root write it, or set CUTEGEN_CACHE_DIR to another folder"
        return Item("cache", f"{root}: {KERNELS}: {error.strerror}", False, said)
    size = sum(entry.size for entry in kernels)
    return Item("cache", f"{root}: {len(kernels)} kernels, {show_size(size)}", True)
