"""Forms of Blackwell's instructions: which of them public kernels, which run on hardware, were executed right with.

A machine and a kernel that share a wrong idea of an instruction agree. NVIDIA's own kernels do not share ours: a form
that gives right results in them is calibrated. `tests/calibrate.py` writes the table, from a checkout of CUTLASS.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from cutegen.machine.assembler import Assembler
from cutegen.machine.parser import Instruction

TABLE = Path(__file__).with_name("forms.txt")
_NO_MEANING = {"L2::cache_hint", "1d", "2d", "3d", "4d", "5d"}
_SWIZZLES = {0: "no swizzle", 2: "128 B", 4: "64 B", 6: "32 B"}  # by a descriptor's layout type


def form_of(instruction: Instruction) -> str | None:
    """The form of an instruction that its text decides; None where it has none: Hopper has it, or, as for
    tcgen05.mma, operands decide."""
    opcode = instruction.opcode
    if opcode[0] in ("tcgen05", "clusterlaunchcontrol"):
        return None if opcode[1] == "mma" else _text(opcode)
    return _text(opcode) if opcode[0] == "mma" or (opcode[0] == "cp" and "cta_group::2" in opcode) else None


def _text(opcode: tuple[str, ...]) -> str:
    """Without what changes no result: hints, and how many dimensions a copy has."""
    return ".".join(o for o in opcode if o not in _NO_MEANING and not o.startswith("collector::"))


def product_form(opcode: tuple[str, ...], m: int, n: int, formats: str, flags: int, a: int, b: int) -> str:
    """The form of a tcgen05.mma. m, n: its extents, of which N counts by its alignment. formats: of A, B and D. flags:
    the instruction descriptor. a, b: descriptors of the operands."""
    major = ["MN" if flags >> bit & 1 else "K" for bit in (15, 16)]
    aligned = next(step for step in (32, 16, 8) if n % step == 0)
    operands = ", ".join(
        f"{name} {kind}-major in {_SWIZZLES[descriptor >> 61]}" for name, kind, descriptor in zip("AB", major, (a, b))
    )
    return f"{_text(opcode)}: M {m}, N in steps of {aligned}, {formats}, {operands}"


def executed_forms(assembler: Assembler) -> set[str]:
    """Forms of what launches of a kernel executed."""
    executed = (i for i, done in zip(assembler.program.instructions, assembler.reached) if done)
    return assembler.forms | {form for i in executed if (form := form_of(i))}


@functools.cache
def calibrated_forms() -> frozenset[str]:
    """Forms of the table."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def uncalibrated(forms: Iterable[str]) -> tuple[str, ...]:
    """Those that no public kernel was executed right with."""
    return tuple(sorted(set(forms) - calibrated_forms()))


def describe(form: str) -> str:
    """What is said of an uncalibrated form."""
    return f"uncalibrated form, of which this machine alone says what it does: {form}"
