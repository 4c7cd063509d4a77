"""The instructions tcgen05.*, and commits, which arrive at mbarriers when all that was issued before has happened."""

from __future__ import annotations

from typing import Any

from cutegen.machine.assembler import CTA_WINDOW, Assembler, Closure, builds
from cutegen.machine.barriers import Mbarrier
from cutegen.machine.control import converged
from cutegen.machine.parser import Instruction, PtxError
from cutegen.machine.races import Agent, published
from cutegen.machine.tensor_moves import allocate, copy_scales, free, transfer, wait_for_moves
from cutegen.machine.tensor_pipe import enqueue, lane_values
from cutegen.machine.tensor_products import MmaForm


def _commit(asm: Assembler, ins: Instruction) -> Closure:
    slot, offset = asm.place(ins.operands[0], asm.address_type(ins.operands[0]))
    slots = [slot] + ([asm.source(ins.operands[1], "b16")] if len(ins.operands) > 1 else [])

    def run(w: Any) -> None:
        address, *mask = lane_values(w, slots, "tcgen05.commit")
        address += offset
        ranks = [i for i in range(16) if mask[0] >> i & 1] if mask else [address // CTA_WINDOW]
        barriers: list[Mbarrier] = [
            (w.cta if r == w.cta.rank else w.cta.peer(r)).barrier(address % CTA_WINDOW).seen_from(w.cta, by_async=True)
            for r in ranks
        ]
        machine = w.cta.machine

        def make(agent: Agent) -> Any:
            known = published(agent)

            def arrive() -> None:
                for barrier in barriers:
                    barrier.channel.give(known)
                    barrier.arrive(1)
                machine.note_event()

            return arrive

        enqueue(w, make, f"tcgen05.commit of warp {w.index}")

    return run


@builds("tcgen05")
def _tcgen05(asm: Assembler, ins: Instruction) -> Closure:
    action = ins.opcode[1]
    if action == "mma":
        return MmaForm(asm, ins).issue
    if action in ("ld", "st"):
        return transfer(asm, ins)
    if action.startswith("wait::"):
        return wait_for_moves(ins)
    if action == "commit":
        return _commit(asm, ins)
    if action == "cp":
        return copy_scales(asm, ins)
    if action == "alloc":
        return allocate(asm, ins)
    if action == "dealloc":
        return free(asm, ins)
    if action == "relinquish_alloc_permit":

        def give_up(w: Any) -> None:
            w.cta.tensor.permit = False

        return converged(give_up)
    if action.startswith("fence::"):
        return lambda w: None
    raise PtxError("this tcgen05 instruction is not simulated")
