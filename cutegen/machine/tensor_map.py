"""The 128-byte tensor map (CUtensorMap) that CuTe DSL's host code packs, and the box of elements that one TMA moves.

Its layout is not published; what is read here was found by compiling copies of known tensors and looking at the words:

    word   0, 1    global address
           2       bits 4-6 rank - 1, bits 7-10 element type, bits 13-14 swizzle (0: none, 1: 32, 2: 64, 3: 128 bytes)
           3 .. 6  strides of dimensions 1 .. 4, in units of 16 bytes, low 32 bits
           7       4 more bits of each of them
           8 .. 12 extents of dimensions 0 .. 4, less one
          13       top byte: box extent of dimension 0, less one; below it the element strides, 3 bits each, less one
          14       box extents of dimensions 1 .. 4, less one, a byte each
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutegen.machine.memory import CHUNK, GlobalMemory
from cutegen.machine.parser import PtxError
from cutegen.machine.races import Agent

# Element type codes: bytes, and how a reduction sees them.
_TYPES = {
    0: (1, "u8"), 1: (2, "u16"), 2: (4, "u32"), 3: (4, "s32"), 4: (8, "u64"), 5: (8, "s64"),
    6: (2, "f16"), 7: (4, "f32"), 8: (4, "f32"), 9: (8, "f64"), 10: (2, "bf16"), 11: (1, "u4"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorMap:
    """dims, box: elements, innermost first. strides: bytes, of dimension 0 on. swizzle: how many bits of a 16-byte
    chunk's place are exchanged (0 .. 3)."""

    address: int
    element: int
    kind: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def box_bytes(self) -> int:
        return int(np.prod(self.box)) * self.element

    def place(self, coordinates: Iterable[int]) -> tuple[int, ...]:
        """Of a box: elements of 4 bits are taken in pairs."""
        first, *rest = coordinates
        return (first // 2 if self.kind == "u4" else first, *rest)

    def chunks(self, address: int) -> Any:
        """The 16-byte chunks of shared memory that the box fills when it is put at `address`, in box order."""
        if address % 128 or (self.box[0] * self.element) % CHUNK:
            raise PtxError(
                f"TMA needs a shared address that is a multiple of 128 and box rows that are a multiple of 16 bytes; "
                f"the address is {address}, a row has {self.box[0] * self.element} bytes"
            )
        chunk = address // CHUNK + np.arange(self.box_bytes // CHUNK)
        return chunk ^ (chunk >> 3 & ((1 << self.swizzle) - 1))

    def _clip(self, start: tuple[int, ...]) -> list[tuple[int, int]]:
        """The part of the box that lies in the tensor, as (first, end) per dimension."""
        return [(max(c, 0), max(max(c, 0), min(c + b, d))) for c, b, d in zip(start, self.box, self.dims)]

    def _view(self, memory: GlobalMemory, clipped: list[tuple[int, int]], agent: Agent, write: bool) -> Any:
        """(outermost .. innermost bytes) of the tensor's part, noted as read or written."""
        low = (self.address + sum(a * s for (a, _), s in zip(clipped, self.strides))) % 2**64
        high = low + sum((e - 1 - a) * s for (a, e), s in zip(clipped, self.strides)) + self.element
        region = memory.region(low, high, write)
        extents = [e - a for a, e in clipped]

        def part(array: Any, unit: int) -> Any:
            """The same of an array with an entry for each `unit` bytes of the region."""
            shape = (*reversed(extents[1:]), extents[0] * self.element // unit)
            steps = (*(s // unit * array.itemsize for s in reversed(self.strides[1 : len(extents)])), array.itemsize)
            return np.lib.stride_tricks.as_strided(array[(low - region.base) // unit :], shape, steps)

        late = part(region.late, region.unit) if agent.early and region.late is not None else np.zeros(1, bool)
        if late.any():
            if not memory.guessed:
                text = "TMA loads what the kernel in front may write, before griddepcontrol.wait"
                raise PtxError(f"{text}: {region.name}")
            return np.where(np.repeat(late, region.unit, -1), np.uint8(0xFF), part(region.bytes, 1))
        if write or region.shadow:
            steps = (low - region.base, extents[0] * self.element, *self.strides[1 : len(extents)])
            run = region.unit if any(step % CHUNK for step in steps) else CHUNK
            runs, width = part(region.places(run), run), run // region.unit
        if write:
            memory.note_write(region, runs, width, agent)
        elif region.shadow:
            region.shadow.read(runs, width, agent)
        return part(region.bytes, 1)

    def read(self, memory: GlobalMemory, start: tuple[int, ...], agent: Agent) -> Any:
        """(chunks, 16) bytes of the box at `start`; what is outside the tensor is zero."""
        out = np.zeros((*reversed(self.box[1:]), self.box[0] * self.element), np.uint8)
        clipped = self._clip(start)
        if all(e > a for a, e in clipped):
            out[self._inside(start, clipped)] = self._view(memory, clipped, agent, write=False)
        return out.reshape(-1, CHUNK)

    def write(self, memory: GlobalMemory, start: tuple[int, ...], data: Any, agent: Agent) -> None:
        """Puts (chunks, 16) bytes at `start`; what is outside the tensor is dropped."""
        clipped = self._clip(start)
        if all(e > a for a, e in clipped):
            box = data.reshape(*reversed(self.box[1:]), -1)[self._inside(start, clipped)]
            self._view(memory, clipped, agent, write=True)[...] = box

    def add(self, memory: GlobalMemory, start: tuple[int, ...], data: Any, agent: Agent) -> None:
        """Adds them. Reductions do not race with each other: what they touch is not noted as written."""
        clipped = self._clip(start)
        if all(e > a for a, e in clipped):
            box = data.reshape(*reversed(self.box[1:]), -1)[self._inside(start, clipped)]
            view = self._view(memory, clipped, agent, write=False)
            view[...] = add_bytes(np.ascontiguousarray(view), np.ascontiguousarray(box), self.kind)

    def _inside(self, start: tuple[int, ...], clipped: list[tuple[int, int]]) -> tuple[slice, ...]:
        parts = [slice(a - c, e - c) for (a, e), c in zip(clipped, start)]
        inner = slice(parts[0].start * self.element, parts[0].stop * self.element)
        return (*reversed(parts[1:]), inner)


def add_bytes(old: Any, new: Any, kind: str) -> Any:
    """The bytes of old + new, elements of a type each."""
    from cutegen.machine.floats import from_bits, to_bits

    if kind in ("bf16", "f16"):
        total = from_bits(old.view(np.uint16), kind) + from_bits(new.view(np.uint16), kind)
        return np.ascontiguousarray(to_bits(total, kind)).view(np.uint8)
    dtype = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "u32": np.uint32, "u64": np.uint64}[kind]
    return (old.view(dtype) + new.view(dtype)).view(np.uint8)


def decode(data: bytes) -> TensorMap:
    """PtxError: the bytes are no tensor map of tiles."""
    words = [int(w) for w in np.frombuffer(data, np.uint32)]
    rank = (words[2] >> 4 & 7) + 1
    code = words[2] >> 7 & 15
    if not 1 <= rank <= 5 or code not in _TYPES:
        raise PtxError(f"no tensor map: rank {rank}, element type {code}; words {[hex(w) for w in words]}")
    if words[13] & 0x7FFF:
        raise PtxError("a tensor map with element strides is not simulated")
    element, kind = _TYPES[code]
    strides = [element]
    for d in range(rank - 1):
        strides.append((words[3 + d] | (words[7] >> 4 * d & 15) << 32) * 16)
    box = [(words[13] >> 24) + 1] + [(words[14] >> 8 * d & 255) + 1 for d in range(rank - 1)]
    per = 2 if kind == "u4" else 1  # elements of 4 bits are taken in pairs
    box[0] //= per
    return TensorMap(
        address=words[0] | words[1] << 32,
        element=element,
        kind=kind,
        dims=((words[8] + 1) // per, *(w + 1 for w in words[9 : 8 + rank])),
        strides=tuple(strides),
        box=tuple(box),
        swizzle=words[2] >> 13 & 3,
    )
