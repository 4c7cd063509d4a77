"""mma.sync: products of one warp, all operands in registers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cutegen.machine.assembler import LANES, Assembler, Closure, builds, put
from cutegen.machine.control import converged
from cutegen.machine.floats import E2M1, UE8M0, from_bits
from cutegen.machine.parser import Instruction, PtxError

_BITS = {"bf16": 16, "f16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "e2m1": 4}


def _values(registers: Any, kind: str) -> Any:
    """(registers, lanes, elements) of 32-bit registers."""
    if kind == "e2m1":
        return E2M1[registers[..., None] >> (4 * np.arange(8, dtype=np.uint32)) & np.uint32(15)]
    dtype = np.uint16 if _BITS[kind] == 16 else np.uint8
    bits = np.ascontiguousarray(registers).view(dtype).reshape(*registers.shape, -1)
    if kind in ("s8", "u8"):
        return bits.view(np.int8 if kind == "s8" else np.uint8).astype(np.float64)
    return from_bits(bits, kind)


@builds("mma")
def _product(asm: Assembler, ins: Instruction) -> Closure:
    sizes = next((re.fullmatch(r"m16n8k(\d+)", o) for o in ins.opcode if o.startswith("m16n8k")), None)
    at = ins.opcode.index("col") + 1
    result, a_kind, b_kind, c_kind = ins.opcode[at : at + 4]
    if sizes is None or a_kind not in _BITS or b_kind not in _BITS or result != c_kind or result not in ("f32", "s32"):
        raise PtxError("this mma is not simulated")
    k, per = int(sizes[1]), 32 // _BITS[a_kind]
    d, a, b, c, *scales = ins.operands
    targets = [asm.target(o) for o in asm.items(d)]
    a_slots, b_slots = ([asm.source(o, "b32") for o in asm.items(v)] for v in (a, b))
    c_slots = [asm.source(o, "b32") for o in asm.items(c)]
    if len(a_slots) != k // (4 * per) * 2 or len(b_slots) != k // (4 * per):
        raise PtxError("this mma is not simulated")
    view = np.float32 if result == "f32" else np.int32
    factors = None
    if "block_scale" in ins.opcode:
        count = next(int(o[11]) for o in ins.opcode if o.startswith("scale_vec::"))
        small = ins.opcode[-1]
        sa, sa_pick, sb, sb_pick = scales
        factors = [
            (asm.source(asm.items(scale)[0], "b32"), [asm.source(o, "u16") for o in asm.items(pick)])
            for scale, pick in ((sa, sa_pick), (sb, sb_pick))
        ]

    def scale(w: Any, which: int) -> Any:
        """(rows, k)"""
        assert factors
        slot, picks = factors[which]
        byte, thread = (int(w.r[s][0]) for s in picks)
        words = w.r[slot].reshape(8, 4)
        # Of A, row g is held by the first of the two threads, row g + 8 by the second.
        words = words[:, 2 * thread : 2 * thread + 2].T.reshape(-1) if which == 0 else words[:, thread]
        found = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 4)[:, byte : byte + count]
        values = UE8M0[found] if small == "ue8m0" else from_bits(found & 0x7F, "e4m3")
        return np.repeat(values, k // count, 1)

    def run(w: Any) -> None:
        r = w.r
        left = _values(np.stack([r[s] for s in a_slots]), a_kind)  # (k halves, row halves), (g, t), e
        left = left.reshape(-1, 2, 8, 4, per).transpose(1, 2, 0, 3, 4).reshape(16, k)
        right = _values(np.stack([r[s] for s in b_slots]), b_kind)
        right = right.reshape(-1, 8, 4, per).transpose(1, 0, 2, 3).reshape(8, k)
        if factors:
            left, right = left * scale(w, 0), right * scale(w, 1)
        products = left @ right.T  # row h * 8 + g, column 2 t + e
        old = np.stack([r[s] for s in c_slots]).view(view)
        new = products.reshape(2, 8, 4, 2).transpose(0, 3, 1, 2).reshape(4, LANES) + old
        for target, values in zip(targets, new.astype(view).view(np.uint32)):
            put(w, target, values)

    return converged(run)
