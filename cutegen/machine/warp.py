"""One warp: registers, a program counter, and the lanes that wait elsewhere while it is diverged."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.machine.assembler import LANES, Closure
from cutegen.machine.parser import PtxError


class Warp:
    """mask: the active lanes, None for all 32. groups: program counter -> lanes of the others; the group with the
    smallest one runs, so that groups meet again. parked: counters of groups that stand at a `.sync`.

    wait: (what, how it is said) while blocked, at instruction blocked_at. expired: the time limit of the wait that
    comes next has passed. rank: precedence where the scheduler is not fair. inflight: accumulators that WGMMAs have not
    written yet. bulk: groups of bulk copies, oldest first; open_bulk: the one that is not committed. copies: its
    cp.async that no arrival waits for yet. early: the kernel in front may still run. polled: the turn that ended with a
    look at what another CTA may do, -1 for another end. registers: of each thread, once setmaxnreg has set them. pipe:
    what it issued to the tensor core by tcgen05. tensor_loads, tensor_stores: what those know who waited for its moves
    of tensor memory, until it does.

    time: the step, in the sense of timeline.py, that it is in. waits: (start, end, what for), and marks: (step, kind of
    what it issued), where the machine takes notes.
    """

    def __init__(self, cta: Any, index: int, code: list[Closure], registers: list[Any]) -> None:
        self.cta, self.index, self.code, self.r = cta, index, code, registers
        self.pc = 0
        self.agent: Any = None  # of races.py
        self.rank = cta.machine.random.random()
        self.mask: Any = None
        self.groups: dict[int, Any] = {}
        self.parked: set[int] = set()
        self.exited = False
        self.wait: tuple[Any, str] | None = None
        self.blocked_at = 0
        self.expired = False
        self.cluster_ticket: int | None = None
        self.inflight: dict[tuple[int, ...], Any] = {}
        self.bulk: list[Any] = []
        self.open_bulk: list[Any] = []
        self.copies: list[Any] = []
        self.polled = -1
        self.time, self.blocked_since = 0, 0
        self.waits: list[tuple[int, int, str]] = []
        self.marks: list[tuple[int, str]] = []
        self.registers: int | None = None
        self.pipe: Any = None
        self.tensor_loads: list[Any] = []
        self.tensor_stores: list[Any] = []
        self.early = cta.machine.launch.programmatic

    def run(self, budget: int) -> None:
        """At most `budget` instructions, or until one ends the turn."""
        code, groups, reached = self.code, self.groups, self.cta.machine.assembler.reached
        for _ in range(budget):
            if groups:
                self._meet()
            pc = self.pc
            self.pc = pc + 1
            reached[pc] = 1
            self.time += 1
            if code[pc](self):
                return

    def block(self, waitable: Any, text: str, again: bool) -> bool:
        """Ends the turn until `waitable` wakes; again: the instruction is then executed once more."""
        self.wait = (waitable, text)
        self.blocked_at = self.pc - 1
        self.pc -= again
        self.blocked_since = self.time
        waitable.waiters.append(self)
        return True

    def resume(self) -> None:
        machine = self.cta.machine
        self.time = max(self.time, machine.now() + 1)
        if machine.notes and self.wait:
            place = machine.program.place(machine.program.instructions[self.blocked_at].line)
            self.waits.append((self.blocked_since, self.time, f"{self.wait[1]} {self.wait[0].label()}, at {place}"))
        self.wait = None
        machine.runnable.append(self)

    def mark(self, kind: str) -> None:
        """Notes that it issues asynchronous work."""
        if self.cta.machine.notes:
            self.marks.append((self.time, kind))

    def check_late(self, read: int | None = None, cached: bool = True) -> None:
        """PtxError: global memory belongs to the kernel in front. read: the address, where it is only read; cached: L1
        may keep what was there."""
        region = self.cta.machine.memory.region(read, read + 1) if self.early and read is not None else None
        if region and region.before and cached:
            raise PtxError(f"a load before griddepcontrol.wait leaves in L1 what may be written: {region.name}")
        if self.early and not (region and (region.ready or region.before)):
            what = f": {region.name}" if region else ""
            raise PtxError(f"global memory is accessed, or the next kernel let start, before griddepcontrol.wait{what}")

    # -- divergence --

    def diverge(self, goal: int, taken: Any, other: Any) -> None:
        """`taken` goes to `goal`, `other` to the next instruction."""
        if goal < self.pc:
            goal, taken, self.pc, other = self.pc, other, goal, taken
        self._defer(goal, taken)
        self.mask = other

    def _defer(self, pc: int, lanes: Any) -> None:
        self.groups[pc] = self.groups[pc] | lanes if pc in self.groups else lanes

    def _meet(self) -> None:
        """The group with the smallest program counter becomes the active one; groups at one place become one."""
        free = [pc for pc in self.groups if pc not in self.parked]
        lowest = min(free, default=self.pc)
        if lowest < self.pc:
            self._defer(self.pc, self.mask)
            self.pc, self.mask = lowest, self.groups.pop(lowest)
        if self.pc in self.groups:
            self.mask = self.mask | self.groups.pop(self.pc)
            self.parked.discard(self.pc)
        if not self.groups and self.mask.all():
            self.mask = None

    def park(self) -> None:
        """The active group stands at a `.sync` that needs all lanes: another one runs."""
        here = self.pc - 1
        free = [pc for pc in self.groups if pc not in self.parked and pc != here]
        if not free:
            raise PtxError(f"lanes are diverged for good at a .sync; the others are at {self._places()}")
        self._defer(here, self.mask)
        self.parked.add(here)
        self.pc = min(free)
        self.mask = self.groups.pop(self.pc)

    def _places(self) -> str:
        instructions = self.cta.machine.program.instructions
        place = self.cta.machine.program.place
        return ", ".join(place(instructions[pc].line) for pc in self.groups)

    def leave(self, lanes: Any) -> Any:
        """Some lanes exit."""
        rest = ~lanes if self.mask is None else self.mask & ~lanes
        if rest.any():
            self.mask = rest
            return None
        if self.groups:
            self.pc = min(self.groups, key=lambda pc: (pc in self.parked, pc))
            self.parked.discard(self.pc)
            self.mask = self.groups.pop(self.pc)
            return None
        self.exited = True
        self.cta.warp_left(self)
        return True

    def state(self) -> str:
        at = self.blocked_at if self.wait else min(self.pc, len(self.code) - 1)
        program = self.cta.machine.program
        ins = program.instructions[at]
        doing = f"{self.wait[1]} {self.wait[0]}" if self.wait else "runs"
        lanes = "" if self.mask is None else f" with {np.count_nonzero(self.mask)} of {LANES} lanes"
        return f"{doing}{lanes}, at {program.place(ins.line)}: {ins.text[:90]}"
