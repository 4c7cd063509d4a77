"""PTX text to a program: instructions with resolved names. Only what one kernel entry needs."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from pathlib import PurePath


class PtxError(Exception):
    """The machine cannot go on: a broken program, an access out of bounds, a broken protocol, a deadlock."""


@dataclass(frozen=True, slots=True)
class Register:
    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """bits: the value as two's complement or as IEEE bits; floating: it was written as 0f... or 0d..."""

    bits: int
    floating: bool = False


@dataclass(frozen=True, slots=True)
class Symbol:
    """A parameter, a shared array, a label, or `_`."""

    name: str


@dataclass(frozen=True, slots=True)
class Vector:
    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: a second destination."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Memory:
    """`[base + offset, rest...]`."""

    base: Operand
    offset: int
    rest: tuple[Operand, ...] = ()


Operand = Register | Immediate | Symbol | Vector | Pair | Memory


@dataclass(frozen=True, slots=True)
class Instruction:
    """guard: (predicate, its required value). opcode: split at the dots. line: 1-based, of the PTX text."""

    line: int
    guard: tuple[Register, bool] | None
    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """offset: in the parameter space of a launch."""

    name: str
    size: int
    offset: int


@dataclass(slots=True)
class Program:
    """labels: instruction index by resolved label. types: declared register type ("b32") by resolved name.
    shared: static shared arrays as name -> (align, bytes); 0 bytes: the dynamic one, placed last. locations: (line of
    the PTX, file, line in it) of every `.loc`, in order; none where it was compiled without line information."""

    entry: str = ""
    parameters: dict[str, Parameter] = field(default_factory=dict)
    parameter_bytes: int = 0
    shared: dict[str, tuple[int, int]] = field(default_factory=dict)
    threads: int | None = None
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    locations: list[tuple[int, str, int]] = field(default_factory=list)

    def source_of(self, line: int) -> tuple[str, int] | None:
        """(file, line) of the source that the instruction on a line of the PTX comes from; None: unknown."""
        at = bisect.bisect_right(self.locations, line, key=lambda location: location[0])
        if not at:
            return None
        _, file, source = self.locations[at - 1]
        return (file, source) if source else None

    def place(self, line: int) -> str:
        """ "PTX line 708", and the line of the source where that is known: "PTX line 708 (kernel.py:220)"."""
        known = self.source_of(line)
        return f"PTX line {line}" + (f" ({PurePath(known[0]).name}:{known[1]})" if known else "")


_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}
_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)\s*((?:\.[^{;]*)?)\{", re.S)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(\w+)(?:\[(\d+)\])?")
_SHARED = re.compile(r"\.shared\s+(?:\.align\s+(\d+)\s+)?\.[a-z](\d+)\s+(\w+)(?:\[(\d*)\])?\s*;")
_LABEL = re.compile(r"([$\w]+)\s*:(?!:)")
_REG = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.S)
_RANGE = re.compile(r"(%?\w+)<(\d+)>$")
_STATEMENT = re.compile(r"(?:@(!?)([%\w]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.S)
_LOCATION = re.compile(r"^[ \t]*\.loc[ \t]+(\d+)[ \t]+(\d+)[^\n]*", re.M)
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"]*)"', re.M)
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+|\d+)[uU]?$")


def entry_names(text: str) -> list[str]:
    """The kernels of a PTX text."""
    return [entry[1] for entry in _ENTRY.finditer(text)]


def parse(text: str, name: str = "") -> Program:
    """name: of the entry, which may be left out where there is one. PtxError: there is no such entry, or none alone, or
    a statement is not understood."""
    text = re.sub(r"//[^\n]*", "", text)
    files = dict(_FILE.findall(text))
    lines = enumerate(text.split("\n"), 1)
    marks = [(i, m) for i, line in lines if ".loc" in line and (m := _LOCATION.match(line))]
    locations = [(i, files[mark[1]], int(mark[2])) for i, mark in marks]
    text = _LOCATION.sub("", text)
    entries = [entry for entry in _ENTRY.finditer(text) if name in ("", entry[1])]
    if len(entries) != 1:
        raise PtxError(f"the PTX has {len(entries)} entries{f' of name {name}' if name else ''}, expected one")
    (entry,) = entries
    program = Program(entry=entry[1], locations=locations)
    for align, _, bits, name, count in ((m[1], 0, m[2], m[3], m[4]) for m in _SHARED.finditer(text[: entry.start()])):
        program.shared[name] = (int(align or 4), int(count or 0) * int(bits) // 8)
    _read_parameters(program, entry[2])
    if found := re.search(r"\.reqntid\s+([\d, ]+)", entry[3]):
        program.threads = 1
        for extent in found[1].split(","):
            program.threads *= int(extent)
    _Body(program, text, entry.end()).read()
    return program


def _read_parameters(program: Program, text: str) -> None:
    offset = 0
    for align, kind, name, count in _PARAMETER.findall(text):
        size = _SIZES[kind[1:]] * int(count or 1)
        step = int(align or size)
        offset = -(-offset // step) * step
        program.parameters[name] = Parameter(name, size, offset)
        offset += size
    program.parameter_bytes = offset


class _Body:
    """Statements between the braces of the entry. Names declared in an inner block are its own."""

    def __init__(self, program: Program, text: str, start: int) -> None:
        self.program, self.text, self.at = program, text, start
        self.scopes: list[dict[str, str]] = [{}]
        self.pending: list[tuple[int, list[dict[str, str]], str]] = []
        self.count = 0
        self.outer: dict[str, Operand] = {}  # operands outside inner blocks, by their text: most occur several times

    def read(self) -> None:
        line, counted = 1, 0
        while self.scopes:
            self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            line += self.text.count("\n", counted, self.at)
            counted = self.at
            if self.text[self.at] == "{":
                self.count += 1
                self.scopes.append({})
                self.at += 1
            elif self.text[self.at] == "}":
                self.scopes.pop()
                self.at += 1
            elif label := _LABEL.match(self.text, self.at):
                name = self._declare(label[1])
                self.program.labels[name] = len(self.pending)
                self.at = label.end()
            else:
                end = self.text.index(";", self.at)
                self._statement(line, self.text[self.at : end].strip())
                self.at = end + 1
        for line, scopes, statement in self.pending:  # labels are known only now
            self.program.instructions.append(self._instruction(line, scopes, statement))

    def _declare(self, name: str) -> str:
        unique = name if len(self.scopes) == 1 else f"{name}@{self.count}"
        self.scopes[-1][name] = unique
        return unique

    def _statement(self, line: int, statement: str) -> None:
        if declared := _REG.match(statement):
            for name in declared[2].split(","):
                if many := _RANGE.match(name.strip()):
                    for i in range(int(many[2])):
                        self.program.types[f"{many[1]}{i}"] = declared[1]
                else:
                    self.program.types[self._declare(name.strip())] = declared[1]
        elif statement and not statement.startswith("."):
            self.pending.append((line, list(self.scopes), " ".join(statement.split())))

    def _instruction(self, line: int, scopes: list[dict[str, str]], statement: str) -> Instruction:
        match = _STATEMENT.match(statement)
        if match is None:
            raise PtxError(f"line {line}: not understood: {statement}")
        negated, guard, opcode, rest = match.groups()
        resolved = (self._register(scopes, guard), not negated) if guard else None
        operands = tuple(self._operand(line, scopes, part) for part in _split(rest))
        return Instruction(line, resolved, tuple(opcode.split(".")), operands, statement)

    def _register(self, scopes: list[dict[str, str]], name: str) -> Register:
        for scope in reversed(scopes):
            if name in scope:
                return Register(scope[name])
        return Register(name)

    def _operand(self, line: int, scopes: list[dict[str, str]], text: str) -> Operand:
        if len(scopes) > 1:
            return self._read_operand(line, scopes, text)
        if (known := self.outer.get(text)) is None:
            known = self.outer[text] = self._read_operand(line, scopes, text)
        return known

    def _read_operand(self, line: int, scopes: list[dict[str, str]], text: str) -> Operand:
        if text.startswith("{"):
            return Vector(tuple(self._operand(line, scopes, part) for part in _split(text[1:-1])))
        if text.startswith("["):
            first, *rest = _split(text[1:-1])
            base, sign, offset = re.match(r"([^+-]+)\s*(?:([+-])\s*(\S+))?", first).groups()  # type: ignore[union-attr]
            value = int(offset, 0) * (-1 if sign == "-" else 1) if offset else 0
            others = tuple(self._operand(line, scopes, part) for part in rest)
            return Memory(self._operand(line, scopes, base.strip()), value, others)
        if "|" in text:
            first, second = text.split("|")
            return Pair(self._operand(line, scopes, first.strip()), self._operand(line, scopes, second.strip()))
        if _NUMBER.match(text):
            return _number(text)
        found = self._register(scopes, text)
        if found.name in self.program.types or text.startswith("%"):
            return found
        return Symbol(found.name)


def _number(text: str) -> Immediate:
    text = text.rstrip("uU")
    if text[:2].lower() in ("0f", "0d") and len(text) in (10, 18):
        return Immediate(int(text[2:], 16), floating=True)
    return Immediate(int(text, 0))


def _split(text: str) -> list[str]:
    """Parts between the commas outside brackets and braces."""
    if "[" not in text and "{" not in text:
        return [part.strip() for part in text.split(",")] if text else []
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[{") - (c in "]}")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts
