"""tcgen05.ld, st, cp, alloc and dealloc: tensor memory by warps, copies into it, and its allocator."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cutegen.machine.access import lanes_of, split_shared
from cutegen.machine.assembler import LANES, Assembler, Closure, put
from cutegen.machine.control import converged
from cutegen.machine.parser import Instruction, PtxError
from cutegen.machine.races import Agent, published
from cutegen.machine.tensor_memory import NAN, TensorMemory
from cutegen.machine.tensor_pipe import enqueue, group_of, lane_values, pair_of, split_address
from cutegen.machine.tensor_products import places_of

_LANE = np.arange(LANES)
_COPIES = {"32x128b": (32, 16), "128x256b": (128, 32), "128x128b": (128, 16), "4x256b": (4, 32)}


def copy_scales(asm: Assembler, ins: Instruction) -> Closure:
    shape = next(o for o in ins.opcode if o in _COPIES)
    rows, width = _COPIES[shape]
    unpacks = any("_p" in word for word in ins.opcode)  # elements of 4 or 6 bits, to bytes
    if (shape == "32x128b" and "warpx4" not in ins.opcode) or shape == "4x256b" or unpacks:
        raise PtxError("this tcgen05.cp is not simulated")
    group = group_of(ins)
    target, source = ins.operands
    slots, offset = [asm.source(target.base, "b32"), asm.source(source, "b64")], target.offset  # type: ignore[union-attr]

    def run(w: Any) -> None:
        address, descriptor = lane_values(w, slots, "tcgen05.cp")
        _, column = split_address(address + offset)
        columns = width // 4
        ctas = pair_of(w, group)
        for cta in ctas:
            cta.tensor.check(column, columns)
            cta.tensor.writing[:, column : column + columns] += 1

        def make(agent: Agent) -> Any:
            def copy() -> None:
                for cta in ctas:
                    low, high, chunks, words = places_of(descriptor, rows, False, 1, width)
                    cta.shared.check(low, high)
                    cta.shared.read_async(chunks, "tcgen05.cp", [agent], [w.index] if cta is w.cta else [])
                    data = cta.shared.bytes.take(words).view(np.uint32)
                    if rows == 32:
                        data = np.tile(data, (4, 1))
                    cta.tensor.note_write(cta.tensor.units(range(8), column, columns), agent)
                    cta.tensor.cells[:, column : column + columns] = data
                    cta.tensor.writing[:, column : column + columns] -= 1

            return copy

        enqueue(w, make, f"tcgen05.cp of warp {w.index}")

    return run


def allocate(asm: Assembler, ins: Instruction) -> Closure:
    """With cta_group::2 it takes a warp of each CTA of the pair, and both get the same columns."""
    slot, offset = asm.place(ins.operands[0], asm.address_type(ins.operands[0]))
    count, group = asm.source(ins.operands[1], "b32"), group_of(ins)

    def run(w: Any) -> Any:
        memory: TensorMemory = w.cta.tensor
        members = [memory] if group == 1 else [w.cta.peer(w.cta.rank & ~1).tensor, w.cta.peer(w.cta.rank | 1).tensor]
        memory.wanted = int(w.r[count][0])
        if memory.granted is None and all(m.wanted for m in members):
            if len({m.wanted for m in members}) > 1:
                raise PtxError("the CTAs of a pair allocate different amounts of tensor memory")
            found = [m.allocate(m.wanted) for m in members]
            if None not in found:
                if len(set(found)) > 1:
                    raise PtxError("the CTAs of a pair would get different columns of tensor memory")
                for m in members:
                    m.granted = found[0]
                    m.wake()
        if memory.granted is None:
            return w.block(memory, "waits for columns of", again=True)
        first, memory.granted, memory.wanted = memory.granted, None, 0
        w.agent.pc = w.pc - 1
        ((cta, _, inside),) = split_shared(w, lanes_of(w, slot, offset)[:1])
        cta.shared.scatter(inside, 4, np.full((1, 1), first, np.uint32), w.agent, w.index)
        return None

    return converged(run)


def free(asm: Assembler, ins: Instruction) -> Closure:
    slots = [asm.source(o, "b32") for o in ins.operands]

    def run(w: Any) -> None:
        w.agent.pc = w.pc - 1
        _, column = split_address(int(w.r[slots[0]][0]))
        w.cta.tensor.free(column, int(w.r[slots[1]][0]), w.agent)

    return converged(run)


@functools.cache
def _cells(shape: str, count: int) -> tuple[Any, Any, int, int]:
    """(registers, lanes) of rows and columns that each thread's registers hold; rows and columns of all."""
    t = _LANE[None, :]
    i = np.arange(count * {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4}[shape])[:, None]
    if shape == "32x32b":
        return np.broadcast_to(t, (count, LANES)), np.broadcast_to(i, (count, LANES)), 32, count
    if shape == "16x256b":
        rows, columns = t // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (t % 4) + i % 2
        return rows, columns, 16, 8 * count
    if shape == "16x128b":
        return t // 4 + 8 * (i % 2), 4 * (i // 2) + t % 4 + 0 * i, 16, 4 * count
    return t // 4 + 8 * (t % 2) + 0 * i, 2 * i + t // 2 % 2, 16, 2 * count  # 16x64b


def transfer(asm: Assembler, ins: Instruction) -> Closure:
    loads = ins.opcode[1] == "ld"
    place, vector = (ins.operands[1], ins.operands[0]) if loads else (ins.operands[0], ins.operands[1])
    shape = next((o for o in ins.opcode if o in ("32x32b", "16x64b", "16x128b", "16x256b")), None)
    count = next((int(o[1:]) for o in ins.opcode if o[0] == "x" and o[1:].isdigit()), 0)
    packs = "pack::16b" in ins.opcode or "unpack::16b" in ins.opcode
    if shape is None or not count or "red" in ins.opcode or (packs and not loads):
        raise PtxError("this move of tensor memory is not simulated")
    slot, offset = asm.place(place, "b32")
    slots = [asm.target(o) for o in asm.items(vector)] if loads else [asm.source(o, "b32") for o in asm.items(vector)]
    rows, columns, high, wide = _cells(shape, count * (2 if packs else 1))
    if len(slots) * (2 if packs else 1) != len(rows):
        raise PtxError(f"{len(slots)} registers for {ins.text[:60]}")

    def where(w: Any) -> tuple[TensorMemory, int, int, Any]:
        addresses = w.r[slot]
        if (addresses != addresses[0]).any():
            raise PtxError("the lanes pass different addresses of tensor memory")
        row, column = split_address(int(addresses[0]) + offset)
        part = 32 * (w.index % 4)
        if not part <= row <= row + high <= part + 32 or row % 16:
            raise PtxError(f"warp {w.index} reaches for lanes {row} .. {row + high}, and may for {part} .. {part + 32}")
        memory: TensorMemory = w.cta.tensor
        memory.check(column, wide)
        w.agent.pc = w.pc - 1
        return memory, row, column, memory.units(range(row // 16, (row + high) // 16), column, wide)

    def load(w: Any) -> None:
        memory, row, column, units = where(w)
        agent = w.agent.issue() if w.cta.machine.strict else w.agent
        memory.note_read(units, agent)
        found = memory.cells[row + rows, column + columns]
        if memory.writing.reshape(-1)[units].any():
            found = np.full_like(found, NAN)
        if packs:
            found = found[0::2] & 0xFFFF | found[1::2] << 16
        if w.cta.machine.strict:  # until tcgen05.wait::ld
            w.tensor_loads.append(((), (), published(agent)))  # LLVM moves register copies before the wait
        for target, values in zip(slots, found):
            put(w, target, values)

    def store(w: Any) -> None:
        memory, row, column, units = where(w)
        agent = w.agent.issue() if w.cta.machine.strict else w.agent
        if w.cta.machine.strict:
            w.tensor_stores.append(published(agent))
        memory.note_write(units, agent)
        memory.cells[row + rows, column + columns] = np.stack([w.r[s] for s in slots])

    return converged(load if loads else store)


def wait_for_moves(ins: Instruction) -> Closure:
    loads = ins.opcode[1] == "wait::ld"

    def run(w: Any) -> None:
        if loads:
            for slots, found, known in w.tensor_loads:
                for target, values in zip(slots, found):
                    put(w, target, values)
                w.agent.acquire(known)
            w.tensor_loads = []
        else:
            for known in w.tensor_stores:
                w.agent.acquire(known)
            w.tensor_stores = []

    return converged(run)
