"""Whether a kernel compiles here at all: a tiny one, the whole way, in a process that may die or hang."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from cutegen.build.messages import describe
from cutegen.child import Child
from cutegen.runtime.cache import KernelCache
from cutegen.runtime.compile import CUBIN, compile_kernel

KERNEL = "cutegen.device.trial"
TIMEOUT_S = 120.0  # it takes about 2 s, most of them for imports, which a slow disk makes longer


@dataclass(frozen=True, slots=True)
class Trial:
    """error: why nothing was compiled, in a few lines; "" when it was. seconds: of the whole process."""

    error: str
    seconds: float


def try_compiler(arch: str, timeout_s: float = TIMEOUT_S) -> Trial:
    """Nothing is read from the cache, and nothing is kept."""
    start = time.perf_counter()
    child = Child(__name__)
    try:
        child.send(arch, timeout_s)
        if not child.wait():
            error = f"no answer in {timeout_s:.0f} s"
        else:
            try:
                error = str(child.receive())
            except EOFError:
                error = "; ".join(filter(None, (f"the compiler died: {child.died()}", child.tail()[-300:])))
    finally:
        child.end()
    return Trial(error, time.perf_counter() - start)


def main(handle: int) -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]  # not needed, and slow to import
    connection = Connection(handle)
    connection.send(_compile(connection.recv()))


def _compile(arch: str) -> str:
    try:
        with compile_kernel(KernelCache(None), "0" * 64, KERNEL, None, arch) as compiled:
            if compiled.entry is None:
                return "nothing can be written to the temporary directory"
            return "" if compiled.entry.files.get(CUBIN) else "the compiler made no code"
    except Exception as error:
        return describe(error)
