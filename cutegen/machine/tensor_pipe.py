"""What one thread issues to the tensor core by tcgen05: it happens later, in the order of issue."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.machine.assembler import LANES
from cutegen.machine.memory import Operation
from cutegen.machine.parser import Instruction, PtxError
from cutegen.machine.races import published


class Pipe:
    """What one warp issued to the tensor core, in order. known: what those know who waited for all of it."""

    def __init__(self, actors: int) -> None:
        self.queue: list[Any] = []
        self.known = np.zeros(actors, np.int64)

    def run_next(self) -> None:
        self.queue.pop(0)()


def pipe_of(w: Any) -> Pipe:
    if w.pipe is None:
        w.pipe = Pipe(len(w.agent.clock))
    return w.pipe


def enqueue(w: Any, make: Any, text: str) -> None:
    """make: from its agent to what is to be done."""
    pipe = pipe_of(w)
    w.agent.pc = w.pc - 1
    agent = w.agent.issue()
    agent.acquire(pipe.known)
    pipe.known = published(agent)
    done = make(agent)
    done.text = f"{text} at PTX line {w.cta.machine.program.instructions[w.pc - 1].line}"
    pipe.queue.append(done)
    w.cta.machine.submit("product", Operation(w.cta, pipe.run_next, text))


def lane_values(w: Any, slots: list[int], what: str) -> list[int]:
    """Operands of what a single thread issues."""
    if w.mask is None or np.count_nonzero(w.mask) != 1:
        raise PtxError(f"{what} is issued by {LANES if w.mask is None else np.count_nonzero(w.mask)} lanes, not by one")
    lane = int(np.argmax(w.mask))
    return [int(w.r[s][lane]) for s in slots]


def pair_of(w: Any, group: int) -> list[Any]:
    if group == 1:
        return [w.cta]
    rank = w.cta.rank & ~1
    if w.cta.rank != rank:
        raise PtxError("tcgen05 with cta_group::2 is issued by the odd CTA of a pair")  # a choice: either may
    return [w.cta.peer(rank), w.cta.peer(rank + 1)]


def group_of(ins: Instruction) -> int:
    return 2 if "cta_group::2" in ins.opcode else 1


def split_address(address: int) -> tuple[int, int]:
    return address >> 16 & 0xFFFF, address & 0xFFFF
