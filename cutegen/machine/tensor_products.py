"""tcgen05.mma: products of operands in shared memory into tensor memory."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cutegen.machine.assembler import Assembler
from cutegen.machine.floats import E2M1, UE8M0, from_bits
from cutegen.machine.forms import product_form
from cutegen.machine.memory import CHUNK
from cutegen.machine.parser import Instruction, Memory, PtxError, Vector
from cutegen.machine.races import Agent
from cutegen.machine.tensor_memory import TensorMemory
from cutegen.machine.tensor_pipe import enqueue, group_of, lane_values, pair_of, split_address
from cutegen.machine.wgmma import SWIZZLE, find_offsets

_MODES = {0: 0, 2: 1, 4: 2, 6: 3}  # a descriptor's layout type as that of a WGMMA descriptor
# By kind: names of the formats that the instruction descriptor numbers, bytes of K that one product contracts.
_FORMATS = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": {0: "e4m3", 1: "e5m2"},
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": {0: "e4m3", 1: "e5m2"},
    "mxf4nvf4": {1: "e2m1"},
    "mxf4": {1: "e2m1"},
}
_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1, "e2m1": 1}


@functools.lru_cache(maxsize=4096)
def places_of(descriptor: int, extent: int, mn_major: bool, size: int, k: int) -> tuple[int, int, Any, Any]:
    """As that of WGMMA: first byte, end, chunks, numbers of words."""
    if descriptor >> 46 & 3 != 1 or descriptor >> 49 & 15 or descriptor >> 61 not in _MODES:
        raise PtxError(f"a tcgen05 descriptor of this form is not simulated: {descriptor:#x}")
    mode = _MODES[descriptor >> 61]
    offsets = find_offsets(mode, descriptor >> 16 & 0x3FFF, descriptor >> 32 & 0x3FFF, extent, mn_major, size, k)
    address = ((descriptor & 0x3FFF) << 4) + offsets
    address = address ^ (address >> 7 & SWIZZLE[mode]) << 4
    return int(address.min()), int(address.max()) + size, np.unique(address // CHUNK), address // size


def _operand(
    cta: Any, descriptor: int, extent: int, mn_major: bool, kind: str, k: int, agent: Agent, warps: Any
) -> Any:
    low, high, chunks, words = places_of(descriptor, extent, mn_major, _BYTES[kind], k)
    cta.shared.check(low, high)
    cta.shared.read_async(chunks, "tcgen05.mma", [agent], warps)
    bits = cta.shared.words[_BYTES[kind]].take(words)
    return _values(bits, kind)


def _values(bits: Any, kind: str) -> Any:
    if kind in ("s8", "u8"):
        return bits.view(np.int8 if kind == "s8" else np.uint8).astype(np.int32)
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    if kind == "e2m1":
        both = np.stack([bits & 15, bits >> 4], -1)
        return E2M1[both.reshape(bits.shape[0], -1)]
    return from_bits(bits, kind)


@functools.cache
def _blocks(group: int, m: int, n: int) -> list[tuple[int, Any, slice, slice]]:
    """Where D lies: (CTA of the pair, lanes, rows, columns of D), each from the same column of tensor memory on."""
    if (group, m) == (1, 128):
        return [(0, np.arange(128), slice(0, 128), slice(0, n))]
    if (group, m) == (1, 64):
        return [(0, np.arange(64) // 16 * 32 + np.arange(64) % 16, slice(0, 64), slice(0, n))]
    if (group, m) == (2, 256):
        return [(c, np.arange(128), slice(128 * c, 128 * c + 128), slice(0, n)) for c in (0, 1)]
    if (group, m) == (2, 128):
        return [
            (c, np.arange(64) + 64 * h, slice(64 * c, 64 * c + 64), slice(n // 2 * h, n // 2 * h + n // 2))
            for c in (0, 1)
            for h in (0, 1)
        ]
    raise PtxError(f"tcgen05.mma of M = {m} with cta_group::{group} is not simulated")


class MmaForm:
    """What a tcgen05.mma of the program is. flags: what its instruction descriptor says."""

    def __init__(self, asm: Assembler, ins: Instruction) -> None:
        # forms: their texts, by the descriptors that decide them.
        self.opcode, self.forms = ins.opcode, dict[tuple[int, int, int], str]()
        self.kind = next(o for o in ins.opcode if o.startswith("kind::"))[6:]
        self.group, self.scaled = group_of(ins), "block_scale" in ins.opcode
        if self.kind not in _FORMATS or "ws" in ins.opcode or "sp" in ins.opcode or "ashift" in ins.opcode:
            raise PtxError("this tcgen05.mma is not simulated")
        d, a, b, descriptor, *rest = ins.operands
        if isinstance(a, Memory):
            raise PtxError("tcgen05.mma with A in tensor memory is not simulated")
        assert isinstance(d, Memory)
        self.d_offset = d.offset
        kinds = ("b32", "b64", "b64", "b32")
        self.slots = [asm.source(o, kind) for o, kind in zip((d.base, a, b, descriptor), kinds)]
        self.masks: list[int] = []
        if self.scaled:
            self.slots += [asm.source(o.base, "b32") for o in rest[:2]]  # type: ignore[union-attr]
            rest = rest[2:]
            self.per = 16 if {"block16", "scale_vec::4X"} & set(ins.opcode) else 32
        elif isinstance(rest[0], Vector):
            self.masks = [asm.source(o, "b32") for o in rest[0].items]
            rest = rest[1:]
        self.add = asm.source(rest[0], "pred")
        if len(rest) > 1:
            raise PtxError("tcgen05.mma that scales its input is not simulated")

    def issue(self, w: Any) -> None:
        d, a, b, flags, *scales = lane_values(w, self.slots, "tcgen05.mma")
        lane = int(np.argmax(w.mask))
        add = bool(w.r[self.add][lane])
        if any(int(w.r[s][lane]) for s in self.masks):
            raise PtxError("tcgen05.mma with lanes disabled is not simulated")
        ctas = pair_of(w, self.group)
        m, n = (flags >> 24 & 31) * 16, (flags >> 17 & 63) * 8
        row, column = split_address(d + self.d_offset)
        blocks = _blocks(self.group, m, n)
        if row not in ((0, 16) if (self.group, m) == (1, 64) else (0,)):
            raise PtxError(f"D of tcgen05.mma at lane {row}")
        wide = blocks[0][3].stop - blocks[0][3].start
        goals = []
        for c, lanes, rows, columns in blocks:
            memory = ctas[c].tensor
            memory.check(column, wide)
            halves = np.unique((lanes + row) // 16)
            memory.writing[halves, column : column + wide] += 1
            goals.append((c, memory, (lanes + row)[:, None], halves, memory.units(halves, column, wide), rows, columns))

        def make(agent: Agent) -> Any:
            def run() -> None:
                self.run(ctas, goals, (column, wide, m, n, a, b, flags, scales, add), agent, w)

            return run

        enqueue(w, make, f"tcgen05.mma of warp {w.index}")

    def run(self, ctas: Any, goals: Any, what: Any, agent: Agent, w: Any) -> None:
        column, wide, m, n, a, b, flags, scales, add = what
        formats = _FORMATS[self.kind]
        if flags >> 7 & 7 not in formats or flags >> 10 & 7 not in formats or flags & 4:
            raise PtxError(f"an instruction descriptor that is not simulated: {flags:#x}")
        a_kind, b_kind = formats[flags >> 7 & 7], formats[flags >> 10 & 7]
        result = "f32" if self.scaled else {0: "f16", 1: "f32", 2: "s32"}[flags >> 4 & 3]
        self._note_form(w, flags, a, b, f"{a_kind} x {b_kind} -> {result}")
        k = 32 // _BYTES[a_kind]
        share, part = m // len(ctas), n // len(ctas)
        own = lambda c: [w.index] if c is w.cta else []  # noqa: E731
        right = np.concatenate([_operand(c, b, part, bool(flags >> 16 & 1), b_kind, k, agent, own(c)) for c in ctas])
        lefts = [_operand(c, a, share, bool(flags >> 15 & 1), a_kind, k, agent, own(c)) for c in ctas]
        if flags >> 13 & 1:
            lefts = [-x for x in lefts]
        if flags >> 14 & 1:
            right = -right
        for i, cta in enumerate(ctas):
            left, other = lefts[i], right
            if self.scaled:
                left = left * self._scales(cta, scales[0], flags >> 29 & 3, flags, share, agent)
                other = right * self._scales(cta, scales[1], flags >> 4 & 3, flags, n, agent)
            if result == "s32":
                products = (left.astype(np.float64) @ other.astype(np.float64).T).astype(np.int64)
            else:
                products = left @ other.T
            for c, memory, lanes, halves, units, rows, columns in goals:
                if c != i:
                    continue
                new = products[rows.start - i * share : rows.stop - i * share, columns]
                place = (
                    (slice(None), slice(column, column + wide))
                    if len(lanes) == 128
                    else (lanes, np.arange(column, column + wide))
                )
                view = {"f32": memory.f32, "s32": memory.s32, "f16": memory.cells}[result]
                if add:
                    memory.note_read(units, agent)
                    old = view[place]
                    if result == "f16":
                        old = (old & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32)
                    new = new + old
                memory.note_write(units, agent)
                if result == "f16":
                    new = new.astype(np.float16).view(np.uint16).astype(np.uint32)
                elif result == "s32" and flags & 8:
                    new = np.clip(new, -(1 << 31), (1 << 31) - 1)
                view[place] = new
                memory.writing[halves, column : column + wide] -= 1

    def _note_form(self, w: Any, flags: int, a: int, b: int, formats: str) -> None:
        decided = (flags, a >> 61, b >> 61)
        if decided not in self.forms:
            m, n = (flags >> 24 & 31) * 16, (flags >> 17 & 63) * 8
            self.forms[decided] = product_form(self.opcode, m, n, formats, flags, a, b)
        w.cta.machine.assembler.forms.add(self.forms[decided])

    def _scales(self, cta: Any, address: int, first: int, flags: int, extent: int, agent: Agent) -> Any:
        """(extent, k): the scale of each element. That of row i is in lane i % 32, the same in all four parts of 32
        lanes, and column i / 32; those of one product are bytes of the word, from `first` on."""
        memory: TensorMemory = cta.tensor
        row, column = split_address(address & 0x3FFFFFFF)
        if row:
            raise PtxError(f"scale factors at lane {row}")
        wide = -(-extent // 32)
        memory.check(column, wide)
        memory.note_read(memory.units(range(8), column, wide), agent)
        cells = memory.cells[:, column : column + wide].reshape(4, 32, wide)
        if (cells != cells[0]).any():
            raise PtxError("scale factors differ between the four parts of tensor memory")
        k = 64 if "f4" in self.kind[2:4] else 32
        count = k // self.per
        words = np.ascontiguousarray(cells[0].T).reshape(-1)[:extent]  # row 32 c + l
        found = words.view(np.uint8).reshape(-1, 4)[:, first : first + count]
        values = UE8M0[found] if flags >> 23 & 1 else from_bits(found & 0x7F, "e4m3")
        return np.repeat(values, self.per, 1)
