"""What executing compiled kernels on the CPU needs in addition to CuTe DSL, found without importing any of it."""

from __future__ import annotations

import importlib.util
import shutil

from cutegen.runtime.gpu import probe_torch

CPU_REMEDY = "pip install 'cutegen[cpu]'"
C_COMPILER_REMEDY = "install gcc or clang, such as by apt install gcc"


def find_c_compiler() -> str | None:
    """The C compiler that links host functions, by path."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def lacking_for_cpu() -> tuple[str, ...]:
    """What is missing, each with its remedy; empty where kernels can be executed once they are compiled."""
    missing = []
    if importlib.util.find_spec("numpy") is None:
        missing.append(f"numpy is not installed: {CPU_REMEDY}")
    if probe_torch().version is None:
        missing.append(f"torch is not installed (a CPU build is enough): {CPU_REMEDY}")
    if find_c_compiler() is None:
        missing.append(f"there is no C compiler (cc) to link the host function with: {C_COMPILER_REMEDY}")
    return tuple(missing)
