"""What the warps of one launch waited for, and how long: a build of the kernel with stamps (device/trace.py) tells.

The copy of the package that is built calls `trace.begin` first in its kernels, on lines that keep their numbers.
"""

from __future__ import annotations

import ast
import shutil
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cutegen.diagnostics import CutegenError
from cutegen.model.kernel import KernelModel
from cutegen.run.shapes import Shape
from cutegen.run.warp_timeline import Wait, WarpRow
from cutegen.run.worker import Worker
from cutegen.runtime.stamps import BARRIER, FIRST, MBARRIER, RECORD, WaitPlace

KERNEL = "kernel"  # the method of a kernel module that gives warps their roles
FUTURE = "from __future__ import annotations"
CTAS, RECORDS = 4, 4096  # of the grid that are traced, and of each of their warps
# Where a CTA's dynamic shared memory begins: what is below is the system's, 1 KB since compute capability 8.0 (CUDA
# C++ Programming Guide, "Shared Memory" of compute capability 8.x and 9.0).
SHARED_BASE = 1024
# Of shared memory in a cluster: the address of a peer's has its rank above (CUTLASS, sm100 peer bit).
CTA_WINDOW = 1 << 24
# What else is waited for, by the function that does.
WAITED = {
    "cluster_wait": "CTAs of the cluster",
    "griddepcontrol_wait": "the preceding kernel",
    "wait_group": "WGMMA",
    "cp_async_wait_group": "loads by cp.async",
    "cp_async_bulk_wait_group": "stores by TMA",
}


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """path: of a package that `instrument` made. draw: of its inputs, None for the usual ones. patience: seconds in
    which a launch has to end; None: it is waited for."""

    path: Path
    shape: Shape
    tiling: str | None = None
    draw: Any = None
    patience: float | None = None


@dataclass(frozen=True, slots=True)
class Stamps:
    """What a launch left. module: the file of the kernel. places: by number. warps: of a CTA. data: the buffer. ended:
    False where the launch hung."""

    device: str
    tiling: str
    module: str
    places: tuple[WaitPlace, ...]
    warps: int
    data: bytes
    ended: bool = True


class Named(NamedTuple):
    """What a warp waited for. what: without the number of a stage or barrier, `one` with it."""

    what: str
    one: str


def instrument(path: Path, folder: Path) -> Path:
    """A copy of a package, or of the folder of a plan, in `folder` whose kernels are to be compiled with stamps; what
    to load of it. CutegenError: a kernel module is not as cutegen writes them."""
    source = path if path.is_dir() else path.parent
    copy = folder / source.name
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for module in sorted(copy.glob(f"{KERNEL}*.py")):
        module.write_text(_with_begin(module.name, module.read_text(encoding="utf-8")), encoding="utf-8")
    return copy if path.is_dir() else copy / path.name


def _with_begin(name: str, text: str) -> str:
    kernels = [
        method
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == KERNEL
    ]
    simple = (ast.Assign, ast.AnnAssign, ast.Expr)
    first = [next((s for s in kernel.body if not _is_docstring(s)), None) for kernel in kernels]
    if f"\n{FUTURE}\n" not in text or not first or not all(isinstance(s, simple) for s in first):
        raise CutegenError(f"{name} has no kernel that can be traced", "a plan of another package may have none")
    lines = text.split("\n")
    for statement in first:
        assert statement
        at = statement.lineno - 1
        lines[at] = f"{lines[at][: statement.col_offset]}_trace.begin(); {lines[at][statement.col_offset :]}"
    return "\n".join(lines).replace(FUTURE, f"{FUTURE}; from cutegen.device import trace as _trace", 1)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def find_module(plan: Any, key: str) -> str:
    """The name of the kernel module that a tiling is an instance of."""
    modules: Mapping[str, str] = getattr(sys.modules[type(plan).__module__], "MODULES", {})
    return modules.get(key, KERNEL)


class WarpStamps(NamedTuple):
    """Of one of a traced CTA. last: its last stamp. stamps: (cycle, number of the place, whether a wait begins, its
    barrier), in order."""

    cta: int
    warp: int
    last: tuple[int, int, bool, int]
    stamps: tuple[tuple[int, int, bool, int], ...]


def read_stamps(found: Stamps) -> Iterator[WarpStamps]:
    """Of each warp that has begun."""
    size = RECORDS * RECORD
    for i in range(CTAS * found.warps):
        region = found.data[i * size : (i + 1) * size]
        _, _, warps = struct.unpack_from("<QII", region, RECORD)
        if not warps:
            continue
        stamps = []
        for at in range(0, size, RECORD):
            cycle, word, barrier = struct.unpack_from("<QII", region, at)
            stamps.append((cycle, word // 2, bool(word % 2), barrier))
        kept = [s for s in stamps[FIRST:] if s[0]]
        yield WarpStamps(i // found.warps, i % found.warps, stamps[0], tuple(kept))


def _pair_stamps(warp: WarpStamps) -> Iterator[tuple[int, int, int, int]]:
    """(first cycle, last cycle, number of the place, barrier) of each wait that has ended."""
    begun: dict[int, int] = {}
    for cycle, number, begins, barrier in warp.stamps:
        if begins:
            begun[number] = cycle
        elif number in begun:
            yield begun.pop(number), cycle, number, barrier


def is_full(found: Stamps) -> bool:
    """Whether a warp may have had more stamps than there is room for."""
    return any(len(w.stamps) == RECORDS - FIRST for w in read_stamps(found))


def name_wait(place: WaitPlace, barrier: int, model: KernelModel | None) -> Named:
    """What is waited for: a stage of a pipeline, an mbarrier or a named barrier as the plan calls it, else the function
    that waits."""
    if place.at == MBARRIER:
        return _name_mbarrier(barrier % CTA_WINDOW - SHARED_BASE, model)
    if place.at == BARRIER:
        known = [b.name for b in model.barriers if b.id == barrier] if model else []
        name = known[0] if known else f"named barrier {barrier}" if barrier else "barrier of the CTA"
        return Named(name, name)
    name = WAITED.get(place.function, place.function)
    return Named(name, name)


def _name_mbarrier(offset: int, model: KernelModel | None) -> Named:
    for region in model.smem if model else ():
        if region.offset <= offset < region.offset + region.bytes:
            number = (offset - region.offset) // 8
            for pipe in model.pipelines if model else ():
                if region.name in (f"{pipe.name}_barriers", pipe.made.barriers if pipe.made else ""):
                    side = "full" if number < pipe.stages else "empty"
                    return Named(f"{pipe.name} {side}", f"{pipe.name} {side}, stage {number % pipe.stages}")
            return Named(region.name, f"{region.name}[{number}]")
    return Named("mbarrier", f"mbarrier at shared+{offset}")


def name_role(warp: int, place: WaitPlace, model: KernelModel | None) -> str:
    """As the plan calls it, else the method of the kernel."""
    if model:
        for role in model.roles:
            if role.warps.first <= warp <= role.warps.last:
                return role.name
    return place.roles[0] if place.roles else "all warps"


def make_rows(found: Stamps, model: KernelModel | None) -> tuple[WarpRow, ...]:
    """A row for each warp, from the first stamp of its CTA on."""
    warps = list(read_stamps(found))
    rows = []
    for cta in dict.fromkeys(w.cta for w in warps):
        own = [w for w in warps if w.cta == cta and w.stamps]
        start = min((w.stamps[0][0] for w in own), default=0)
        for w in own:
            waits = []
            for begin, end, number, barrier in _pair_stamps(w):
                place = found.places[number]
                what = f"{name_wait(place, barrier, model).one} at {found.module}:{place.line}"
                waits.append(Wait(begin - start, end - start, what))
            role = name_role(w.warp, found.places[w.stamps[-1][1]], model)
            rows.append(WarpRow((cta,), w.warp, role, w.stamps[-1][0] - start, tuple(waits)))
    return tuple(rows)


def sum_waits(found: Stamps, model: KernelModel | None) -> list[tuple[str, str, int, int, float]]:
    """Of each role what it waits for: how often, in all how long, and what share of the time of its warps that is; the
    longest of each role first."""
    times: dict[str, int] = {}
    totals: dict[tuple[str, str], list[int]] = {}
    for w in read_stamps(found):
        if not w.stamps:
            continue
        role = name_role(w.warp, found.places[w.stamps[-1][1]], model)
        times[role] = times.get(role, 0) + w.stamps[-1][0] - w.stamps[0][0]
        for begin, end, number, barrier in _pair_stamps(w):
            count = totals.setdefault((role, name_wait(found.places[number], barrier, model).what), [0, 0])
            count[0] += 1
            count[1] += end - begin
    order = {role: i for i, role in enumerate(times)}
    rows = [(role, what, n, total, total / (times[role] or 1)) for (role, what), (n, total) in totals.items()]
    return sorted(rows, key=lambda row: (order[row[0]], -row[3]))


def name_hang(found: Stamps, model: KernelModel | None) -> list[str]:
    """Where warps of a launch that did not end wait: a line for all that wait for the same at the same place."""
    waiting: dict[str, list[str]] = {}
    for w in read_stamps(found):
        _, number, begins, barrier = w.last
        if w.stamps and begins:
            place = found.places[number]
            what = f"{name_wait(place, barrier, model).one} at {found.module}:{place.line}"
            role = name_role(w.warp, place, model)
            waiting.setdefault(f"{role} waits for {what}", []).append(f"CTA {w.cta} warp {w.warp}")
    return [f"{what} ({', '.join(who)})" for what, who in waiting.items()]


def launch_stamped(request: TraceRequest, where: str, scratch: Path) -> Stamps:
    """What a launch left, in a process of its own. where: gpu, cpu. scratch: a folder for what it compiles, which the
    cache keeps out of: a kernel with stamps has the address of its buffer. CutegenError: it does not compile or run."""
    module = {"gpu": "cutegen.run.traced", "cpu": "cutegen.machine.stamped"}[where]
    worker = Worker(request.path, module, request, {"CUTEGEN_CACHE_DIR": str(scratch), "CUTEGEN_CACHE": "1"})
    worker.child.end()
    answer: Stamps = worker.answer
    return answer
