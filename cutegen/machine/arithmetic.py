"""Integer, logical and floating-point instructions, comparisons, selections and moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.machine.assembler import LANES, VIEW, Assembler, Closure, builds, columns, put, raw
from cutegen.machine.floats import from_bits, half_view, pack_halves, unpack_halves
from cutegen.machine.parser import Immediate, Instruction, PtxError, Vector


def _kind(ins: Instruction) -> str:
    return ins.opcode[-1]


def _emit(asm: Assembler, ins: Instruction, function: Any, kinds: tuple[str, ...], result: str) -> Closure:
    """One result out of up to three sources, each seen as its type."""
    target = asm.target(ins.operands[0])
    sources = [asm.source(o, k) for o, k in zip(ins.operands[1:], kinds)]
    views = [VIEW[k] for k in kinds]
    stored = raw(result)
    same = {*views, stored} == {stored}  # nothing to be seen as another type
    if same and len(sources) == 1:
        (a,) = sources

        def run(w: Any) -> None:
            r = w.r
            value = function(r[a])
            r[target] = value if w.mask is None else np.where(w.mask, value, r[target])

    elif same and len(sources) == 2:
        a, b = sources

        def run(w: Any) -> None:
            r = w.r
            value = function(r[a], r[b])
            r[target] = value if w.mask is None else np.where(w.mask, value, r[target])

    elif len(sources) == 1:
        (a,), (ta,) = sources, views

        def run(w: Any) -> None:
            r = w.r
            value = function(r[a].view(ta)).view(stored)
            r[target] = value if w.mask is None else np.where(w.mask, value, r[target])

    elif len(sources) == 2:
        (a, b), (ta, tb) = sources, views

        def run(w: Any) -> None:
            r = w.r
            value = function(r[a].view(ta), r[b].view(tb)).view(stored)
            r[target] = value if w.mask is None else np.where(w.mask, value, r[target])

    else:
        (a, b, c), (ta, tb, tc) = sources, views

        def run(w: Any) -> None:
            r = w.r
            value = function(r[a].view(ta), r[b].view(tb), r[c].view(tc)).view(stored)
            r[target] = value if w.mask is None else np.where(w.mask, value, r[target])

    return run


def _divide(a: Any, b: Any) -> Any:
    quotient = a // b  # rounds down; PTX rounds towards zero
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))


def _remainder(a: Any, b: Any) -> Any:
    return a - _divide(a, b) * b


def _half_fma(a: Any, b: Any, c: Any) -> Any:
    return a.astype(np.float64) * b + c


def _fma(a: Any, b: Any, c: Any) -> Any:
    return np.add(np.multiply(a, b, dtype=np.float64), c).astype(np.float32)


def _wide(kind: str) -> Any:
    return np.dtype(VIEW[kind[0] + str(2 * int(kind[1:]))]).type


_FLOAT: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.fmin, "max": np.fmax,
    "abs": np.abs, "neg": np.negative, "rcp": np.reciprocal, "sqrt": np.sqrt, "ex2": np.exp2, "lg2": np.log2,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "rsqrt": lambda a: (1.0 / np.sqrt(a)).astype(a.dtype),
    "fma": _fma, "mad": _fma,
}  # fmt: skip
_INTEGER: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "div": _divide, "rem": _remainder, "min": np.minimum, "max": np.maximum,
    "abs": np.abs, "neg": np.negative, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert, "cnot": lambda a: (a == 0).astype(a.dtype),
}  # fmt: skip
_ARITY = {"fma": 3, "mad": 3, **dict.fromkeys(("abs", "neg", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"), 1)}
_ARITY |= dict.fromkeys(("tanh", "not", "cnot", "popc", "clz", "brev"), 1)


@builds(*_FLOAT, *_INTEGER)
def _arithmetic(asm: Assembler, ins: Instruction) -> Closure:
    name, kind = ins.opcode[0], _kind(ins)
    if kind in ("f16", "bf16") and ins.opcode[-2] == "f32":
        return _mixed(asm, ins, name, kind)
    if "f" in kind and name not in ("and", "or", "xor", "not"):
        return _floating(asm, ins, name, kind)
    if name in ("mul", "mad"):
        return _product(asm, ins, name, kind)
    function = _INTEGER[name]
    if name in ("add", "sub"):  # of two's complements, the same bits as of unsigned integers
        kind = "u" + kind[1:]
    if kind == "pred" and name == "not":
        function = np.logical_not
    if "relu" in ins.opcode:
        plain = function
        function = lambda *values: np.maximum(plain(*values), 0)  # noqa: E731
    return _emit(asm, ins, function, (kind,) * _ARITY.get(name, 2), kind)


def _floating(asm: Assembler, ins: Instruction, name: str, kind: str) -> Closure:
    arity = _ARITY.get(name, 2)
    function = _FLOAT[name]
    if "NaN" in ins.opcode:
        function = {"min": np.minimum, "max": np.maximum}[name]
    if name in ("min", "max") and len(ins.operands) == 4:  # of three
        arity, two = 3, function
        function = lambda a, b, c: two(two(a, b), c)  # noqa: E731
    if kind in ("f32", "f64", "f32x2"):
        if "xorsign" in ins.opcode:
            raise PtxError("min and max with xorsign are not simulated")
        if "sat" in ins.opcode:
            plain = function
            return _emit(asm, ins, lambda *v: np.clip(np.nan_to_num(plain(*v), nan=0.0), 0, 1), (kind,) * arity, kind)
        return _emit(asm, ins, function, (kind,) * arity, kind)
    if name in ("fma", "mad"):
        function = _half_fma  # products of halves are exact in f64, the sum is rounded once
    relu = "relu" in ins.opcode

    def halves(*values: Any) -> Any:
        result = function(*(unpack_halves(v, kind).astype(np.float64) for v in values))
        return pack_halves(np.maximum(result, 0) if relu else result, kind)

    return _emit(asm, ins, halves, (half_view(kind),) * arity, half_view(kind))


def _mixed(asm: Assembler, ins: Instruction, name: str, kind: str) -> Closure:
    """add, sub and fma of f32 (sm_100 on) whose sources but the last, of f32, have 16 bits."""
    if "sat" in ins.opcode:
        raise PtxError(f"{'.'.join(ins.opcode)} is not simulated")
    function, halves = _FLOAT[name], _ARITY.get(name, 2) - 1

    def run(*values: Any) -> Any:
        return function(*(from_bits(v, kind).astype(np.float32) for v in values[:-1]), values[-1])

    return _emit(asm, ins, run, ("b16",) * halves + ("f32",), "f32")


def _product(asm: Assembler, ins: Instruction, name: str, kind: str) -> Closure:
    wide = _wide(kind) if kind[1:] != "64" else None
    if "wide" in ins.opcode:
        result = kind[0] + str(2 * int(kind[1:]))
        if name == "mul":
            return _emit(asm, ins, lambda a, b: a.astype(wide) * b.astype(wide), (kind, kind), result)
        return _emit(asm, ins, lambda a, b, c: a.astype(wide) * b.astype(wide) + c, (kind, kind, result), result)
    if "hi" in ins.opcode:
        bits, narrow = int(kind[1:]), VIEW[kind]
        if wide is None:

            def high(a: Any, b: Any) -> Any:
                return np.array([(int(x) * int(y)) >> bits for x, y in zip(a, b)], dtype=object).astype(narrow)
        else:

            def high(a: Any, b: Any) -> Any:
                return ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(narrow)

        if name == "mul":
            return _emit(asm, ins, high, (kind, kind), kind)
        return _emit(asm, ins, lambda a, b, c: high(a, b) + c, (kind,) * 3, kind)
    kind = "u" + kind[1:]  # the low half has the same bits with and without a sign
    if name == "mul":
        return _emit(asm, ins, np.multiply, (kind, kind), kind)
    return _emit(asm, ins, lambda a, b, c: a * b + c, (kind,) * 3, kind)


@builds("shl", "shr")
def _shift(asm: Assembler, ins: Instruction) -> Closure:
    kind, name = _kind(ins), ins.opcode[0]
    function = np.left_shift if name == "shl" else np.right_shift
    view, bits = VIEW[kind], int(kind[1:])
    amount = ins.operands[2]
    if isinstance(amount, Immediate) and 0 <= amount.bits < bits:
        by = view(amount.bits)
        return _emit(asm, ins, lambda a: function(a, by), (kind,), kind)

    def shift(a: Any, amount: Any) -> Any:
        clamped = np.minimum(amount, bits).astype(view)
        if name == "shr" and kind[0] == "s":
            clamped = np.minimum(clamped, bits - 1).astype(view)
        moved = function(a, clamped)
        return moved if kind[0] == "s" else np.where(clamped >= bits, view(0), moved)

    return _emit(asm, ins, shift, (kind, "u32"), kind)


@builds("shf")
def _funnel(asm: Assembler, ins: Instruction) -> Closure:
    _, direction, mode, kind = ins.opcode
    target = asm.target(ins.operands[0])
    low, high, amount = (asm.source(o, kind) for o in ins.operands[1:])

    def run(w: Any) -> None:
        r = w.r
        n = (np.minimum(r[amount], 32) if mode == "clamp" else r[amount] & 31).astype(np.uint64)
        both = (r[high].astype(np.uint64) << np.uint64(32)) | r[low]
        value = both >> n if direction == "r" else (both << n) >> np.uint64(32)
        put(w, target, value.astype(np.uint32))

    return run


@builds("lop3")
def _lop3(asm: Assembler, ins: Instruction) -> Closure:
    table = ins.operands[4].bits  # type: ignore[union-attr]

    def function(a: Any, b: Any, c: Any) -> Any:
        result = np.zeros(LANES, np.uint32)
        for i in range(8):
            if table >> i & 1:
                result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        return result

    return _emit(asm, ins, function, ("b32",) * 3, "b32")


@builds("prmt")
def _permute(asm: Assembler, ins: Instruction) -> Closure:
    if ins.opcode[-1] != "b32":
        raise PtxError("prmt has a mode that is not simulated")

    def function(a: Any, b: Any, selector: Any) -> Any:
        data = np.stack((a, b), 1).view(np.uint8)  # 8 bytes per lane
        picks = (selector[:, None] >> (4 * np.arange(4, dtype=np.uint32))) & 15
        chosen = np.take_along_axis(data, (picks & 7).astype(np.int64), 1)
        sign = np.where(chosen & 0x80, np.uint8(255), np.uint8(0))
        return np.ascontiguousarray(np.where(picks & 8, sign, chosen).astype(np.uint8)).view(np.uint32)[:, 0]

    return _emit(asm, ins, function, ("b32",) * 3, "b32")


def _extract(a: Any, position: Any, length: Any) -> Any:
    wide = np.uint64 if a.dtype.kind == "u" else np.int64
    shifted = a.astype(wide) >> (position & 255).astype(wide)
    n = (length & 255).astype(wide)
    value = shifted & ((wide(1) << n) - wide(1))
    if wide is np.int64:
        value = np.where((n > 0) & ((value >> np.maximum(n - 1, 0)) & 1 == 1), value - (wide(1) << n), value)
    return value.astype(a.dtype)


@builds("bfe")
def _bit_field(asm: Assembler, ins: Instruction) -> Closure:
    kind = _kind(ins)
    if kind[1:] != "32":
        raise PtxError("bfe of 64 bits is not simulated")
    return _emit(asm, ins, _extract, (kind, "u32", "u32"), kind)


@builds("bfi")
def _insert(asm: Assembler, ins: Instruction) -> Closure:
    kind = _kind(ins)
    target = asm.target(ins.operands[0])
    a, b, position, length = (asm.source(o, k) for o, k in zip(ins.operands[1:], (kind, kind, "u32", "u32")))
    dtype = raw(kind)

    def run(w: Any) -> None:
        r = w.r
        at, n = (r[position] & 255).astype(dtype), (r[length] & 255).astype(dtype)
        mask = ((dtype(1) << n) - dtype(1)) << at
        put(w, target, (r[b] & ~mask) | ((r[a] << at) & mask))

    return run


@builds("popc", "clz", "brev")
def _bits(asm: Assembler, ins: Instruction) -> Closure:
    name, kind = ins.opcode[0], _kind(ins)
    width = int(kind[1:])

    def function(a: Any) -> Any:
        text = [format(int(x), f"0{width}b") for x in a]
        if name == "brev":
            return np.array([int(t[::-1], 2) for t in text], raw(kind))
        counts = [t.count("1") if name == "popc" else len(t) - len(t.lstrip("0")) for t in text]
        return np.array(counts, np.uint32)

    return _emit(asm, ins, function, (kind,), kind if name == "brev" else "b32")


_COMPARE: dict[str, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}  # fmt: skip


@builds("setp", "set")
def _compare(asm: Assembler, ins: Instruction) -> Closure:
    comparison, kind = ins.opcode[1], _kind(ins)
    combine = next((o for o in ins.opcode[2:-1] if o in ("and", "or", "xor")), None)
    unordered = "f" in kind and comparison.endswith("u") and len(comparison) == 3
    compare = _COMPARE[comparison if comparison in ("num", "nan") else comparison[:2]]
    view = VIEW[half_view(kind)] if kind in ("f16", "bf16") else VIEW[kind]
    p, q = asm.pair(ins.operands[0])
    a, b = (asm.source(o, kind) for o in ins.operands[1:3])
    c = asm.source(ins.operands[3], "pred") if combine else None
    floating = "f" in kind
    half = kind in ("f16", "bf16")

    def run(w: Any) -> None:
        x, y = w.r[a].view(view), w.r[b].view(view)
        if half:
            x, y = unpack_halves(x, kind), unpack_halves(y, kind)
        result = compare(x, y)
        if floating and (unordered or comparison == "ne"):
            nan = np.isnan(x) | np.isnan(y)
            result = result | nan if unordered else result & ~nan
        other = ~result
        if c is not None:
            result, other = (_BOOL[combine](v, w.r[c]) for v in (result, other))
        put(w, p, result)
        if q is not None:
            put(w, q, other)

    if ins.opcode[0] == "set":
        raise PtxError("set is not simulated")
    return run if q is not None or combine or floating else _emit(asm, ins, compare, (kind, kind), "pred")


_BOOL: dict[str | None, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


@builds("selp")
def _select(asm: Assembler, ins: Instruction) -> Closure:
    kind = _kind(ins)
    target = asm.target(ins.operands[0])
    a, b = (asm.source(o, kind) for o in ins.operands[1:3])
    p = asm.source(ins.operands[3], "pred")

    def run(w: Any) -> None:
        r = w.r
        put(w, target, np.where(r[p], r[a], r[b]))

    return run


@builds("mov")
def _move(asm: Assembler, ins: Instruction) -> Closure:
    kind = _kind(ins)
    destination, origin = ins.operands
    if isinstance(origin, Vector):
        part = f"b{int(kind[1:]) // len(origin.items)}"
        target, sources = asm.target(destination), [asm.source(o, part) for o in origin.items]
        narrow, dtype = raw(part), raw(kind)

        def pack(w: Any) -> None:
            both = columns(w, sources, narrow).view(dtype)
            put(w, target, both if kind == "b128" else both[:, 0])

        return pack
    if isinstance(destination, Vector):
        part = f"b{int(kind[1:]) // len(destination.items)}"
        targets, origin_slot, dtype = [asm.target(o) for o in destination.items], asm.source(origin, kind), raw(part)

        def unpack(w: Any) -> None:
            parts = np.ascontiguousarray(w.r[origin_slot]).view(dtype).reshape(LANES, -1)
            for i, target in enumerate(targets):
                put(w, target, parts[:, i].copy())

        return unpack
    target, slot = asm.target(destination), asm.source(origin, kind)
    timer = getattr(origin, "name", "") in ("%globaltimer", "%clock64", "%clock")

    if kind == "b128":
        return lambda w: put(w, target, w.r[slot])

    def copy(w: Any) -> None:
        r = w.r
        r[target] = r[slot] if w.mask is None else np.where(w.mask, r[slot], r[target])

    def tell_time(w: Any) -> None:
        put(w, target, np.full(LANES, w.cta.machine.turns, raw(kind)))

    return tell_time if timer else copy
