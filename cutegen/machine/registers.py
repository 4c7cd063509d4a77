"""The registers of a CTA, which setmaxnreg moves from warps that need few to those that need many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutegen.machine.assembler import LANES, Assembler, Closure, builds
from cutegen.machine.barriers import Waitable
from cutegen.machine.control import converged
from cutegen.machine.parser import Immediate, Instruction, PtxError

OF_AN_SM = 65_536
STEP, MOST = 8, 255  # counts are multiples of it; of one thread, by the encoding of instructions


class RegisterPool(Waitable):
    """launch: registers of each thread at first: as many as fit where one CTA runs on an SM, and not more than
    setmaxnreg asks for, which is what ptxas compiles for. free: given up and not taken, of all threads together."""

    def __init__(self, threads: int, asked: Sequence[int], where: tuple[int, int, int], actors: int) -> None:
        super().__init__(actors)
        self.launch = min(max(asked, default=MOST), OF_AN_SM // threads // STEP * STEP)
        self.free, self.where = 0, where

    def __str__(self) -> str:
        return f"registers of CTA {self.where}, of which {self.free} are free"


@builds("setmaxnreg")
def _set(asm: Assembler, ins: Instruction) -> Closure:
    (count,) = ins.operands
    if not isinstance(count, Immediate) or count.bits % STEP or not 24 <= count.bits <= 256:
        raise PtxError("setmaxnreg takes a constant from 24 to 256, a multiple of 8")
    asm.set_registers.append(count.bits)
    wanted, gives = count.bits, ins.opcode[1] == "dec"

    def run(w: Any) -> Any:
        pool: RegisterPool = w.cta.registers
        held = pool.launch if w.registers is None else w.registers
        if (wanted > held) if gives else (wanted < held):
            raise PtxError(f"setmaxnreg.{ins.opcode[1]} to {wanted} by a warp that has {held}")
        more = (wanted - held) * LANES
        if more > pool.free:
            return w.block(pool, f"waits for {more} registers, {wanted} a thread, of", again=True)
        pool.free -= more
        w.registers = wanted
        if gives:
            pool.wake()
        w.cta.machine.note_event()
        return None

    return converged(run)
