"""clusterlaunchcontrol: a CTA takes the work of a cluster that has not been launched yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.machine.assembler import CTA_WINDOW, Assembler, Closure, builds, put
from cutegen.machine.memory import CHUNK, Operation
from cutegen.machine.parser import Instruction, PtxError
from cutegen.machine.races import published
from cutegen.machine.tensor_pipe import lane_values


@builds("clusterlaunchcontrol")
def _control(asm: Assembler, ins: Instruction) -> Closure:
    return _try(asm, ins) if ins.opcode[1] == "try_cancel" else _query(asm, ins)


def _try(asm: Assembler, ins: Instruction) -> Closure:
    """The answer, 16 bytes, comes later, into each CTA of the cluster with multicast, and counts at their mbarriers."""
    places = [asm.place(o, asm.address_type(o)) for o in ins.operands]
    slots, (to, bar) = [slot for slot, _ in places], [offset for _, offset in places]
    everywhere = "multicast::cluster::all" in ins.opcode

    def run(w: Any) -> None:
        answer, barrier = lane_values(w, slots, "try_cancel")
        machine = w.cta.machine
        if w.cta.refused:
            raise PtxError("try_cancel after an answer that nothing was left")
        w.agent.pc = w.pc - 1
        agent = w.agent.issue()
        ctas = list(w.cta.cluster) if everywhere else [w.cta]
        signals = [cta.barrier((barrier + bar) % CTA_WINDOW).seen_from(w.cta, by_async=True) for cta in ctas]
        chunk = np.array([(answer + to) % CTA_WINDOW // CHUNK])
        for cta in ctas:
            cta.shared.write_async(chunk, 0xFF, agent)

        def arrive() -> None:
            spurious = machine.impatient and machine.random.random() < 0.1
            words = np.zeros(2, np.uint64)
            if machine.waiting and not spurious:
                x, y, z = machine.waiting.pop(0)
                words[:] = (1 | x << 32, y | z << 32)
            elif not spurious:
                w.cta.refused = True
            for cta, signal in zip(ctas, signals):
                cta.shared.write_async(chunk, words.view(np.uint8), agent)
                signal.channel.give(published(agent))
                signal.complete(CHUNK)

        machine.submit("load", Operation(w.cta, arrive, "try_cancel"))

    return run


def _query(asm: Assembler, ins: Instruction) -> Closure:
    what = ins.opcode[2]
    target, source = asm.target(ins.operands[0]), asm.source(ins.operands[1], "b128")

    def run(w: Any) -> None:
        words = w.r[source]
        if what == "is_canceled":
            put(w, target, words[:, 0] & np.uint64(1) != 0)
            return
        which = {"get_first_ctaid::x": (0, 32), "get_first_ctaid::y": (1, 0), "get_first_ctaid::z": (1, 32)}[what]
        put(w, target, (words[:, which[0]] >> np.uint64(which[1]) & np.uint64(0xFFFFFFFF)).astype(np.uint32))

    return run
