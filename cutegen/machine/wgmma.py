"""WGMMA: asynchronous products of a warpgroup.

A product reads its operands and writes its accumulators at some time between its issue and the wait_group that covers
it. Accumulators are NaN in the registers until then, so code that looks too early sees it.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from cutegen.machine.assembler import LANES, Assembler, Closure, builds
from cutegen.machine.barriers import Waitable
from cutegen.machine.control import converged
from cutegen.machine.floats import from_bits
from cutegen.machine.memory import CHUNK
from cutegen.machine.parser import Immediate, Instruction, PtxError, Vector
from cutegen.machine.races import Agent, published

KEPT = 512  # products that a warp may be behind others of its warpgroup
_LANE = np.arange(LANES)
_SPANS = {0: 16, 1: 128, 2: 64, 3: 32}  # bytes that a descriptor's swizzle mode repeats after; 0: not swizzled
SWIZZLE = {0: 0, 1: 7, 2: 3, 3: 1}
_BYTES = {"bf16": 2, "f16": 2, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1, "tf32": 4}


class Product:
    """One wgmma.mma_async of four warps. parts: per warp index in the group, (accumulator slots, A slots, scale)."""

    def __init__(self, shape: Any) -> None:
        self.shape, self.parts, self.agents, self.warps = shape, dict[int, Any](), list[Agent](), list[int]()
        self.descriptors: Any = None


class Warpgroup(Waitable):
    """Products in the order of issue. issued, committed: per warp, counts of products; groups: ends of its groups."""

    def __init__(self, warps: list[Any], actors: int) -> None:
        super().__init__(actors)
        self.warps = warps
        self.queue: list[Product] = []
        self.done = 0  # products that ran
        self.known: dict[int, Any] = {}  # by how many ran, what those know who waited for them
        self.issued = [0] * 4
        self.groups: list[list[int]] = [[] for _ in range(4)]

    def __str__(self) -> str:
        return f"its warpgroup's products: {self.done} ran, {self.issued} issued per warp"

    def label(self) -> str:
        return "its warpgroup's products"

    def product(self, place: int, shape: Any) -> Product:
        """The next product of the warp at `place`; the first warp that issues it makes it."""
        index = self.issued[place] - self.done
        self.issued[place] += 1
        if index == len(self.queue):
            self.queue.append(Product(shape))
        if self.queue[index].shape is not shape:
            raise PtxError("the warps of a warpgroup issue different WGMMAs")
        return self.queue[index]

    def ready(self) -> bool:
        return bool(self.queue) and len(self.queue[0].parts) == 4

    def run_next(self) -> None:
        product = self.queue.pop(0)
        product.shape.multiply(self, product)
        for agent in product.agents:
            self.channel.give(published(agent))
        self.done += 1
        self.known[self.done] = self.channel.gathered.copy()
        self.known.pop(self.done - KEPT, None)
        for place, warp in enumerate(self.warps):
            self._retire(warp, product.parts[place][0])
        self.wake()

    def _retire(self, warp: Any, slots: tuple[int, ...]) -> None:
        """Accumulators that no later product works on become visible."""
        held = warp.inflight[slots]
        held[1] -= 1
        if held[1] == 0:
            for slot, values in zip(slots, held[0].view(np.uint32).take(_element_of(len(slots)))):
                warp.r[slot] = values
            del warp.inflight[slots]


def _hold(warp: Any, slots: tuple[int, ...]) -> None:
    """Takes accumulators out of the registers while a product works on them: [elements (16, n), products to come]."""
    if slots not in warp.inflight:
        if any(set(slots) & set(other) for other in warp.inflight):
            raise PtxError("a WGMMA in flight shares part of its accumulators with another")
        values = np.concatenate([warp.r[s] for s in slots])
        warp.inflight[slots] = [values.take(_register_of(len(slots))), 0]
        poison = np.full(LANES, 0x7FC0ACC0, np.uint32)
        for slot in slots:
            warp.r[slot] = poison
    warp.inflight[slots][1] += 1


@functools.cache
def _element_of(slots: int) -> Any:
    """(slots, lanes): the element of a warp's (16, n) that each accumulator register holds."""
    i, lane = np.arange(slots)[:, None], _LANE[None, :]
    rows, columns = lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2
    return rows * 2 * slots + columns


@functools.cache
def _register_of(slots: int) -> Any:
    """And the other way round."""
    return np.argsort(_element_of(slots), axis=None).reshape(16, 2 * slots)


class Shape:
    """What one wgmma instruction of the program is: sizes, types, majors."""

    def __init__(self, asm: Assembler, ins: Instruction) -> None:
        sizes = re.fullmatch(r"m64n(\d+)k(\d+)", ins.opcode[4])
        assert sizes
        self.n, self.k = int(sizes[1]), int(sizes[2])
        result, self.a_type, self.b_type = [word for word in ins.opcode[5:] if word != "satfinite"][:3]
        if result not in ("f32", "s32") or self.a_type not in _BYTES or self.a_type == "tf32":
            raise PtxError("this type of WGMMA is not simulated")
        self.integer = result == "s32"
        if self.integer and "satfinite" not in ins.opcode:
            raise PtxError("a WGMMA whose integers wrap around is not simulated")
        d, a, b, scale, *flags = ins.operands
        self.accumulators = tuple(asm.target(o) for o in asm.items(d))
        self.a_slots = tuple(asm.source(o, "b32") for o in asm.items(a)) if isinstance(a, Vector) else None
        self.a_slot = None if self.a_slots else asm.source(a, "b64")
        self.b_slot, self.scale = asm.source(b, "b64"), asm.source(scale, "pred")
        bits = [f.bits for f in flags if isinstance(f, Immediate)]
        self.signs = (bits[0], bits[1]) if len(bits) >= 2 else (1, 1)
        majors = bits[2:]
        self.a_mn_major = bool(majors[0]) if len(majors) == 2 else False
        self.b_mn_major = bool(majors[-1]) if majors else False

    def multiply(self, group: Warpgroup, product: Product) -> None:
        cta = group.warps[0].cta
        a_descriptor, b_descriptor = product.descriptors
        b = self._operand(cta, product, b_descriptor, self.n, self.b_mn_major, self.b_type)
        if self.a_slots is None:
            a = self._operand(cta, product, a_descriptor, 64, self.a_mn_major, self.a_type)
        else:
            a = np.concatenate([self._registers(group.warps[i], product.parts[i][1]) for i in range(4)])
        if self.signs != (1, 1):
            a, b = a * self.signs[0], b * self.signs[1]
        old = np.zeros((4, 16, self.n), np.int32 if self.integer else np.float32)
        held = [warp.inflight[product.parts[i][0]] for i, warp in enumerate(group.warps)]
        for place in range(4):
            if product.parts[place][2]:
                old[place] = held[place][0].view(old.dtype)
        new = self._sum(a, b, old.reshape(64, self.n)).astype(old.dtype, copy=False).reshape(old.shape)
        for place in range(4):
            held[place][0] = new[place]

    def _sum(self, a: Any, b: Any, old: Any) -> Any:
        """old + a @ b.T, as the instruction sums."""
        if self.integer:
            limits = np.iinfo(np.int32)
            # No product of 8 bits and none of their sums is rounded in f64.
            return np.clip(old + a.astype(np.float64) @ b.astype(np.float64).T, limits.min, limits.max)
        if _BYTES[self.a_type] == 1:
            return _sum_fp8(a, b, old)
        return old + a @ b.T

    def _registers(self, warp: Any, slots: tuple[int, ...]) -> Any:
        """(16, k) of one warp: registers are in the order rows 0-7, rows 8-15, then the second half of k."""
        per = 4 // _BYTES[self.a_type]
        kind = np.uint16 if per == 2 else np.uint8
        out = np.empty((16, self.k), kind)
        for i, slot in enumerate(slots):
            values = np.ascontiguousarray(warp.r[slot]).view(kind).reshape(LANES, per)
            for j in range(per):
                out[_LANE // 4 + 8 * (i % 2), (_LANE % 4) * per + j + self.k // 2 * (i // 2)] = values[:, j]
        return self._values(out, self.a_type)

    def _values(self, bits: Any, kind: str) -> Any:
        if kind in ("s8", "u8"):
            return bits.view(np.int8 if kind == "s8" else np.uint8).astype(np.int32)
        return from_bits(bits, kind)

    def _operand(self, cta: Any, product: Product, descriptor: int, extent: int, mn_major: bool, kind: str) -> Any:
        """(extent, k) values that a descriptor names."""
        low, high, chunks, words = _places(descriptor, extent, mn_major, _BYTES[kind], self.k)
        cta.shared.check(low, high)
        cta.shared.read_async(chunks, "WGMMA", product.agents, product.warps)
        return self._values(cta.shared.words[_BYTES[kind]].take(words), kind)


def _sum_fp8(a: Any, b: Any, old: Any) -> Any:
    """Products and sum are aligned to the largest of them and keep 14 bits each, as Hopper's tensor core is reported to
    do (DeepSeek-V3 technical report, arXiv:2412.19437, section 3.5.2)."""
    terms = np.empty((a.shape[1] + 1, *old.shape), np.float32)
    np.multiply(a.T[:, :, None], b.T[:, None, :], out=terms[:-1])
    terms[-1] = old
    with np.errstate(invalid="ignore"):
        largest = np.maximum(terms.max(0), -terms.min(0))
        unit = np.ldexp(np.float32(1), np.frexp(largest)[1] - 14)
        terms /= unit
        np.trunc(terms, out=terms)
        return terms.sum(0) * unit  # of whole numbers that f32 holds, whatever their order


@functools.lru_cache(maxsize=1024)
def _places(descriptor: int, extent: int, mn_major: bool, size: int, k: int) -> tuple[int, int, Any, Any]:
    """Where elements of `size` bytes lie that a descriptor names: the first byte, the end, chunks of 16 bytes, and
    numbers of words (extent, k)."""
    if descriptor >> 49 & 7:
        raise PtxError("a WGMMA descriptor with a base offset is not simulated")
    mode = descriptor >> 62
    offsets = find_offsets(mode, descriptor >> 16 & 0x3FFF, descriptor >> 32 & 0x3FFF, extent, mn_major, size, k)
    address = ((descriptor & 0x3FFF) << 4) + offsets
    address ^= (address >> 7 & SWIZZLE[mode]) << 4
    return int(address.min()), int(address.max()) + size, np.unique(address // CHUNK), address // size


@functools.cache
def find_offsets(mode: int, leading: int, stride: int, extent: int, mn_major: bool, size: int, k: int) -> Any:
    """(extent, k) byte offsets before swizzling: core matrices are 8 rows of 16 bytes, of `span` bytes when swizzled;
    leading and stride (in 16 bytes) say how far the next one is."""
    span, leading, stride = _SPANS[mode], leading * 16, stride * 16
    i, j = np.arange(extent)[:, None], np.arange(k)[None, :]
    if mn_major:
        per = span // size  # elements along M or N that lie together
        far, near = (stride, leading) if mode == 0 else (leading, stride)
        return i % per * size + i // per * far + j % 8 * span + j // 8 * near
    byte = j * size
    beyond = byte // CHUNK * leading + byte % CHUNK if mode == 0 else byte
    return i % 8 * span + i // 8 * stride + beyond


@builds("wgmma")
def _wgmma(asm: Assembler, ins: Instruction) -> Closure:
    action = ins.opcode[1]
    if action == "fence":
        return converged(lambda w: None)
    if action == "commit_group":
        return converged(_commit)
    if action == "wait_group":
        return converged(_wait(ins))
    shape = Shape(asm, ins)

    def issue(w: Any) -> None:
        group, place = w.cta.warpgroup(w), w.index % 4
        product = group.product(place, shape)
        descriptors = (None if shape.a_slot is None else _same(w, shape.a_slot), _same(w, shape.b_slot))
        if product.descriptors not in (None, descriptors):
            raise PtxError("the warps of a warpgroup pass different descriptors")
        product.descriptors = descriptors
        w.agent.pc = w.pc - 1
        product.agents.append(w.agent.issue())
        product.warps.append(w.index)
        product.parts[place] = (shape.accumulators, shape.a_slots, bool(w.r[shape.scale][0]))
        _hold(w, shape.accumulators)
        if len(product.parts) == 4:
            w.cta.machine.submit_product(group)
            group.wake()

    return converged(issue)


def _same(w: Any, slot: int) -> int:
    values = w.r[slot]
    if np.count_nonzero(values != values[0]):
        raise PtxError("the lanes pass different descriptors")
    return int(values[0])


def _commit(w: Any) -> None:
    group, place = w.cta.warpgroup(w), w.index % 4
    group.groups[place].append(group.issued[place])


def _wait(ins: Instruction) -> Closure:
    allowed = ins.operands[0].bits  # type: ignore[union-attr]

    def run(w: Any) -> Any:
        group, place = w.cta.warpgroup(w), w.index % 4
        ends = group.groups[place]
        needed = ends[-1 - allowed] if len(ends) > allowed else 0
        while group.done < needed:
            if not group.ready():
                return w.block(group, "waits for", again=True)
            group.run_next()
        if needed in group.known:
            w.agent.acquire(group.known[needed])
        del ends[: max(0, len(ends) - allowed)]
        return None

    return run
