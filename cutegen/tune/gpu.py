"""Measuring on the current CUDA device: the backend of the measuring process, and the parent's way to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cutegen.diagnostics import CutegenError, describe_error
from cutegen.run.bench import Device
from cutegen.run.candidates import Candidate, bind_first_baseline, bind_kernel, with_tiling
from cutegen.run.environment import driver_version
from cutegen.run.shapes import Shape, shape_text
from cutegen.run.subject import Subject, load_subject
from cutegen.run.worker import device_works
from cutegen.runtime.gpu import probe_gpu, probe_torch
from cutegen.tune.measuring_process import Opened, Setup, Station

# What fills the outputs again after they were poisoned: a slice that is not counted.
RECHECK_SECONDS = 0.005
# Of the memory that was free in the beginning, what has to be left for a further problem besides those that stay open;
# and how many may, as captured graphs take memory as well.
ROOM, MOST_OPEN = 0.6, 24


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


@dataclass
class _Problem:
    """A problem that is open. candidates, prepared: by name, those that can be timed."""

    kernel: Candidate
    candidates: dict[str, Candidate] = field(default_factory=dict)
    prepared: dict[str, Any] = field(default_factory=dict)
    opened: Opened | None = None


class GpuBackend:
    """Candidates are tilings of one generated package; those of a problem share inputs and outputs.

    Inputs are those of `bench`: random, in sets that exceed L2 twice, and launches are captured in CUDA graphs. A
    candidate's outputs are poisoned, and judged against the reference in f64, before it is timed and after.
    """

    def __init__(self, package: Path, device: Device | None = None) -> None:
        self.package = package  # which may still be on its way: the device takes longer
        if device is None:
            from cutegen.run.device import CudaDevice

            device = CudaDevice()
        self.device = device
        self.free_bytes = device.free_bytes()
        self.problems: dict[tuple[str, str], _Problem] = {}  # the one that was opened last comes last
        self.problem: _Problem | None = None

    def setup(self) -> Setup:
        import torch

        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        return Setup(name, self.others())

    @cached_property
    def subject(self) -> Subject:
        return load_subject(self.package)

    def open(self, problem: Shape, default: str, keep: bool) -> Opened:
        key = (shape_text(problem), default)
        self._make_room(key, keep)
        if found := self.problems.pop(key, None):
            self.problems[key] = self.problem = found
            assert found.opened
            return replace(found.opened, admitted=tuple(found.prepared))
        kernel = bind_kernel(self.subject, problem, self.device, 2, None, default)
        self.problems[key] = self.problem = found = _Problem(kernel)
        work = kernel.flops or 0, kernel.moved or 0
        try:
            baseline = bind_first_baseline(kernel)
        except Exception as error:  # whatever a foreign library raises is the reason
            found.opened = Opened("", "", describe_error(error), *work)
            return found.opened
        found.candidates[baseline.name] = baseline
        found.prepared[baseline.name] = self.device.prepare(baseline.launches)
        found.opened = Opened(baseline.name, baseline.does, "", *work)
        return found.opened

    def _make_room(self, key: tuple[str, str], keep: bool) -> None:
        """Lets go of problems, those first that were opened first: of all others, or as many as a further one needs."""
        for other in list(self.problems):
            if other == key:
                continue
            if keep and (key in self.problems or self._has_room()):
                return
            self.problems.pop(other).kernel.release()
            self.problem = None

    def _has_room(self) -> bool:
        return len(self.problems) < MOST_OPEN and self.device.free_bytes() >= ROOM * self.free_bytes

    @property
    def current(self) -> _Problem:
        assert self.problem, "opened"
        return self.problem

    def admit(self, name: str) -> str:
        candidate = with_tiling(self.current.kernel, name)
        candidate.launch_all()
        self.device.synchronize()
        if wrong := _judge(candidate):
            return wrong
        self.current.candidates[name] = candidate
        self.current.prepared[name] = self.device.prepare(candidate.launches)
        self.device.synchronize()
        return ""

    def sample(self, name: str, seconds: float) -> float:
        figure = self.device.sample(self.current.prepared[name], seconds)[0]
        self.device.synchronize()
        return figure

    def recheck(self, name: str) -> str:
        candidate = self.current.candidates[name]
        candidate.poison()
        self.device.sample(self.current.prepared[name], RECHECK_SECONDS)
        self.device.synchronize()
        return _judge(candidate)

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
