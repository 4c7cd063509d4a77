"""SM clocks of a GPU locked while something is measured, by a process of its own that gives them back whatever becomes
of the one that measures: at the end, at an error, at Ctrl-C, and when that one is killed."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from cutegen.child import Child
from cutegen.diagnostics import CutegenError
from cutegen.run.environment import open_device

START_SECONDS = 20.0
# nvml.h
_INVALID, _UNSUPPORTED, _NO_PERMISSION = 2, 3, 4
_REFUSALS = {
    _INVALID: "the GPU has no such clock: `nvidia-smi -q -d SUPPORTED_CLOCKS` lists them",
    _UNSUPPORTED: "this GPU, or the partition of one, does not let its clocks be locked",
    _NO_PERMISSION: "root may, and a container with --cap-add SYS_ADMIN",
}
LEAVE_OUT = "without them leave --lock-clocks out: candidates take turns, so drifting clocks fall on all"


@contextmanager
def locked_clocks(uuid: str, mhz: int | None) -> Iterator[None]:
    """The SM clock of a device at `mhz` while the block runs; None: left alone. CutegenError (exit 2): the driver
    refuses, and nothing is changed."""
    if mhz is None:
        yield
        return
    child = Child("cutegen.run.clocks")
    try:
        child.send((uuid, mhz), START_SECONDS)
        try:
            refusal = child.receive() if child.wait() else "the driver does not answer"
        except EOFError:
            refusal = f"the process that locks them died ({child.died()})"
        if refusal:
            said = f"--lock-clocks {mhz}: the clocks cannot be locked: {refusal}"
            raise CutegenError(said, LEAVE_OUT, exit_code=2)
        yield
    finally:
        child.connection.close()  # what it waits for before it gives the clocks back
        try:
            child.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:  # the driver holds it
            child.process.kill()
        child.log.close()


def main(handle: int) -> None:
    """The process: locks what it is asked to, answers why not ("" where it did), and gives the clocks back when the
    other end is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(handle)
    uuid, mhz = connection.recv()
    library, device = open_device(uuid)
    refusal = _lock(library, device, mhz)
    try:
        connection.send(refusal)
        connection.recv()
    except (EOFError, OSError):
        pass
    finally:
        if not refusal:
            library.nvmlDeviceResetGpuLockedClocks(device)


def _lock(library: Any, device: Any, mhz: int) -> str:
    """Why the driver does not; "" where it did."""
    if library is None:
        return "there is no NVIDIA driver, or it does not know the device"
    code = library.nvmlDeviceSetGpuLockedClocks(device, ctypes.c_uint(mhz), ctypes.c_uint(mhz))
    return "" if code == 0 else _REFUSALS.get(code, f"NVML says {code}")
