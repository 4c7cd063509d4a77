"""Compiles kernels of a plan in processes of their own, into the disk cache, where the plan finds them.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

# The plan's module, then keys. A child has no GPU: it compiles, and loads nothing onto a device.
# What `python -c` puts first is the working directory, from which nothing is imported that the parent would not.
# Compiling needs no tensors, and importing torch (TVM FFI does where it can) takes longer than a compile.
_CHILD = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
sys.modules["torch"] = None
import importlib
plan = importlib.import_module(sys.argv[1]).PLAN
for key in sys.argv[2:]:
    plan.compile(key)
"""


def usable_cpus() -> int:
    """CPUs that this process may run on, which in a container are often fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_ahead(module: str, keys: Sequence[str], processes: int) -> None:
    """Leaves the kernels of `keys` in the cache, as far as it goes: what a process could not compile is compiled by who
    asks for it, and fails there with its reason."""
    shares = [share for i in range(processes) if (share := list(keys[i::processes]))]
    folders = [os.path.abspath(entry or os.curdir) for entry in sys.path]
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", PYTHONPATH=os.pathsep.join(folders))

    def run(share: list[str]) -> None:
        command = [sys.executable, "-c", _CHILD, module, *share]
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)

    with ThreadPoolExecutor(len(shares) or 1) as pool:
        list(pool.map(run, shares))


def can_compile_ahead(module: str, plan: object) -> bool:
    """Whether another process finds the plan by its module, and a cache keeps what it compiles. Plans of a bundle
    compile nothing: no package of theirs imports the compiler."""
    from cutegen.runtime.cache import default_root

    return (
        f"{__package__}.compile" in sys.modules
        and module != "__main__"
        and getattr(sys.modules.get(module), "PLAN", None) is plan
        and default_root() is not None
    )
