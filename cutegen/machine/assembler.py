"""From instructions to closures: every register, constant and special register is one slot of a warp's register file.

A slot holds an array of 32 lanes, of unsigned integers as wide as the register (bool for a predicate). The arrays are
never changed in place, so a move shares them. A closure takes the warp and returns whether the warp's turn ends.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from cutegen.machine.parser import (
    Immediate,
    Instruction,
    Memory,
    Operand,
    Pair,
    Program,
    PtxError,
    Register,
    Symbol,
    Vector,
)

LANES = 32
DYNAMIC_SHARED = 1024  # where an sm_90 CTA's shared memory starts; what is below belongs to the system
PARAMETER_WINDOW = 1 << 60  # generic addresses of the parameter space
SHARED_WINDOW = 1 << 61  # generic addresses of shared memory; the offset is a shared::cluster address
CTA_BITS = 24
CTA_WINDOW = 1 << CTA_BITS  # a shared address is rank * CTA_WINDOW + the address within that CTA

RAW = {"pred": np.bool_, "8": np.uint8, "16": np.uint16, "32": np.uint32, "64": np.uint64, "128": np.uint64}
VIEW: dict[str, Any] = {
    **{f"u{n}": RAW[str(n)] for n in (8, 16, 32, 64)},
    **{f"b{n}": RAW[str(n)] for n in (8, 16, 32, 64)},
    "s8": np.int8,
    "s16": np.int16,
    "s32": np.int32,
    "s64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": np.uint16,
    "f16x2": np.uint32,
    "bf16x2": np.uint32,
    "f32x2": np.float32,
    "pred": np.bool_,
}
POISON = {np.uint8: 0xAD, np.uint16: 0x7FAD, np.uint32: 0x7FC0DEAD, np.uint64: 0x7FF8DEAD7FC0DEAD, np.bool_: False}

Closure = Callable[[Any], Any]
Builder = Callable[["Assembler", Instruction], Closure]
BUILDERS: dict[str, Builder] = {}


def builds(*opcodes: str) -> Callable[[Builder], Builder]:
    """Registers the function that makes the closure of instructions whose opcode starts with one of these."""

    def register(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(opcodes, builder))
        return builder

    return register


@functools.cache
def raw(kind: str) -> Any:
    """The unsigned numpy type of a PTX type such as s32."""
    return RAW[
        "pred" if kind == "pred" else {"f16x2": "32", "bf16x2": "32", "f32x2": "64"}.get(kind, kind.lstrip("bsufe"))
    ]


class Assembler:
    """code: a closure per instruction. initial: the register file that a warp starts with, but for `specials`.

    unknown: instructions that are not simulated. reached: per instruction, whether any launch executed it. forms: of
    the products that operands decide, see forms.py.
    """

    def __init__(self, program: Program, dynamic_bytes: int) -> None:
        self.program = program
        self.initial: list[np.ndarray[Any, Any]] = []
        self.slots: dict[object, int] = {}
        self.specials: dict[Any, int] = {}
        self.unknown: list[str] = []
        self.forms: set[str] = set()
        self.set_registers: list[int] = []  # what setmaxnreg asks for
        self.shared: dict[str, int] = {}
        top = DYNAMIC_SHARED
        for name, (align, size) in sorted(program.shared.items(), key=lambda item: item[1][1] == 0):
            top = -(-top // align) * align
            self.shared[name] = top
            top += size or dynamic_bytes
        self.shared_bytes = top
        self.code = [self._assemble(instruction) for instruction in program.instructions]
        self.reached = bytearray(len(self.code))

    def fresh(self) -> Assembler:
        """The same code, of which nothing was executed yet."""
        copied = copy.copy(self)
        copied.reached, copied.forms = bytearray(len(self.code)), set()
        return copied

    def _assemble(self, instruction: Instruction) -> Closure:
        builder = BUILDERS.get(instruction.opcode[0])
        try:
            if builder is None:
                raise PtxError("the machine does not know this instruction")
            closure = builder(self, instruction)
        except (PtxError, KeyError, IndexError, ValueError, AttributeError) as error:
            self.unknown.append(f"line {instruction.line}: {instruction.text}")
            return _unknown(instruction, error)
        if instruction.guard is None or instruction.opcode[0] in ("bra", "ret", "exit"):
            return closure
        return self._guarded(instruction.guard, closure)

    def _guarded(self, guard: tuple[Register, bool], closure: Closure) -> Closure:
        p, wanted = self.source(guard[0], "pred"), guard[1]

        def run(w: Any) -> Any:
            chosen = w.r[p] if wanted else ~w.r[p]
            mask = w.mask
            if mask is not None:
                chosen = chosen & mask
            if not np.count_nonzero(chosen):
                return None
            w.mask = chosen
            ends = closure(w)
            w.mask = mask
            return ends

        return run

    # -- operands --

    def slot(self, key: object, value: Any, dtype: Any) -> int:
        """The slot of this key, in which all lanes start with the value."""
        if (found := self.slots.get(key)) is None:
            found = self.slots[key] = len(self.initial)
            self.initial.append(np.full(LANES, value, dtype))
        return found

    def source(self, operand: Operand, kind: str) -> int:
        """The slot of a register or constant of this PTX type."""
        dtype = raw(kind)
        if isinstance(operand, Register):
            return self._register(operand.name)
        if isinstance(operand, Immediate):
            bits = operand.bits
        elif isinstance(operand, Symbol) and operand.name in self.shared:
            name = f"&{operand.name}"  # its address has the CTA's rank in it
            index = self.slot((name, dtype), 0, dtype)
            self.specials[(name, dtype)] = index
            return index
        elif isinstance(operand, Symbol):
            bits = self.address(operand)
        else:
            raise PtxError(f"{operand} is no plain operand")
        if dtype is np.bool_:
            return self.slot((dtype, bool(bits)), bool(bits), dtype)
        bits &= (1 << 8 * np.dtype(dtype).itemsize) - 1
        return self.slot((dtype, bits), bits, dtype)

    def address(self, symbol: Symbol) -> int:
        if symbol.name in self.shared:
            return self.shared[symbol.name]
        if symbol.name in self.program.parameters:
            return PARAMETER_WINDOW + self.program.parameters[symbol.name].offset
        raise PtxError(f"unknown name {symbol.name}")

    def target(self, operand: Operand) -> int:
        """The slot that a result goes to; `_` is a slot that nothing reads."""
        if isinstance(operand, Register):
            return self._register(operand.name)
        if isinstance(operand, Symbol) and operand.name == "_":
            return self.slot("_", 0, np.uint32)
        raise PtxError(f"{operand} is no destination")

    def _register(self, name: str) -> int:
        declared = self.program.types.get(name)
        if declared is None:
            wide = name in ("%globaltimer", "%clock64")
            index = self.slot(name, 0, np.uint64 if wide else np.uint32)
            self.specials[name] = index
            return index
        dtype = raw(declared)
        index = self.slot(name, POISON[dtype], dtype)
        if declared == "b128" and self.initial[index].ndim == 1:
            self.initial[index] = np.full((LANES, 2), POISON[dtype], dtype)
        return index

    def items(self, operand: Operand) -> tuple[Operand, ...]:
        return operand.items if isinstance(operand, Vector) else (operand,)

    def pair(self, operand: Operand) -> tuple[int, int | None]:
        if isinstance(operand, Pair):
            return self.target(operand.first), self.target(operand.second)
        return self.target(operand), None

    def place(self, operand: Operand, width: str) -> tuple[int, int]:
        """(slot, byte offset) of an address; `width` is the type of the address register."""
        assert isinstance(operand, Memory)
        return self.source(operand.base, width), operand.offset

    def address_type(self, operand: Operand) -> str:
        """b32 or b64: the width of the register that an address is in."""
        assert isinstance(operand, Memory)
        if isinstance(operand.base, Register):
            return self.program.types[operand.base.name]
        return "b32" if isinstance(operand.base, Symbol) and operand.base.name in self.shared else "b64"


def _unknown(instruction: Instruction, error: Exception) -> Closure:
    def run(w: Any) -> None:
        raise PtxError(f"{instruction.text}: {type(error).__name__}: {error}")

    return run


def columns(w: Any, slots: list[int], dtype: Any) -> Any:
    """(lanes, slots): registers side by side."""
    out = np.empty((LANES, len(slots)), dtype)
    for i, slot in enumerate(slots):
        out[:, i] = w.r[slot]
    return out


def put(w: Any, slot: int, value: Any) -> None:
    """Stores a result in the active lanes."""
    if w.mask is None:
        w.r[slot] = value
    elif w.r[slot].ndim == 2:  # of 128 bits
        w.r[slot] = np.where(w.mask[:, None], value, w.r[slot])
    else:
        w.r[slot] = np.where(w.mask, value, w.r[slot])
