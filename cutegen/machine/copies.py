"""cp.async: copies of 4 or 16 bytes by each thread, and the arrivals that wait for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.machine.access import lanes_of, split_shared
from cutegen.machine.assembler import LANES, Assembler, Closure
from cutegen.machine.barriers import barriers_of
from cutegen.machine.memory import CHUNK, Operation, check_aligned
from cutegen.machine.parser import Immediate, Instruction, PtxError
from cutegen.machine.races import published

WORD = 4  # bytes of a copy of one f32


class ThreadCopies:
    """What one cp.async of a warp copies: all of its lanes' pieces arrive at once, later than it is issued."""

    def __init__(self, agent: Any) -> None:
        self.agent, self.done = agent, False
        self.followers: list[Any] = []  # what to do when they have arrived

    def finish(self) -> None:
        self.done = True
        for follower in self.followers:
            follower()


def thread_copy(asm: Assembler, ins: Instruction) -> Closure:
    if "mbarrier" in ins.opcode:
        return _arrive_after(asm, ins)
    if "commit_group" in ins.opcode or "wait_group" in ins.opcode or "wait_all" in ins.opcode:
        raise PtxError("groups of cp.async are not simulated")
    target, source, size, *rest = ins.operands
    if not isinstance(size, Immediate) or size.bits not in (WORD, CHUNK):
        raise PtxError("only cp.async of 4 and of 16 bytes is simulated")
    if (size.bits == CHUNK) != ("cg" in ins.opcode):
        raise PtxError("cp.async of 16 bytes is .cg here, of 4 bytes .ca")
    width = size.bits
    to, origin = (asm.place(o, asm.address_type(o)) for o in (target, source))
    read = asm.source(rest[0], "b32") if rest else None

    def run(w: Any) -> None:
        w.check_late()
        w.agent.pc = w.pc - 1
        copies = ThreadCopies(w.agent.issue())
        sizes = np.full(LANES, width) if read is None else w.r[read].astype(np.int64)
        sizes = sizes if w.mask is None else sizes[w.mask]
        if (~np.isin(sizes, (0, width))).any():
            raise PtxError("cp.async that reads a part of its bytes is not simulated")
        origins = lanes_of(w, *origin)
        for cta, _, inside in split_shared(w, lanes_of(w, *to)):
            if cta is not w.cta or len(inside) != len(sizes):
                raise PtxError("cp.async into the shared memory of another CTA")
            check_aligned(inside, width)
            places = np.asarray(inside)
        cta, memory, reads = w.cta, w.cta.machine.memory, sizes > 0
        cta.shared.write_copied(places, np.full((len(places), width), 0xFF, np.uint8), copies.agent)

        def arrive() -> None:
            data = np.zeros((len(places), width), np.uint8)
            if reads.any():
                words = memory.gather(origins[reads], min(width, 8), -(-width // 8), copies.agent)
                data[reads] = np.ascontiguousarray(words).view(np.uint8)
            cta.shared.write_copied(places, data, copies.agent)
            copies.finish()

        w.copies.append(copies)
        cta.machine.submit("load", Operation(cta, arrive, f"cp.async into CTA {cta.where}"))

    return run


def _arrive_after(asm: Assembler, ins: Instruction) -> Closure:
    """cp.async.mbarrier.arrive.noinc: each lane arrives when all that it has copied before is there."""
    if "noinc" not in ins.opcode:
        raise PtxError("only cp.async.mbarrier.arrive with .noinc is simulated")
    slot, offset = asm.place(ins.operands[0], asm.address_type(ins.operands[0]))

    def run(w: Any) -> None:
        barriers = barriers_of(w, lanes_of(w, slot, offset))
        before, late = [published(c.agent) for c in w.copies], [c for c in w.copies if not c.done]
        missing, w.copies = len(late), []

        def arrive() -> None:
            for barrier, lanes in barriers:
                for known in before:
                    barrier.channel.give(known)
                barrier.arrive(lanes)
            w.cta.machine.note_event()

        def follow() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                arrive()

        for copies in late:
            copies.followers.append(follow)
        if not late:
            arrive()

    return run
