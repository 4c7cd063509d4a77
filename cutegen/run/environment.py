"""The machine and the software that a result was obtained with, and the GPU's clock and power while it was."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cutegen import __version__

_DISTRIBUTIONS = (
    "torch",
    "nvidia-cutlass-dsl",
    "apache-tvm-ffi",
    "quack-kernels",
    "nvmath-python",
    "nvidia-cutlass-operators",
    "flashinfer-python",
    "liger-kernel",
    "sglang-kernel",
)
# nvml.h
_CLOCK_SM, _TEMPERATURE_GPU, _MAX_PROCESSES = 1, 0, 64


def describe_environment() -> dict[str, Any]:
    """The time, versions, and the current CUDA device (None without one). Imports torch."""
    import torch

    now = datetime.now(timezone.utc).isoformat(timespec="minutes")
    result: dict[str, Any] = {"measured_at": now, "cutegen": __version__}
    for name in _DISTRIBUTIONS:
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            result[name] = None
    result["torch_cuda"] = torch.version.cuda
    result["gpu"] = result["driver"] = None
    if torch.cuda.is_available():
        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        result["gpu"] = {
            "name": facts.name,
            "uuid": str(getattr(facts, "uuid", "")),
            "arch": f"sm_{facts.major}{facts.minor}",
            "sms": facts.multi_processor_count,
            "l2_bytes": facts.L2_cache_size,
            "memory_bytes": facts.total_memory,
        }
        monitor = open_monitor(result["gpu"]["uuid"])
        if monitor:
            result["driver"] = monitor.driver()
            result["gpu"]["power_limit_watts"] = monitor.power_limit()
    return result


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the GPU. sm_mhz, watts, celsius."""

    sm_mhz: int
    watts: float
    celsius: int


class _ProcessInfo(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Monitor:
    """NVML for one device, through the driver's own library: no package needed."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._nvml, self._handle = library, handle

    def read(self) -> Reading:
        clock, power, heat = ctypes.c_uint(0), ctypes.c_uint(0), ctypes.c_uint(0)
        self._nvml.nvmlDeviceGetClockInfo(self._handle, _CLOCK_SM, ctypes.byref(clock))
        self._nvml.nvmlDeviceGetPowerUsage(self._handle, ctypes.byref(power))
        self._nvml.nvmlDeviceGetTemperature(self._handle, _TEMPERATURE_GPU, ctypes.byref(heat))
        return Reading(clock.value, power.value / 1000, heat.value)

    def power_limit(self) -> float:
        limit = ctypes.c_uint(0)
        self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle, ctypes.byref(limit))
        return limit.value / 1000

    def driver(self) -> str:
        return _driver_version(self._nvml)

    def processes(self) -> int:
        """Compute processes on the device, this one included; 0 where the driver does not tell."""
        count = ctypes.c_uint(_MAX_PROCESSES)
        infos = (_ProcessInfo * _MAX_PROCESSES)()
        code = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle, ctypes.byref(count), infos)
        return count.value if code == 0 else 0


def driver_version() -> str:
    """Of the NVIDIA driver, found without a CUDA context; "unknown" where it does not tell."""
    library = _open_nvml()
    return _driver_version(library) or "unknown" if library else "unknown"


def _driver_version(library: Any) -> str:
    text = ctypes.create_string_buffer(80)
    library.nvmlSystemGetDriverVersion(text, len(text))
    return text.value.decode()


def open_monitor(uuid: str) -> Monitor | None:
    """The monitor of the device with this UUID (as torch gives it); None where NVML does not know it."""
    library, handle = open_device(uuid)
    return Monitor(library, handle) if library else None


def open_device(uuid: str) -> tuple[Any, Any]:
    """NVML, and its handle of the device with this UUID; None and None where it does not know it."""
    library, handle = _open_nvml(), ctypes.c_void_p()
    name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
    if library is None or library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)):
        return None, None
    return library, handle


def _open_nvml() -> Any:
    """The driver's library, ready; None where there is none."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return None if library.nvmlInit_v2() else library
