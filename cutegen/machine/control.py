"""Branches and what a warp does as a whole: shuffles, votes, reductions, elections."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.machine.assembler import LANES, VIEW, Assembler, Closure, builds, put
from cutegen.machine.parser import Instruction, PtxError, Symbol

LANE = np.arange(LANES)


@builds("bra")
def _branch(asm: Assembler, ins: Instruction) -> Closure:
    (label,) = ins.operands
    assert isinstance(label, Symbol)
    goal = asm.program.labels[label.name]
    if ins.guard is None:

        def jump(w: Any) -> None:
            w.pc = goal

        return jump
    p, wanted = asm.source(ins.guard[0], "pred"), ins.guard[1]

    def branch(w: Any) -> None:
        taken = w.r[p] if wanted else ~w.r[p]
        if w.mask is None:
            count = np.count_nonzero(taken)
            if count == LANES:
                w.pc = goal
            elif count:
                w.diverge(goal, taken, ~taken)
            return
        taken, other = taken & w.mask, ~taken & w.mask
        if not other.any():
            w.pc = goal
        elif taken.any():
            w.diverge(goal, taken, other)

    return branch


@builds("ret", "exit")
def _return(asm: Assembler, ins: Instruction) -> Closure:
    guard = None if ins.guard is None else asm.source(ins.guard[0], "pred")
    wanted = ins.guard is None or ins.guard[1]

    def run(w: Any) -> Any:
        leaving = np.ones(LANES, bool) if guard is None else (w.r[guard] == wanted)
        return w.leave(leaving if w.mask is None else leaving & w.mask)

    return run


def converged(closure: Closure) -> Closure:
    """For `.sync` instructions: diverged lanes wait here for the others."""

    def run(w: Any) -> Any:
        return w.park() if w.groups else closure(w)

    return run


@builds("shfl")
def _shuffle(asm: Assembler, ins: Instruction) -> Closure:
    mode = ins.opcode[2]
    target, p = asm.pair(ins.operands[0])
    value, b, c = (asm.source(o, "b32") for o in ins.operands[1:4])

    def run(w: Any) -> None:
        r = w.r
        offset, control = r[b].astype(np.int64) & 31, r[c].astype(np.int64)
        segment = (control >> 8) & 31
        limit = (LANE & segment) | (control & 31 & ~segment)
        first = LANE & segment
        if mode == "idx":
            origin = first | (offset & ~segment)
            valid = origin <= limit
        elif mode == "bfly":
            origin = LANE ^ offset
            valid = origin <= limit
        elif mode == "up":
            origin = LANE - offset
            valid = origin >= limit
        else:
            origin = LANE + offset
            valid = origin <= limit
        origin = np.where(valid, origin, LANE)
        if w.mask is not None and not w.mask[origin[w.mask]].all():
            raise PtxError("shfl.sync reads a lane that does not take part")
        put(w, target, r[value][origin])
        if p is not None:
            put(w, p, valid)

    return converged(run)


@builds("vote")
def _vote(asm: Assembler, ins: Instruction) -> Closure:
    mode = ins.opcode[2]
    target, source = asm.target(ins.operands[0]), asm.source(ins.operands[1], "pred")

    def run(w: Any) -> None:
        mine = w.r[source]
        active = mine if w.mask is None else mine[w.mask]
        if mode == "ballot":
            held = mine if w.mask is None else mine & w.mask
            put(w, target, np.full(LANES, int((held << LANE.astype(np.uint64)).sum()), np.uint32))
            return
        result = {"all": active.all(), "any": active.any(), "uni": active.all() or not active.any()}[mode]
        put(w, target, np.full(LANES, result))

    return converged(run)


@builds("activemask")
def _active(asm: Assembler, ins: Instruction) -> Closure:
    target = asm.target(ins.operands[0])

    def run(w: Any) -> None:
        lanes = LANE if w.mask is None else LANE[w.mask]
        put(w, target, np.full(LANES, sum(1 << int(i) for i in lanes), np.uint32))

    return run


@builds("redux")
def _reduce(asm: Assembler, ins: Instruction) -> Closure:
    _, _, operation, *_, kind = ins.opcode
    function = {
        "add": np.add, "max": np.maximum, "min": np.minimum,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }[operation]  # fmt: skip
    target, source, view = asm.target(ins.operands[0]), asm.source(ins.operands[1], kind), VIEW[kind]

    def run(w: Any) -> None:
        values = w.r[source].view(view)
        total = function.reduce(values if w.mask is None else values[w.mask], dtype=view)
        put(w, target, np.full(LANES, total, view).view(np.uint32))

    return converged(run)


@builds("elect")
def _elect(asm: Assembler, ins: Instruction) -> Closure:
    target, p = asm.pair(ins.operands[0])
    assert p is not None

    def run(w: Any) -> None:
        leader = 0 if w.mask is None else int(np.argmax(w.mask))
        put(w, target, np.full(LANES, leader, np.uint32))
        put(w, p, leader == LANE)

    return converged(run)


@builds("griddepcontrol")
def _depend(asm: Assembler, ins: Instruction) -> Closure:
    """The kernel in front has ended when this one waits for it; no kernel comes after."""

    def wait(w: Any) -> None:
        w.early = False

    return converged(wait) if ins.opcode[1] == "wait" else lambda w: w.check_late()


@builds("prefetch", "prefetchu", "pmevent", "discard", "applypriority", "createpolicy")
def _nothing(asm: Assembler, ins: Instruction) -> Closure:
    return lambda w: None


@builds("nanosleep")
def _sleep(asm: Assembler, ins: Instruction) -> Closure:
    return lambda w: True


@builds("trap", "brkpt")
def _trap(asm: Assembler, ins: Instruction) -> Closure:
    def run(w: Any) -> None:
        raise PtxError("the kernel trapped")

    return run
