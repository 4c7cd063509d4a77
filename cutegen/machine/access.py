"""Loads, stores, atomics, matrix moves and fences: everything a warp does to memory by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cutegen.machine.assembler import (
    CTA_BITS,
    CTA_WINDOW,
    LANES,
    PARAMETER_WINDOW,
    SHARED_WINDOW,
    VIEW,
    Assembler,
    Closure,
    builds,
    columns,
    put,
    raw,
)
from cutegen.machine.control import converged
from cutegen.machine.floats import from_bits, to_bits
from cutegen.machine.memory import CHUNK, Operation
from cutegen.machine.parser import Instruction, Memory, PtxError, Register, Symbol
from cutegen.machine.races import ASYNC, PEERS, SCOPES, Agent, published

_SPACES = ("global", "shared", "shared::cta", "shared::cluster", "param", "const", "local")


def _space(ins: Instruction) -> str:
    return next((o for o in ins.opcode if o in _SPACES), "generic")


def _shape(ins: Instruction) -> tuple[str, int]:
    """(type, number of elements)."""
    count = next((int(o[1:]) for o in ins.opcode if o in ("v2", "v4", "v8")), 1)
    return ins.opcode[-1], count


def scope_of(ins: Instruction) -> str:
    """That of a release, an acquire or a fence; `gpu` where none is written."""
    return next((o for o in ins.opcode if o in SCOPES), "gpu")


def split_shared(w: Any, addresses: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(CTA, lanes, addresses within it) of shared::cluster addresses."""
    addresses = addresses.astype(np.int64)
    ranks = addresses >> CTA_BITS
    first = int(ranks[0])
    if not np.count_nonzero(ranks != first):
        yield w.cta if first == w.cta.rank else w.cta.peer(first), slice(None), addresses - first * CTA_WINDOW
        return
    for rank in np.unique(ranks):
        lanes = np.flatnonzero(ranks == rank)
        yield w.cta.peer(int(rank)), lanes, addresses[lanes] % CTA_WINDOW


def _gather(w: Any, space: str, addresses: Any, size: int, count: int, atomic: bool = False) -> Any:
    """atomic: no part of a race, and neither is polling."""
    if space.startswith("shared"):
        out = np.empty((len(addresses), count), f"u{size}")
        for cta, lanes, inside in split_shared(w, addresses):
            out[lanes] = cta.shared.gather(inside, size, count, w.agent)
        return out
    if space == "generic" and int(addresses.max()) >= PARAMETER_WINDOW:
        if int(addresses.min()) < SHARED_WINDOW:
            raise PtxError("a generic load from parameters, or from several spaces, is not simulated")
        return _gather(w, "shared", addresses - np.uint64(SHARED_WINDOW), size, count)
    memory, agent = w.cta.machine.memory, None if atomic else w.agent
    if w.early:
        for address in addresses:
            w.check_late(int(address), cached=not atomic)
        return memory.guess(addresses, size, count, agent, w.cta.machine.random.random)
    return memory.gather(addresses, size, count, agent)


def _scatter(w: Any, space: str, addresses: Any, size: int, values: Any, atomic: bool = False) -> None:
    if space.startswith("shared"):
        for cta, lanes, inside in split_shared(w, addresses):
            cta.shared.scatter(inside, size, values[lanes], w.agent, w.index if cta is w.cta else None)
    elif space == "generic" and int(addresses.max()) >= SHARED_WINDOW:
        _scatter(w, "shared", addresses - np.uint64(SHARED_WINDOW), size, values)
    else:
        w.check_late()
        w.cta.machine.memory.scatter(addresses, size, values, None if atomic else w.agent)
        w.cta.machine.note_event()


def lanes_of(w: Any, slot: int, offset: int) -> Any:
    """The active lanes' addresses."""
    addresses = w.r[slot] if w.mask is None else w.r[slot][w.mask]
    return addresses + addresses.dtype.type(offset % (1 << 8 * addresses.itemsize)) if offset else addresses


def spread(w: Any, values: Any) -> Any:
    """Values of the active lanes, as an array of all lanes."""
    if w.mask is None:
        return values
    out = np.zeros(LANES, values.dtype)
    out[w.mask] = values
    return out


@builds("ld", "ldu")
def _load(asm: Assembler, ins: Instruction) -> Closure:
    kind, count = _shape(ins)
    space = _space(ins)
    targets = [asm.target(o) for o in asm.items(ins.operands[0])]
    widths = [raw(asm.program.types[o.name]) for o in asm.items(ins.operands[0]) if isinstance(o, Register)]
    size, view = np.dtype(raw(kind)).itemsize, VIEW[kind]
    place = ins.operands[1]
    assert isinstance(place, Memory)
    if space == "param":
        assert isinstance(place.base, Symbol)
        start = asm.program.parameters[place.base.name].offset + place.offset

        def parameter(w: Any) -> None:
            data = w.cta.machine.parameters[start : start + size * count].view(raw(kind))
            for i, (target, width) in enumerate(zip(targets, widths)):
                put(w, target, np.full(LANES, data[i]).view(view).astype(width, copy=False))

        return parameter
    if space in ("const", "local"):
        raise PtxError(f"ld.{space} is not simulated")
    slot, offset = asm.place(place, asm.address_type(place))
    scope = scope_of(ins)
    polls = bool({"acquire", "volatile", "relaxed"} & set(ins.opcode))

    def run(w: Any) -> Any:
        w.agent.pc = w.pc - 1
        addresses = lanes_of(w, slot, offset)
        values = _gather(w, space, addresses, size, count, polls)
        if polls:
            w.cta.machine.locations.read(w.agent, addresses, "acquire" in ins.opcode, scope)
        for i, (target, width) in enumerate(zip(targets, widths)):
            column = values[:, i]
            if column.dtype != width:
                column = column.view(view).astype(np.int64 if kind[0] == "s" else np.uint64).astype(width)
            put(w, target, spread(w, column))
        if polls:  # likely a loop that waits for another CTA
            w.polled = w.cta.machine.turns
        return polls

    return run


@builds("st")
def _store(asm: Assembler, ins: Instruction) -> Closure:
    kind, _ = _shape(ins)
    space = _space(ins)
    dtype = raw(kind)
    slot, offset = asm.place(ins.operands[0], asm.address_type(ins.operands[0]))
    sources = [asm.source(o, kind) for o in asm.items(ins.operands[1])]
    scope = scope_of(ins)
    signals = bool({"release", "volatile", "relaxed"} & set(ins.opcode))

    if "async" in ins.opcode:
        barrier = asm.place(ins.operands[2], asm.address_type(ins.operands[2]))
        return _store_async(ins, (slot, offset), barrier, sources, dtype)

    def run(w: Any) -> None:
        w.agent.pc = w.pc - 1
        values = columns(w, sources, dtype)
        if w.mask is not None:
            values = values[w.mask]
        addresses = lanes_of(w, slot, offset)
        _scatter(w, space, addresses, np.dtype(dtype).itemsize, values, signals)
        if signals:
            w.cta.machine.locations.write(w.agent, addresses, "release" in ins.opcode, scope)

    return run


def _store_async(
    ins: Instruction, place: tuple[int, int], barrier: tuple[int, int], sources: list[int], dtype: Any
) -> Closure:
    """st.async: the places are NaN until the values come, which the mbarrier counts in bytes. What a warp stores in one
    CTA comes at once."""
    if "mbarrier::complete_tx::bytes" not in ins.opcode:
        raise PtxError("st.async without an mbarrier is not simulated")
    size = np.dtype(dtype).itemsize

    def run(w: Any) -> None:
        values = columns(w, sources, dtype)
        values = values if w.mask is None else values[w.mask]
        signals = lanes_of(w, *barrier)
        w.agent.pc = w.pc - 1
        agent = w.agent.issue()
        for cta, lanes, inside in split_shared(w, lanes_of(w, *place)):
            cta.shared.scatter(inside, size, np.full((len(inside), len(sources)), -1).astype(dtype), agent, None)
            (counter, _, counts), *others = split_shared(w, signals[lanes])
            if others or counter is not cta:
                raise PtxError("st.async to one CTA counts at an mbarrier of another")
            if (counts != counts[0]).any():
                raise PtxError("st.async of a warp to one CTA that counts at several mbarriers is not simulated")
            signal = cta.barrier(int(counts[0])).seen_from(w.cta, by_async=True)
            w.cta.machine.submit("load", _arrival(cta, agent, inside, values[lanes], signal))

    return run


def _arrival(cta: Any, agent: Agent, places: Any, values: Any, signal: Any) -> Operation:
    def arrive() -> None:
        cta.shared.scatter(places, values.itemsize, values, agent, None)
        signal.channel.give(published(agent))
        signal.complete(values.nbytes)

    return Operation(cta, arrive, f"st.async to {int(places[0])} of CTA {cta.where}")


_ATOMIC: dict[str, Any] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "max": np.maximum,
    "min": np.minimum, "exch": lambda old, new: new, "inc": lambda old, top: np.where(old >= top, 0, old + 1),
    "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - 1),
}  # fmt: skip


@builds("atom", "red")
def _atomic(asm: Assembler, ins: Instruction) -> Closure:
    if "async" in ins.opcode:
        raise PtxError("red.async is not simulated")
    kind, space = ins.opcode[-1], _space(ins)
    operation = next(o for o in ins.opcode[1:] if o in _ATOMIC or o == "cas")
    operands = list(ins.operands)
    targets = [asm.target(o) for o in asm.items(operands.pop(0))] if ins.opcode[0] == "atom" else []
    slot, offset = asm.place(operands[0], asm.address_type(operands[0]))
    values = [asm.source(o, kind) for o in asm.items(operands[1])]
    swap = asm.source(operands[2], kind) if operation == "cas" else None
    dtype, size = raw(kind), np.dtype(raw(kind)).itemsize

    def change(old: Any, value: Any) -> Any:
        """One word each; halves are added as such."""
        if kind in ("f16x2", "bf16x2", "f16", "bf16"):
            base = kind.removesuffix("x2")
            a, b = (from_bits(v.view(np.uint16), base) for v in (old, value))
            return to_bits(_ATOMIC[operation](a, b), base).view(dtype)
        return np.asarray(_ATOMIC[operation](old.view(VIEW[kind]), value.view(VIEW[kind]))).astype(VIEW[kind])

    scope = scope_of(ins)
    acquires, releases = (
        ("acquire" in ins.opcode or "acq_rel" in ins.opcode),
        bool({"release", "acq_rel"} & set(ins.opcode)),
    )

    def run(w: Any) -> None:
        w.agent.pc = w.pc - 1
        addresses = lanes_of(w, slot, offset)
        w.cta.machine.locations.read(w.agent, addresses, acquires, scope)
        w.cta.machine.locations.write(w.agent, addresses, releases, scope)
        lanes = np.arange(LANES) if w.mask is None else np.flatnonzero(w.mask)
        found, given = np.zeros((LANES, len(values)), dtype), columns(w, values, dtype)
        # Lanes at different places at once, others one after another.
        step = LANES if len(set(addresses.tolist())) == len(lanes) else 1
        for start in range(0, len(lanes), step):
            at, chosen = addresses[start : start + step], lanes[start : start + step]
            old, new = _gather(w, space, at, size, len(values), True), given[chosen]
            new = change(old, new).view(dtype) if swap is None else np.where(old == new, w.r[swap][chosen, None], old)
            found[chosen] = old
            _scatter(w, space, at, size, new, True)
        for target, column in zip(targets, found.T):
            put(w, target, column.copy())

    return run


@builds("stmatrix", "ldmatrix")
def _matrix(asm: Assembler, ins: Instruction) -> Closure:
    if "m8n8" not in ins.opcode or ins.opcode[-1] != "b16":
        raise PtxError("only m8n8 matrices of b16 are simulated")
    loads, transposed = ins.opcode[0] == "ldmatrix", "trans" in ins.opcode
    place, vector = (ins.operands[1], ins.operands[0]) if loads else (ins.operands[0], ins.operands[1])
    slot, offset = asm.place(place, asm.address_type(place))
    slots = [asm.target(o) for o in asm.items(vector)]

    def rows(w: Any) -> Any:
        """16-byte chunk of each row, matrix after matrix."""
        addresses = (w.r[slot].astype(np.int64) + offset)[: 8 * len(slots)]
        if (
            w.mask is not None
            or np.count_nonzero(addresses % CHUNK)
            or np.count_nonzero(addresses // CTA_WINDOW != w.cta.rank)
        ):
            raise PtxError("a matrix row is not at a multiple of 16 bytes of this CTA, or a lane is missing")
        w.agent.pc = w.pc - 1
        return addresses % CTA_WINDOW // CHUNK

    def turned(matrices: Any) -> Any:
        return np.ascontiguousarray(matrices.reshape(-1, 8, 8).swapaxes(1, 2)) if transposed else matrices

    def store(w: Any) -> None:
        chunks = rows(w)
        matrices = turned(np.concatenate([w.r[s] for s in slots]).view(np.uint16))  # lane / 4 holds two of each row
        w.cta.shared.write_rows(chunks, matrices.reshape(-1, 8).view(np.uint8), w.agent, w.index)

    def load(w: Any) -> None:
        matrices = turned(w.cta.shared.read_rows(rows(w), w.agent).view(np.uint16))
        for target, registers in zip(slots, matrices.reshape(-1, 2 * LANES).view(np.uint32)):
            put(w, target, registers)

    return converged(load if loads else store)


@builds("fence", "membar")
def _fence(asm: Assembler, ins: Instruction) -> Closure:
    if ins.opcode[1:3] == ("proxy", "async"):
        return _fence_async
    if "mbarrier_init" in ins.opcode:
        return lambda w: w.cta.show_inits(w.index, ASYNC, PEERS)
    if "proxy" in ins.opcode:
        return lambda w: None
    scope = {"gl": "gpu"}.get(ins.opcode[-1], scope_of(ins))

    def run(w: Any) -> None:
        w.agent.fence(scope)
        if scope != "cta":
            w.cta.show_inits(w.index, PEERS)

    return run


def _fence_async(w: Any) -> None:
    w.cta.shared.fence(w.index)
    w.cta.show_inits(w.index, ASYNC)


@builds("mapa")
def _map_address(asm: Assembler, ins: Instruction) -> Closure:
    kind = ins.opcode[-1]
    dtype = raw(kind)
    target, source, rank = (
        asm.target(ins.operands[0]),
        asm.source(ins.operands[1], kind),
        asm.source(ins.operands[2], "u32"),
    )
    window, generic = dtype(CTA_WINDOW), dtype(0 if "shared::cluster" in ins.opcode else SHARED_WINDOW)

    def run(w: Any) -> None:
        ranks = w.r[rank].astype(dtype)
        inside = (w.r[source] - generic) % window
        put(w, target, generic + ranks * window + inside)

    return run


@builds("getctarank")
def _rank_of(asm: Assembler, ins: Instruction) -> Closure:
    target, source = asm.target(ins.operands[0]), asm.source(ins.operands[1], ins.opcode[-1])

    def run(w: Any) -> None:
        ranks = (w.r[source].astype(np.int64) % SHARED_WINDOW) // CTA_WINDOW
        put(w, target, ranks.astype(np.uint32))

    return run
