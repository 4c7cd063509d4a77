"""Measuring on the current CUDA device: the backend of the measuring process, and the parent's way to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cutegen.diagnostics import CutegenError, describe_error
from cutegen.run.bench import Device
from cutegen.run.candidates import Candidate, bind_first_baseline, bind_kernel, with_tiling
from cutegen.run.environment import driver_version
from cutegen.run.shapes import Shape
from cutegen.run.subject import load_subject
from cutegen.run.worker import device_works
from cutegen.runtime.gpu import probe_gpu, probe_torch
from cutegen.tune.station import Opened, Setup, Station

# What fills the outputs again after they were poisoned: a slice that is not counted.
RECHECK_SECONDS = 0.005


class GpuMeasuring:
    """The current CUDA device, seen from the parent, which has no context on it."""

    def identify(self, arch: str) -> tuple[str, str]:
        """Reads the version of torch, and does not import it."""
        status = probe_gpu(arch)
        if not status.ok:
            remedy = "tune on the machine that will run the kernels; --dry-run lists the candidates here"
            raise CutegenError(f"not run: {status.reason}", remedy, exit_code=2)
        return status.name, f"driver {driver_version()}, torch {probe_torch().version}"

    def station(self, package: Path) -> Station:
        return Station(f"{__name__}:GpuBackend", (package,))


class GpuBackend:
    """Candidates are tilings of one generated package; all of them share inputs and outputs.

    Inputs are those of `bench`: random, in sets that exceed L2 twice, and launches are captured in CUDA graphs. A
    candidate's outputs are poisoned, and judged against the reference in f64, before it is timed and after.
    """

    def __init__(self, package: Path, device: Device | None = None) -> None:
        self.subject = load_subject(package)
        if device is None:
            from cutegen.run.device import CudaDevice

            device = CudaDevice()
        self.device = device
        self.kernel: Candidate | None = None
        self.candidates: dict[str, Candidate] = {}
        self.prepared: dict[str, Any] = {}

    def setup(self) -> Setup:
        import torch

        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        return Setup(name, self.others())

    def open(self, problem: Shape, default: str) -> Opened:
        if self.kernel:
            self.kernel.release()
        self.candidates, self.prepared = {}, {}
        self.kernel = kernel = bind_kernel(self.subject, problem, self.device, 2, None, default)
        work = kernel.flops or 0, kernel.moved or 0
        try:
            baseline = bind_first_baseline(kernel)
        except Exception as error:  # whatever a foreign library raises is the reason
            return Opened("", "", describe_error(error), *work)
        self.candidates[baseline.name] = baseline
        self.prepared[baseline.name] = self.device.prepare(baseline.launches)
        return Opened(baseline.name, baseline.does, "", *work)

    def admit(self, name: str) -> str:
        assert self.kernel, "opened"
        candidate = with_tiling(self.kernel, name)
        candidate.launch_all()
        self.device.synchronize()
        if wrong := _judge(candidate):
            return wrong
        self.candidates[name] = candidate
        self.prepared[name] = self.device.prepare(candidate.launches)
        self.device.synchronize()
        return ""

    def sample(self, name: str, seconds: float) -> float:
        figure = self.device.sample(self.prepared[name], seconds)[0]
        self.device.synchronize()
        return figure

    def recheck(self, name: str) -> str:
        self.candidates[name].poison()
        self.device.sample(self.prepared[name], RECHECK_SECONDS)
        self.device.synchronize()
        return _judge(self.candidates[name])

    def others(self) -> int:
        return self.device.other_processes()

    def usable(self) -> bool:
        return device_works()


def _judge(candidate: Candidate) -> str:
    """What is wrong with a candidate's outputs, or ""."""
    candidate.judge()
    wrong = [e for e in candidate.errors if e.mismatches]
    texts = [
        f"{e.name}: {e.mismatches} of {e.elements} elements, error up to {e.max_error:.3g}, {e.allowed:.3g} is allowed"
        for e in wrong[:1]
    ]
    return "".join(texts)
