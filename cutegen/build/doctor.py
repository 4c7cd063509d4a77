"""What this machine can do and why not, from files and the driver; imports neither torch nor cutlass."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from cutegen import __version__
from cutegen.build.facts import NVDISASM_REMEDY, find_nvdisasm
from cutegen.hardware import ARCHS
from cutegen.runtime.cache import default_root
from cutegen.runtime.gpu import arch_capability, driver_needed, probe_driver, probe_gpu, probe_torch
from cutegen.runtime.sources import distribution_versions, dsl_version

TESTED_DSL = ((4, 6), (4, 8))  # generated kernels are compiled in CI with the first and the last
DSL_REMEDY = "pip install 'nvidia-cutlass-dsl>=4.6,<4.9'"
TVM_FFI_REMEDY = "pip install 'apache-tvm-ffi>=0.1.6,<0.2'"
# All that compiling needs, by the names that package indices have.
COMPILER_REMEDY = " ".join(
    ["pip install", *(r.removeprefix("pip install ") for r in (DSL_REMEDY, TVM_FFI_REMEDY, NVDISASM_REMEDY))]
)


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
    items = (_python(), Item("cutegen", __version__, None), _dsl(), _tvm_ffi(), _nvdisasm(), *_running(), _cache())
    faults = {item.name: f"{item.name} {item.value}: {item.remedy}" for item in items if item.ok is False}
    compiling = [faults[name] for name in ("CuTe DSL", "TVM FFI", "nvdisasm") if name in faults]
    verdicts = [
        Verdict("validate, resolve, lock, pin, render, explain", True),
        Verdict("build", not compiling, "; ".join(compiling)),
    ]
    running = [*compiling, *probe_gpu().reasons]
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
    first, last = TESTED_DSL
    if not first <= version[:2] <= last:
        text += f", outside the tested {first[0]}.{first[1]} to {last[0]}.{last[1]}"
    return Item("CuTe DSL", text, True)


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


def _cache() -> Item:
    root = default_root()
    if root is None:
        return Item("cache", "off (CUTEGEN_CACHE=0)", None)
    existing = next(p for p in (root, *root.parents) if p.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        return Item("cache", f"{root} is not writable", False, "set CUTEGEN_CACHE_DIR to a writable folder")
    entries = [p for p in (root / "kernels").glob("*") if p.is_dir()]
    size = sum(_size(file) for entry in entries for file in entry.glob("*"))
    return Item("cache", f"{root}: {len(entries)} kernels, {size / 2**20:.1f} MiB", True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
