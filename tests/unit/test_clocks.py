"""`bench --lock-clocks`: the clocks are given back whatever becomes of the process that asked for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutegen.diagnostics import CutegenError
from cutegen.run.clocks import locked_clocks

# An NVML that writes down what it is asked for, found in place of the driver's: the child imports it by this path.
DRIVER = """
import ctypes
from pathlib import Path

LOG = Path(__file__).with_name("asked")


class Nvml:
    def nvmlInit_v2(self):
        return 0

    def nvmlDeviceGetHandleByUUID(self, name, handle):
        return int(name != b"GPU-0a")

    def nvmlDeviceSetGpuLockedClocks(self, device, low, high):
        if low.value > 2000:
            return 2
        if low.value < 100:
            return 4
        with LOG.open("a") as file:
            print("locked", low.value, high.value, file=file)
        return 0

    def nvmlDeviceResetGpuLockedClocks(self, device):
        with LOG.open("a") as file:
            print("reset", file=file)
        return 0


real = ctypes.CDLL
ctypes.CDLL = lambda name, *rest, **named: Nvml() if name == "libnvidia-ml.so.1" else real(name, *rest, **named)
"""
HOLD = """
import signal, sys
from cutegen.run.clocks import locked_clocks

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background of a shell ignores
with locked_clocks("0a", 1410):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in of the driver writes; child processes have it by `sitecustomize`."""
    (tmp_path / "sitecustomize.py").write_text(DRIVER)
    roots = [str(tmp_path), str(Path(__file__).parents[2])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(roots))
    return tmp_path / "asked"


def test_they_are_given_back(asked: Path) -> None:
    with locked_clocks("0a", 1410):
        assert asked.read_text() == "locked 1410 1410\n"
    assert asked.read_text() == "locked 1410 1410\nreset\n"
    with pytest.raises(ZeroDivisionError), locked_clocks("GPU-0a", 1200):
        raise ZeroDivisionError
    assert asked.read_text().endswith("locked 1200 1200\nreset\n")
    with locked_clocks("0a", None):
        assert asked.read_text().count("locked") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_they_are_given_back_by_a_process_that_is_ended(asked: Path, number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == "locked\n"
        process.send_signal(number)
        process.wait()
    for _ in range(100):
        if asked.read_text().endswith("reset\n"):
            break
        time.sleep(0.1)
    assert asked.read_text() == "locked 1410 1410\nreset\n"


@pytest.mark.parametrize(
    ("uuid", "mhz", "said"), [("0a", 9999, "no such clock"), ("0a", 50, "root may"), ("0b", 1410, "no NVIDIA driver")]
)
def test_what_the_driver_refuses(asked: Path, uuid: str, mhz: int, said: str) -> None:
    with pytest.raises(CutegenError, match=f"--lock-clocks {mhz}") as caught, locked_clocks(uuid, mhz):
        raise AssertionError
    assert said in str(caught.value)
    assert caught.value.exit_code == 2
    assert not asked.exists()
