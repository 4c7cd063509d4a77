"""cvt and cvta."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.machine.assembler import LANES, SHARED_WINDOW, VIEW, Assembler, Closure, builds, columns, put, raw
from cutegen.machine.floats import from_bits, to_bits
from cutegen.machine.parser import Immediate, Instruction, PtxError

_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_PACKED = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2", "e2m1x2": "e2m1"}


@builds("cvt")
def _convert(asm: Assembler, ins: Instruction) -> Closure:
    target_kind, source_kind = ins.opcode[-2:]
    if target_kind in _PACKED or source_kind in _PACKED:
        return _convert_pair(asm, ins, target_kind, source_kind)
    target, source = asm.target(ins.operands[0]), asm.source(ins.operands[1], _holder(source_kind))
    change = _conversion(ins, target_kind, source_kind)
    stored = raw(asm.program.types[ins.operands[0].name])  # type: ignore[union-attr]
    wide = np.dtype(stored).itemsize > np.dtype(raw(_holder(target_kind))).itemsize
    signed = {2: np.int16, 4: np.int32, 8: np.int64}[np.dtype(stored).itemsize]

    def run(w: Any) -> None:
        value = change(w.r[source])
        if wide:  # a narrow integer in a wide register is extended by its own sign
            value = value.astype(signed)
        put(w, target, value.view(stored))

    return run


def _holder(kind: str) -> str:
    """The integer type that holds a value of this kind."""
    return f"b{ {'bf16': 16, 'f16': 16, 'e4m3': 8, 'e5m2': 8}.get(kind) or kind[1:] }"


def _conversion(ins: Instruction, target: str, source: str) -> Any:
    rounding = next((_ROUND[o] for o in ins.opcode if o in _ROUND), np.trunc)
    saturates = bool({"sat", "satfinite"} & set(ins.opcode))
    narrow = VIEW.get(source)

    def read(value: Any) -> Any:
        if source in ("f16", "bf16"):
            return from_bits(value.astype(np.uint16), source)
        if np.dtype(narrow).itemsize < value.itemsize:
            value = value.astype(raw(_holder(source)))
        return value.view(narrow)

    if target in ("f16", "bf16"):
        return lambda value: to_bits(read(value), target, saturates)
    view = VIEW[target]
    if "f" in target:
        if saturates:
            return lambda value: np.clip(np.nan_to_num(read(value), nan=0.0), 0, 1).astype(view)
        if any(o in _ROUND for o in ins.opcode):
            return lambda value: rounding(read(value)).astype(view)
        return lambda value: read(value).astype(view)
    if "f" not in source:
        if saturates:
            limits = np.iinfo(view)
            return lambda value: np.clip(read(value).astype(np.int64), limits.min, limits.max).astype(view)
        return lambda value: read(value).astype(view)
    limits = np.iinfo(view)

    def to_integer(value: Any) -> Any:
        whole = np.nan_to_num(rounding(read(value).astype(np.float64)), nan=0.0)
        clipped = np.clip(whole, float(limits.min), float(limits.max))
        return np.where(whole >= float(limits.max), limits.max, clipped.astype(view)).astype(view)

    return to_integer


def _convert_pair(asm: Assembler, ins: Instruction, target_kind: str, source_kind: str) -> Closure:
    """Two values at once: cvt.x2.f32 d, high, low, or one packed register to another."""
    target = asm.target(ins.operands[0])
    finite, relu = "satfinite" in ins.opcode, "relu" in ins.opcode
    to, origin = _PACKED.get(target_kind), _PACKED.get(source_kind)
    if to is None or origin == "e2m1":
        raise PtxError(f"cvt to {target_kind} of {source_kind} is not simulated")
    if origin is None:
        high, low = (asm.source(o, "b32") for o in ins.operands[1:3])

        def read(w: Any) -> Any:
            return columns(w, [low, high], np.uint32).view(np.float32)
    else:
        source = asm.source(ins.operands[1], "b16" if origin in ("e4m3", "e5m2") else "b32")

        def read(w: Any) -> Any:
            dtype = np.uint8 if origin in ("e4m3", "e5m2") else np.uint16
            return from_bits(np.ascontiguousarray(w.r[source]).view(dtype).reshape(LANES, 2), origin)

    packed = np.uint16 if to in ("e4m3", "e5m2") else np.uint32

    def run(w: Any) -> None:
        values = read(w)
        if relu:
            values = np.maximum(values, 0)
        bits = np.ascontiguousarray(to_bits(values, to, finite))
        put(w, target, bits[:, 0] | bits[:, 1] << 4 if to == "e2m1" else bits.view(packed)[:, 0])

    return run


@builds("cvta")
def _convert_address(asm: Assembler, ins: Instruction) -> Closure:
    """Parameters have generic addresses already; global ones are generic; shared ones get their window."""
    space = next(o for o in ins.opcode[1:] if o != "to")
    target, source = asm.target(ins.operands[0]), asm.source(ins.operands[1], "b64")
    if not space.startswith("shared"):
        if space not in ("param", "global"):
            raise PtxError(f"cvta.{space} is not simulated")
        return lambda w: put(w, target, w.r[source])
    window = np.uint64(SHARED_WINDOW)
    if "to" in ins.opcode:
        return lambda w: put(w, target, w.r[source] - window)

    def to_generic(w: Any) -> None:
        put(w, target, w.r[source] + window)

    if isinstance(ins.operands[1], Immediate):
        raise PtxError("cvta of a constant is not simulated")
    return to_generic
