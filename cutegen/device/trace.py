"""Stamps of what warps wait for, compiled into a kernel that is traced; runtime/stamps.py has their layout.

The shipped text of a kernel stays as it is: `stamping` puts stamps around what waits while a kernel is compiled, and a
copy of the kernel's module calls `begin` first. The place of a warp's next record is a register of each thread, which
PTX keeps from where `begin` declares it. Where not all lanes of a warp wait, the first of those that do writes.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import warpgroup

from cutegen.device import cluster_sum
from cutegen.runtime.stamps import BARRIER, FIRST, MBARRIER, RECORD, WaitPlace

KERNEL = "kernel"  # the method that gives warps their roles
# What waits: where callers look it up, its name, and what it waits at.
WAITS: tuple[tuple[Any, str, str], ...] = (
    (cute.arch, "mbarrier_wait", MBARRIER),
    (cute.arch, "barrier", BARRIER),
    (cute.arch, "sync_threads", BARRIER),
    (cute.arch, "cluster_wait", ""),
    (cute.arch, "cp_async_wait_group", ""),
    (cute.arch, "cp_async_bulk_wait_group", ""),
    (cute.arch, "griddepcontrol_wait", ""),
    (warpgroup, "wait_group", ""),
    (cluster_sum, "await_turn", MBARRIER),
)
_active: _Stamps | None = None


class _Stamps:
    """What is compiled in. module: the file of the kernel. buffer: its address. ctas: of the grid, from the first on,
    that have regions of so many records."""

    def __init__(self, module: Path, buffer: int, ctas: int, records: int) -> None:
        self.module, self.buffer, self.ctas, self.records = str(module), buffer, ctas, records
        self.places: list[WaitPlace] = []
        self.inside = False  # of what waits, which may call another that does

    def find_place(self, at: str, function: str) -> int | None:
        """The number of the place that is being compiled; None: it is not of the traced kernel."""
        methods, line, frame = [], 0, sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename == self.module:
                line = line or frame.f_lineno
                methods.append(frame.f_code.co_name)
            frame = frame.f_back  # type: ignore[assignment]
        if KERNEL not in methods:
            return None
        # Bodies of loops and branches are functions as well; the DSL numbers them.
        roles = tuple(m for m in reversed(methods[: methods.index(KERNEL)]) if not m[-1].isdigit())
        place = WaitPlace(at, function, roles, line)
        if place not in self.places:
            self.places.append(place)
        return self.places.index(place)


@contextlib.contextmanager
def stamping(module: Path, buffer: int, ctas: int, records: int) -> Iterator[list[WaitPlace]]:
    """Inside of it the kernel of a module that calls `begin` is compiled with stamps. Their places, by number."""
    global _active
    stamps = _active = _Stamps(module, buffer, ctas, records)
    with contextlib.ExitStack() as stack:
        for owner, name, at in WAITS:
            original = getattr(owner, name)
            setattr(owner, name, _stamped(stamps, original, name, at))
            stack.callback(setattr, owner, name, original)
        try:
            yield stamps.places
        finally:
            _active = None


def _stamped(stamps: _Stamps, original: Callable[..., Any], name: str, at: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(*arguments: Any, **named: Any) -> Any:
        number = None if stamps.inside else stamps.find_place(at, name)
        if number is None:
            return original(*arguments, **named)
        stamps.inside = True
        try:
            barrier = _name_barrier(at, arguments, named)
            _stamp(2 * number + 1, barrier)
            result = original(*arguments, **named)
            _stamp(2 * number, barrier)
        finally:
            stamps.inside = False
        return result

    return wait


def _name_barrier(at: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Int32:
    """What a stamp has of the barrier."""
    if at == MBARRIER:
        return Int32(arguments[0].toint())
    number = named.get("barrier_id")
    return Int32(0 if number is None else number)


def _stamp(word: int, barrier: Int32) -> None:
    text = f"""{{
    .reg .pred %first, %room;
    .reg .u32 %lanes, %before;
    .reg .u64 %time;
    activemask.b32 %lanes;
    mov.u32 %before, %lanemask_lt;
    and.b32 %lanes, %lanes, %before;
    setp.ne.u64 %first, cutegen_last, 0;
    setp.eq.and.u32 %first, %lanes, 0, %first;
    mov.u64 %time, %clock64;
    @%first st.volatile.global.u64 [cutegen_last], %time;
    @%first st.volatile.global.v2.u32 [cutegen_last+8], {{{word}, $0}};
    setp.lt.and.u64 %room, cutegen_next, cutegen_end, %first;
    @%room st.global.u64 [cutegen_next], %time;
    @%room st.global.v2.u32 [cutegen_next+8], {{{word}, $0}};
    add.u64 cutegen_next, cutegen_next, {RECORD};
    }}"""
    llvm.inline_asm(None, [barrier.ir_value()], text, "r", has_side_effects=True)


def begin() -> None:
    """The first statement of a traced kernel: where the records of its warp go. RuntimeError: outside of `stamping`."""
    if _active is None:
        raise RuntimeError("a traced kernel is compiled inside of `stamping`")
    region = _active.records * RECORD
    text = f""".reg .u64 cutegen_next, cutegen_last, cutegen_end;
    {{
    .reg .pred %first, %traced;
    .reg .u32 %cta, %at, %warps, %warp, %lane, %sm;
    .reg .u64 %offset, %time;
    mov.u32 %cta, %ctaid.z;
    mov.u32 %warps, %nctaid.y;
    mov.u32 %at, %ctaid.y;
    mad.lo.u32 %cta, %cta, %warps, %at;
    mov.u32 %warps, %nctaid.x;
    mov.u32 %at, %ctaid.x;
    mad.lo.u32 %cta, %cta, %warps, %at;
    mov.u32 %lane, %tid.x;
    shr.u32 %warp, %lane, 5;
    and.b32 %lane, %lane, 31;
    mov.u32 %warps, %ntid.x;
    add.u32 %warps, %warps, 31;
    shr.u32 %warps, %warps, 5;
    setp.lt.u32 %traced, %cta, {_active.ctas};
    mad.lo.u32 %warp, %cta, %warps, %warp;
    mul.wide.u32 %offset, %warp, {region};
    add.u64 cutegen_last, $0, %offset;
    add.u64 cutegen_next, cutegen_last, {FIRST * RECORD};
    add.u64 cutegen_end, cutegen_last, {region};
    setp.eq.and.u32 %first, %lane, 0, %traced;
    mov.u64 %time, %globaltimer;
    mov.u32 %sm, %smid;
    @%first st.global.u64 [cutegen_last+{RECORD}], %time;
    @%first st.global.v2.u32 [cutegen_last+{RECORD + 8}], {{%sm, %warps}};
    @!%traced mov.u64 cutegen_last, 0;
    }}"""
    llvm.inline_asm(None, [Int64(_active.buffer).ir_value()], text, "l", has_side_effects=True)
