"""TMA: bulk copies between global and shared memory. They happen at a later time than they are issued."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.machine.assembler import CTA_WINDOW, PARAMETER_WINDOW, Assembler, Closure, builds
from cutegen.machine.barriers import Waitable
from cutegen.machine.copies import thread_copy
from cutegen.machine.memory import CHUNK, Operation
from cutegen.machine.parser import Instruction, Memory, PtxError
from cutegen.machine.races import Agent, published
from cutegen.machine.tensor_map import TensorMap, add_bytes, decode


class BulkGroup(Waitable):
    """Stores that were committed together. reading: those whose shared memory is not read yet; open: not written.
    awaited: somebody has waited for it to be read."""

    def __init__(self, actors: int) -> None:
        super().__init__(actors)
        self.reading = self.open = 0
        self.awaited = False

    def label(self) -> str:
        return "its bulk stores"

    def __str__(self) -> str:
        return f"a bulk group with {self.reading} stores not read and {self.open} not written"


def _uniform(w: Any, slots: list[int]) -> list[int]:
    """Values of operands, which are those of the first active lane: the hardware's instruction belongs to the warp.
    PtxError: the lanes differ."""
    lane = 0 if w.mask is None else int(np.argmax(w.mask))
    for slot in slots:
        values = w.r[slot] if w.mask is None else w.r[slot][w.mask]
        if np.count_nonzero(values != values[0]):
            raise PtxError("the lanes name different copies")
    return [int(w.r[s][lane]) for s in slots]


def _tensor_map(w: Any, address: int) -> TensorMap:
    machine = w.cta.machine
    if address not in machine.tensor_maps:
        if address >= PARAMETER_WINDOW:
            start = address - PARAMETER_WINDOW
            data = machine.parameters[start : start + 128].tobytes()
        else:
            region = machine.memory.region(address, address + 128)
            data = region.bytes[address - region.base :][:128].tobytes()
        machine.tensor_maps[address] = decode(data)
    return machine.tensor_maps[address]


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


@builds("cp")
def _bulk(asm: Assembler, ins: Instruction) -> Closure:
    op = ins.opcode
    if "bulk" not in op:
        return thread_copy(asm, ins)
    if "commit_group" in op:
        return _commit
    if "wait_group" in op:
        return _wait(asm, ins)
    if "prefetch" in op:
        return lambda w: None
    loads = op.index("global") > min(op.index(o) for o in op if o.startswith("shared"))
    if "tensor" in op:
        return _tensor_load(asm, ins) if loads else _tensor_store(asm, ins)
    return _plain_load(asm, ins) if loads else _plain_store(asm, ins)


def _coordinates(asm: Assembler, place: Memory) -> list[int]:
    (vector,) = place.rest
    return [asm.source(o, "b32") for o in asm.items(vector)]


def _tensor_load(asm: Assembler, ins: Instruction) -> Closure:
    target, source, barrier, *rest = ins.operands
    assert isinstance(source, Memory)
    (to, to_offset), (bar, bar_offset) = (asm.place(o, asm.address_type(o)) for o in (target, barrier))
    tensor = asm.source(source.base, "b64")
    multicast, hinted = "multicast::cluster" in ins.opcode, "L2::cache_hint" in ins.opcode
    slots = [tensor, to, bar, *_coordinates(asm, source)] + ([asm.source(rest[0], "b16")] if multicast else [])
    slots += [asm.source(rest[-1], "b64")] if hinted else []

    def run(w: Any) -> None:
        values = _uniform(w, slots)
        policy = values.pop() if hinted else None
        mask = values.pop() if multicast else None
        map_address, destination, barrier_at, *coordinates = values
        tensor_map = _tensor_map(w, map_address)
        start = tensor_map.place(map(_signed, coordinates))
        if len(start) != len(tensor_map.dims):
            raise PtxError(f"{len(start)} coordinates for a tensor map of rank {len(tensor_map.dims)}")
        region = w.cta.machine.memory.region(tensor_map.address, tensor_map.address + 1)
        w.cta.machine.boxes.setdefault((region.name, start, tuple(tensor_map.box)), []).append(policy)
        issue_load(
            w, tensor_map.address, destination + to_offset, barrier_at + bar_offset, mask, tensor_map.chunks,
            lambda agent: tensor_map.read(w.cta.machine.memory, start, agent), f"TMA load at {start}",
            "cta_group::2" in ins.opcode,
        )  # fmt: skip

    return run


def issue_load(
    w: Any,
    source: int,
    destination: int,
    barrier: int,
    mask: int | None,
    chunks: Any,
    read: Any,
    text: str,
    pair: bool = False,
) -> None:
    """One copy for each CTA that gets it. The place is NaN from now on until the data come, one CTA at a time. source:
    an address in the tensor."""
    w.check_late(source)
    w.agent.pc = w.pc - 1
    agent = w.agent.issue()
    agent.early = w.early
    ranks = [i for i in range(16) if mask >> i & 1] if mask is not None else [destination // CTA_WINDOW]
    for rank in ranks:
        cta = w.cta if rank == w.cta.rank else w.cta.peer(rank)
        goals = chunks(destination % CTA_WINDOW)
        cta.shared.write_async(goals, 0xFF, agent)
        owner = cta
        if pair:  # the CTA of the destination's pair that has the parity of the barrier's
            owner = cta.peer(rank & ~1 | barrier // CTA_WINDOW & 1)
        elif mask is None and barrier // CTA_WINDOW != rank:
            raise PtxError("a copy into one CTA that signals a barrier of another")
        signal = owner.barrier(barrier % CTA_WINDOW).seen_from(w.cta, by_async=True)

        def arrive(cta: Any = cta, goals: Any = goals, signal: Any = signal) -> None:
            cta.shared.write_async(goals, read(agent), agent)
            signal.channel.give(published(agent))
            signal.complete(goals.size * CHUNK)

        w.cta.machine.submit("load", Operation(cta, arrive, f"{text} into CTA {cta.where}"))


def _plain_load(asm: Assembler, ins: Instruction) -> Closure:
    target, source, length, barrier, *rest = ins.operands
    places = [asm.place(o, asm.address_type(o)) for o in (target, source, barrier)]
    multicast = "multicast::cluster" in ins.opcode
    slots = [slot for slot, _ in places] + [asm.source(length, "b32")]
    slots += [asm.source(rest[0], "b16")] if multicast else []

    def run(w: Any) -> None:
        values = _uniform(w, slots)
        mask = values.pop() if multicast else None
        to, origin, bar = (v + offset for v, (_, offset) in zip(values, places))
        size = values[3]
        _check_plain(to, origin, size)

        def read(agent: Agent) -> Any:
            region = w.cta.machine.memory.region(origin, origin + size)
            if region.shadow:
                region.shadow.read(*region.chunks(origin, size), agent)
            return region.bytes[origin - region.base :][:size].reshape(-1, CHUNK)

        goals = lambda at: at // CHUNK + np.arange(size // CHUNK)  # noqa: E731
        issue_load(w, origin, to, bar, mask, goals, read, f"bulk load of {size} B")

    return run


def _check_plain(to: int, origin: int, size: int) -> None:
    if (to | origin | size) % CHUNK or not size:
        raise PtxError(f"a bulk copy of {size} bytes from {origin:#x} to {to:#x}: multiples of 16 are needed")


def _tensor_store(asm: Assembler, ins: Instruction) -> Closure:
    target, source = ins.operands[:2]
    assert isinstance(target, Memory)
    origin, offset = asm.place(source, asm.address_type(source))
    slots = [asm.source(target.base, "b64"), origin, *_coordinates(asm, target)]
    add = _reduction(ins)

    def run(w: Any) -> None:
        map_address, at, *start = _uniform(w, slots)
        tensor_map = _tensor_map(w, map_address)
        place = tensor_map.place(map(_signed, start))
        goals = tensor_map.chunks((at + offset) % CTA_WINDOW)
        memory = w.cta.machine.memory
        write = tensor_map.add if add else tensor_map.write
        issue_store(w, goals, lambda data, agent: write(memory, place, data, agent), f"TMA store at {place}")

    return run


def _reduction(ins: Instruction) -> bool:
    if ins.opcode[1] == "async":
        return False
    if "add" not in ins.opcode:
        raise PtxError("only reductions that add are simulated")
    return True


def _plain_store(asm: Assembler, ins: Instruction) -> Closure:
    target, source, length = ins.operands[:3]
    places = [asm.place(o, asm.address_type(o)) for o in (target, source)]
    slots = [slot for slot, _ in places] + [asm.source(length, "b32")]
    add, kind = _reduction(ins), ins.opcode[-1]

    def run(w: Any) -> None:
        values = _uniform(w, slots)
        to, origin = (v + offset for v, (_, offset) in zip(values, places))
        size = values[2]
        _check_plain(to, origin, size)

        def write(data: Any, agent: Agent) -> None:
            memory = w.cta.machine.memory
            region = memory.region(to, to + size, write=True)
            if not add:
                memory.note_write(region, *region.chunks(to, size), agent)
            there = region.bytes[to - region.base :][:size]
            there[...] = add_bytes(there.copy(), data.reshape(-1), kind) if add else data.reshape(-1)

        chunks = (origin % CTA_WINDOW) // CHUNK + np.arange(size // CHUNK)
        issue_store(w, chunks, write, f"bulk store of {size} B")

    return run


def issue_store(w: Any, chunks: Any, write: Any, text: str) -> None:
    """First the shared memory is read, later the global memory written."""
    w.check_late()
    cta, machine, members = w.cta, w.cta.machine, w.open_bulk
    cta.shared.check_fenced(chunks, text, [w.index])  # the fence has to come before the store
    w.agent.pc = w.pc - 1
    agent = w.agent.issue()
    member: dict[str, Any] = {"group": None, "read": False, "written": False, "agent": agent}

    def read() -> None:
        data = cta.shared.read_async(chunks, text, [agent], [w.index]).copy()
        member["read"] = True
        if member["group"]:
            member["group"].reading -= 1
            member["group"].wake()
        machine.submit("store", Operation(None, lambda: finish(data), text))

    def finish(data: Any) -> None:
        write(data, agent)
        member["written"] = True
        if member["group"]:
            member["group"].open -= 1
            member["group"].wake()

    members.append(member)
    machine.submit("store", Operation(cta, read, text))


def _commit(w: Any) -> None:
    group = BulkGroup(len(w.agent.clock))
    for member in w.open_bulk:
        group.channel.give(published(member["agent"]))
        member["group"] = group
        group.reading += not member["read"]
        group.open += not member["written"]
    w.open_bulk = []
    w.bulk.append(group)


def _wait(asm: Assembler, ins: Instruction) -> Closure:
    allowed, reading = ins.operands[0].bits, "read" in ins.opcode  # type: ignore[union-attr]

    def run(w: Any) -> Any:
        count = max(0, len(w.bulk) - allowed)
        for group in w.bulk[:count]:
            if group.reading if reading else group.open:
                return w.block(group, "waits for", again=True)
            group.awaited = True
            w.agent.acquire(group.channel.gathered)
        w.bulk[:count] = [group for group in w.bulk[:count] if group.open]
        return None

    return run
