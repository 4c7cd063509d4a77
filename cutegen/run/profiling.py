"""`cutegen profile`: one launch under Nsight Compute: what is planned, and what it measured."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cutegen.arch import ARCHS, DEVICES
from cutegen.arch.architecture import SM_THREADS
from cutegen.diagnostics import CutegenError
from cutegen.families.registry import load_family
from cutegen.resolve import Resolution
from cutegen.run.nvidia_tools import find_ncu, find_ncu_module
from cutegen.run.shapes import Shape
from cutegen.run.subject import Subject
from cutegen.runtime.base import BasePlan
from cutegen.runtime.sources import LINE_INFO

JOB_SECONDS = 600  # of the process under ncu, and of the one that reads its report


@dataclass(frozen=True, slots=True)
class Quantity:
    """A row of the table. metrics: of Nsight Compute, whose sum times `scale` is in `unit`. counted: it has to be asked
    for by name; the others are in the sections that are collected."""

    name: str
    unit: str
    metrics: tuple[str, ...]
    scale: float = 1.0
    counted: bool = True


SECTIONS = ("LaunchStats", "Occupancy", "SourceCounters")
PEAK = ".avg.pct_of_peak_sustained_elapsed"
QUANTITIES = (
    Quantity("duration", "us", ("gpu__time_duration.sum",), 1e-3),
    Quantity("SM clock", "MHz", ("sm__cycles_elapsed.avg.per_second",), 1e-6),
    Quantity("tensor cores", "% of peak", (f"sm__pipe_tensor_cycles_active{PEAK}",)),
    Quantity("tensor instructions", "", ("sm__inst_executed_pipe_tensor.sum",)),
    Quantity("DRAM", "% of peak", (f"dram__throughput{PEAK}",)),
    Quantity("DRAM traffic", "MB", ("dram__bytes_read.sum", "dram__bytes_write.sum"), 1e-6),
    Quantity("L2 hits", "%", ("lts__t_sector_hit_rate.pct",)),
    Quantity("occupancy", "% of warps", ("sm__warps_active.avg.pct_of_peak_sustained_active",)),
    Quantity("registers", "a thread", ("launch__registers_per_thread",), counted=False),
    Quantity("shared memory", "B a CTA", ("launch__shared_mem_per_block_dynamic",), counted=False),
    Quantity("threads", "a CTA", ("launch__block_size",), counted=False),
    Quantity("CTAs", "", ("launch__grid_size",), counted=False),
    Quantity("cluster", "CTAs", ("launch__cluster_size",), counted=False),
)
METRICS = tuple(metric for q in QUANTITIES for metric in q.metrics)
COUNTED = tuple(metric for q in QUANTITIES if q.counted for metric in q.metrics)
# What Nsight Compute calls states of a warp, in words (Nsight Compute, Kernel Profiling Guide, "Warp Stall Reasons").
REASONS = {
    "barrier": "waits for other warps at a barrier of the CTA",
    "branch_resolving": "waits for the target of a branch",
    "dispatch_stall": "the dispatcher holds back",
    "drain": "stores drain after the end",
    "gmma": "waits for WGMMA",
    "imc_miss": "an immediate constant is not in its cache",
    "lg_throttle": "the queue for global and local memory is full",
    "long_scoreboard": "waits for global or local memory",
    "math_pipe_throttle": "the pipe for its arithmetic is busy",
    "membar": "waits at a memory fence",
    "mio_throttle": "the queue for shared memory and special functions is full",
    "misc": "waits for something else",
    "no_instructions": "its next instruction is not fetched",
    "not_selected": "could issue; another warp did",
    "selected": "issues",
    "short_scoreboard": "waits for shared memory or special functions",
    "sleeping": "sleeps",
    "tex_throttle": "the queue for textures is full",
    "wait": "waits the fixed latency of an instruction",
    "warpgroup_arrive": "waits for its warpgroup, or for a WGMMA of it",
}
# Messages of ncu: what they mean, and what to do.
FAULTS = (
    (
        "ERR_NVGPUCTRPERM",
        "this user may not read the GPU's counters (ERR_NVGPUCTRPERM)",
        "run it as root or, in a container, with `--cap-add SYS_ADMIN`; for all users the administrator writes "
        "`options nvidia NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d and loads the driver again",
    ),
    (
        "driver resource was unavailable",
        "another profiler has the GPU's counters",
        "end it; a monitoring service of data centres gives them up by `dcgmi profile --pause`",
    ),
)
ERROR = re.compile(r"^==ERROR== (.*)", re.MULTILINE)
KERNEL = "kernel"  # the method of a kernel module that gives warps their roles


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the launch. measured: by the name of a quantity. samples: of its warps, by role (methods of its
    module; "" where lines are not known) and by reason, as Nsight Compute calls it."""

    name: str
    measured: Mapping[str, float]
    samples: Mapping[str, Mapping[str, int]]

    def count_samples(self) -> Counter[str]:
        """Of all roles, by reason."""
        total: Counter[str] = Counter()
        for counts in self.samples.values():
            total.update(counts)
        return total


@dataclass(frozen=True, slots=True)
class Profile:
    """planned: by the name of a quantity, as far as the plan says. planned_for: the device whose rates the planned
    times are of, "" where none are planned. l2: cold, warm."""

    name: str
    path: Path
    shape: Shape
    tiling: str
    device: str
    l2: str
    flops: int
    bytes: int
    planned: Mapping[str, float]
    planned_for: str
    kernels: tuple[Kernel, ...]

    def to_json(self) -> dict[str, Any]:
        names = ("name", "shape", "tiling", "device", "l2", "flops", "bytes", "planned", "planned_for")
        kernels = [{"name": k.name, "measured": k.measured, "samples": k.samples} for k in self.kernels]
        return {"path": str(self.path), **{name: getattr(self, name) for name in names}, "kernels": kernels}


def find_obstacle() -> str:
    """Why there is nothing to profile with; "" where there is."""
    ncu = find_ncu()
    if not ncu:
        return "no ncu on the PATH, in a CUDA toolkit or in /opt/nvidia: it is part of Nsight Compute"
    return "" if find_ncu_module(ncu) else f"{ncu} has no extras/python/ncu_report.py next to it: install all of it"


def profile_launch(
    subject: Subject,
    given: Path,
    shape: Shape,
    *,
    tiling: str = "",
    mode: str = "ncu",
    l2: str = "cold",
    report: Path,
    resolution: Resolution | None = None,
) -> Profile:
    """Launches one problem of a generated package in another process. mode: ncu; annotation, which measures a duration
    alone. report: where ncu writes. resolution: of the spec, which has predicted times.

    CutegenError (exit 2): the process or ncu fails.
    """
    arguments = [str(subject.path), json.dumps(shape), tiling, mode]
    command = [sys.executable, "-m", "cutegen.run.profiled", *arguments]
    if mode == "ncu":
        command = [*_ncu_options(report, l2), *command]
    facts, said = _run(command, subject.name, {LINE_INFO: "1"} if mode == "ncu" else {})
    if mode == "ncu" and not report.exists():
        raise _launch_error(subject.name, said)
    plan = subject.plan
    assert plan
    planned, planned_for = plan_quantities(plan, facts, shape, resolution)
    if mode == "ncu":
        kernels = _read_report(report, subject.path)
        if not kernels:
            raise CutegenError(f"{subject.name}: ncu saw no kernel between start and stop", "", exit_code=2)
    else:
        kernels = (Kernel(subject.name, {"duration": facts["seconds"] * 1e6}, {}),)
    return Profile(
        subject.name, given, shape, facts["tiling"], facts["device"], l2, facts["flops"], facts["bytes"],
        planned, planned_for, kernels,
    )  # fmt: skip


def _ncu_options(report: Path, l2: str) -> list[str]:
    """Clocks are left as they are: locking them would change what other processes get."""
    sections = [word for section in SECTIONS for word in ("--section", section)]
    return [
        find_ncu(), "--clock-control", "none", "--cache-control", "all" if l2 == "cold" else "none",
        "--profile-from-start", "off", "--import-source", "no", *sections, "--metrics", ",".join(COUNTED),
        "-f", "-o", str(report),
    ]  # fmt: skip


def _run(command: Sequence[str], name: str, settings: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The line of JSON that the profiled process prints, and all that was printed."""
    done = _call(command, f"{name}: its launch", "profile a smaller problem", sys.path, settings)
    text = f"{done.stdout}\n{done.stderr}"
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    facts = lines[-1] if lines else {}
    if "error" in facts:
        raise CutegenError(f"{name}: {facts['error']}", "", exit_code=2)
    if not facts or done.returncode:
        raise _launch_error(name, text)
    return facts, text


def _call(
    command: Sequence[str],
    what: str,
    remedy: str,
    path: Sequence[str],
    settings: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """CutegenError (exit 2): it takes too long. path: of its modules."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path), **settings)
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=JOB_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CutegenError(f"{what} was stopped after {JOB_SECONDS} s", remedy, exit_code=2) from None


def _launch_error(name: str, text: str) -> CutegenError:
    for words, said, remedy in FAULTS:
        if words in text:
            return CutegenError(f"{name}: {said}", remedy, exit_code=2)
    errors = ERROR.findall(text)
    last = next(iter(text.strip().splitlines()[-1:]), "it printed nothing")
    return CutegenError(f"{name}: its launch was not profiled: {errors[0] if errors else last}", "", exit_code=2)


def _read_report(report: Path, package: Path) -> tuple[Kernel, ...]:
    """CutegenError (exit 2): Nsight Compute's module cannot read it."""
    folder = find_ncu_module(find_ncu())
    command = [sys.executable, "-m", "cutegen.run.ncu_reading", str(report), *METRICS]
    done = _call(command, f"reading {report}", "open it with ncu-ui", [str(folder), *sys.path])
    if done.returncode:
        last = next(iter(done.stderr.strip().splitlines()[-1:]), f"exit code {done.returncode}")
        raise CutegenError(f"{folder} cannot read {report}: {last}", "open it with ncu-ui", exit_code=2)
    roles: dict[str, dict[int, str]] = {}
    return tuple(_make_kernel(found, package, roles) for found in json.loads(done.stdout))


def _make_kernel(found: Mapping[str, Any], package: Path, roles: dict[str, dict[int, str]]) -> Kernel:
    values = found["metrics"]
    measured = {
        q.name: sum(values[m] for m in q.metrics) * q.scale for q in QUANTITIES if values.keys() >= set(q.metrics)
    }
    if "cluster" in measured:
        measured["cluster"] = max(1.0, measured["cluster"])  # 0 stands for a launch without clusters
    samples: dict[str, Counter[str]] = {}
    role = KERNEL if any(file for _, file, _, _ in found["instructions"]) else ""
    for _, file, line, counts in found["instructions"]:
        path = Path(file)
        # By its name: a kernel of the cache has the place where its package lay when it was compiled.
        if role and path.parent.name == package.name and (package / path.name).is_file():
            if path.name not in roles:
                roles[path.name] = read_roles(package / path.name)
            role = roles[path.name].get(line, role)
        # Code of another file was inlined: it is of the role whose code it is in.
        samples.setdefault(role, Counter()).update(counts)
    kept = {name: dict(counts.most_common()) for name, counts in samples.items() if counts}
    return Kernel(found["name"], measured, kept)


def read_roles(path: Path) -> dict[int, str]:
    """The method of each line of a kernel module: methods are its roles, and what they share. Decorators and functions
    outside of classes have none."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    methods = [f for c in tree.body if isinstance(c, ast.ClassDef) for f in c.body if isinstance(f, ast.FunctionDef)]
    named = [method for method in methods if not method.name.startswith("__")]
    return {line: m.name for m in named for line in range(m.lineno, (m.end_lineno or m.lineno) + 1)}


def plan_quantities(
    plan: BasePlan, facts: Mapping[str, Any], shape: Shape, resolution: Resolution | None
) -> tuple[dict[str, float], str]:
    """What the plan of a package says of a launch, by the name of a quantity; and the device that predicted times are
    of, "" without a spec or a cost model. facts: of the launch, as `profiled` prints them."""
    numbers, arch = plan.tilings[facts["tiling"]], ARCHS[plan.arch]
    planned: dict[str, float] = {
        "DRAM traffic": facts["bytes"] / 1e6,
        "threads": numbers.threads,
        "shared memory": numbers.smem_bytes,
    }
    if hasattr(numbers, "consumer_registers"):  # roles share out what the register file gives one CTA
        planned |= {
            "registers": arch.launch_registers(numbers.threads),
            "occupancy": 100 * numbers.threads / SM_THREADS,
        }
    elif ctas := getattr(numbers, "ctas_per_sm", 0):
        planned["occupancy"] = min(100.0, 100 * ctas * numbers.threads / SM_THREADS)
    cluster = getattr(numbers, "cluster", 1)
    planned["cluster"] = math.prod(cluster) if isinstance(cluster, tuple) else cluster
    seconds = None
    if resolution:
        family = load_family(resolution.spec.kernel)
        seconds = family.estimate(resolution.resolved, facts["tiling"], shape)
    if not resolution or seconds is None:
        return planned, ""
    device = DEVICES[resolution.resolved.device]
    planned["duration"] = seconds * 1e6
    planned["DRAM"] = 100 * facts["bytes"] / seconds / device.hbm_bytes_per_s
    planned["tensor cores"] = 100 * facts["flops"] / seconds / device.flops(resolution.resolved.problem.a.dtype)
    return planned, device.name
