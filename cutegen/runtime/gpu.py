"""Whether this machine can run a kernel, found in milliseconds: asks the driver itself and imports no torch."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from cutegen.runtime.sources import distribution_versions

# CUDA version a driver must support to load the DSL's cubins, per wheel (CUTLASS documentation, CuTe DSL quick start).
DRIVER_NEEDED = {"cu12": (12, 9), "cu13": (13, 0)}
NO_DEVICE = 100  # cuda.h, CUDA_ERROR_NO_DEVICE
MAJOR, MINOR = 75, 76  # cuda.h, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


@dataclass(frozen=True, slots=True)
class Driver:
    """What libcuda tells. cuda: the newest CUDA version it supports. devices: (name, compute capability) in CUDA's
    order, under CUDA_VISIBLE_DEVICES. error: why there are none ("" when there are)."""

    cuda: tuple[int, int] | None
    devices: tuple[tuple[str, tuple[int, int]], ...]
    error: str


@dataclass(frozen=True, slots=True)
class Torch:
    """version: None when torch is not installed. cuda: the CUDA version it is built for, None for a CPU build."""

    version: str | None
    cuda: str | None


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """reasons: why kernels for the arch do not run here, with remedies. name, capability: of device 0, if any."""

    reasons: tuple[str, ...] = ()
    name: str = ""
    capability: tuple[int, int] | None = None

    @property
    def ok(self) -> bool:
        return not self.reasons

    @property
    def reason(self) -> str:
        """All reasons in one line, hardware first; "" when ok."""
        return "; ".join(self.reasons)


def probe_gpu(arch: str = "sm_90a") -> GpuStatus:
    """Looks for what running a kernel of `arch` needs."""
    driver = probe_driver()
    name, capability = driver.devices[0] if driver.devices else ("", None)
    reasons = filter(None, (driver.error or _misfit(driver, arch), _torch_fault(probe_torch(), driver)))
    return GpuStatus(tuple(reasons), name, capability)


def arch_capability(arch: str) -> tuple[int, int]:
    """sm_90a -> (9, 0), sm_100a -> (10, 0)."""
    number = int(re.sub(r"\D", "", arch))
    return number // 10, number % 10


def driver_needed() -> tuple[int, int] | None:
    """The CUDA version a driver must support for the installed DSL; None when no DSL is installed."""
    flavours = [f for f in DRIVER_NEEDED if f"nvidia_cutlass_dsl_libs_{f}" in distribution_versions()]
    return min((DRIVER_NEEDED[f] for f in flavours), default=None)


@functools.cache
def probe_driver() -> Driver:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Driver(None, (), "no NVIDIA driver (libcuda.so.1 is missing): install it, or use another machine")
    number = ctypes.c_int(0)
    cuda.cuDriverGetVersion(ctypes.byref(number))
    version = (number.value // 1000, number.value % 1000 // 10)
    if code := cuda.cuInit(0):
        return Driver(version, (), _no_device() if code == NO_DEVICE else f"the driver does not start (cuInit: {code})")
    cuda.cuDeviceGetCount(ctypes.byref(number))
    devices = []
    for index in range(number.value):
        name, device = ctypes.create_string_buffer(256), ctypes.c_int(0)
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, 256, device)
        capability = []
        for attribute in (MAJOR, MINOR):
            cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
            capability.append(number.value)
        devices.append((name.value.decode(errors="replace"), (capability[0], capability[1])))
    return Driver(version, tuple(devices), "" if devices else _no_device())


def probe_torch() -> Torch:
    """Reads torch/version.py: importing torch takes seconds."""
    try:
        spec = importlib.util.find_spec("torch")
    except ValueError:  # torch was blocked or half imported
        spec = None
    if spec is None or spec.origin is None:
        return Torch(None, None)
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return Torch("unknown", None)
    version, cuda = (re.search(rf"^{name}\b[^=\n]*=\s*'([^']+)'", text, re.M) for name in ("__version__", "cuda"))
    return Torch(version[1] if version else "unknown", cuda[1] if cuda else None)


def _no_device() -> str:
    return "the driver shows no CUDA device: check nvidia-smi and CUDA_VISIBLE_DEVICES"


def _misfit(driver: Driver, arch: str) -> str:
    assert driver.cuda is not None
    needed = driver_needed()
    if needed and driver.cuda < needed:
        have, want = (f"{v[0]}.{v[1]}" for v in (driver.cuda, needed))
        return f"the driver supports CUDA {have}, the installed CuTe DSL needs {want}: update the driver"
    wanted = arch_capability(arch)
    if driver.devices[0][1] == wanted:
        return ""
    (name, have_cc), fitting = driver.devices[0], [i for i, (_, cc) in enumerate(driver.devices) if cc == wanted]
    remedy = f"set CUDA_VISIBLE_DEVICES={fitting[0]}" if fitting else "use a machine with such a device"
    return f"{arch} needs compute capability {wanted[0]}.{wanted[1]}; {name} has {have_cc[0]}.{have_cc[1]}: {remedy}"


def _torch_fault(torch: Torch, driver: Driver) -> str:
    if torch.version is None:
        return "torch is not installed: pip install torch numpy"
    if torch.cuda is None:
        return f"torch {torch.version} is a CPU build: install a CUDA build (https://pytorch.org/get-started)"
    if driver.cuda and int(torch.cuda.partition(".")[0]) > driver.cuda[0]:
        return (
            f"torch {torch.version} is for CUDA {torch.cuda}, the driver supports {driver.cuda[0]}.{driver.cuda[1]}:"
            " update the driver or install another torch"
        )
    return ""
