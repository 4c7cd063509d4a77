"""The typed tree of an expression: its nodes, each with its place in the text, and what is constant in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

MIN_F32, MAX_F32 = 2.0**-126, 3.4028234663852886e38

Span = tuple[int, int]
"""Offsets (start, end) of a part of an expression in its text, end exclusive."""

Pairing = Literal["interleaved", "concatenated"]
"""Which columns of a product make a pair: neighbours, or those half of the columns apart."""

ReduceOp = Literal["sum", "max", "max_abs", "mean"]

ReportAt = Callable[[str, Span, str, str], None]
"""report(rule, span, message, remedy)"""


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Negate:
    operand: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """op: + - * / in an epilogue; @ in a mainloop only."""

    op: str
    left: Expr
    right: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """An op of the registry applied to its arguments."""

    op: str
    args: tuple[Expr, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Stored:
    """`stored(x)`: the value of output x after rounding to its dtype."""

    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition. op: < <= > >= == !="""

    op: str
    left: Expr
    right: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Logic:
    """A condition made of conditions. op: and, or; not has one part."""

    op: str
    parts: tuple[Expr, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Where:
    """`where(condition, chosen, other)`, element by element."""

    condition: Expr
    chosen: Expr
    other: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Slice:
    """Half of the columns of a value: columns part, part + 2, ... (interleaved), or the first or second half.

    dims: how many are written before the columns, None for `...`. extent: the name in `n/2`, None where interleaved.
    """

    name: str
    pairing: Pairing
    part: int
    dims: int | None
    extent: str | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Gather:
    """`a[rows]` in a mainloop: the rows of a that an index names. span: of `a` alone where more is gathered at once;
    at: of the index."""

    name: str
    index: str
    span: Span = field(compare=False)
    at: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Reduce:
    """`sum(x, n)`, `max(x, m)`, `max_abs(x, m, n)`: one value for all indices of the dims `over`; `max_abs(x, n, 128)`:
    one for each block of them.

    over: names of dims as a spec has them, and roles (m, n, batch) once they are bound. block: indices of a block; 0:
    all are one.
    """

    op: ReduceOp
    value: Expr
    over: tuple[str, ...]
    block: int
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Index:
    """`index(n)`: the place of an element along a dim, counted from 0."""

    dim: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Paired:
    """`halves(x, y)`, `pairs(x, y)`: a value with all columns, made of two with half of them: one behind the other, or
    a column of each in turn."""

    pairing: Pairing
    first: Expr
    second: Expr
    span: Span = field(compare=False)


Expr = (
    Number | Name | Negate | Binary | Call | Stored | Compare | Logic | Where | Slice | Gather | Reduce | Index | Paired
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of a node, left to right."""
    match expr:
        case Negate(operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Call(_, args):
            return args
        case Compare(_, left, right):
            return left, right
        case Logic(_, parts):
            return parts
        case Where(condition, chosen, other):
            return condition, chosen, other
        case Reduce(value=value):
            return (value,)
        case Paired(_, first, second):
            return first, second
    return ()


def map_children(expr: Expr, convert: Callable[[Expr], Expr]) -> Expr:
    """The node with each of its direct parts converted."""
    match expr:
        case Negate(operand):
            return replace(expr, operand=convert(operand))
        case Binary(_, left, right) | Compare(_, left, right):
            return replace(expr, left=convert(left), right=convert(right))
        case Call(_, args):
            return replace(expr, args=tuple(map(convert, args)))
        case Logic(_, parts):
            return replace(expr, parts=tuple(map(convert, parts)))
        case Reduce(value=value):
            return replace(expr, value=convert(value))
        case Paired(_, first, second):
            return replace(expr, first=convert(first), second=convert(second))
        case Where(condition, chosen, other):
            return replace(expr, condition=convert(condition), chosen=convert(chosen), other=convert(other))
    return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """All nodes of a tree, parents first, left to right."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def fits_f32(value: int | float) -> bool:
    """Whether a number is zero or a normal f32. Integers may have any size."""
    return value == 0 or MIN_F32 <= abs(value) <= MAX_F32


def is_constant(expr: Expr, constants: Container[str]) -> bool:
    """Whether `expr` depends on numbers and on locals in `constants` alone."""
    names = [node for node in walk(expr) if isinstance(node, Name | Stored | Slice | Index)]
    return all(isinstance(node, Name) and node.name in constants for node in names)


def fold(expr: Expr, constants: Mapping[str, float]) -> float | None:
    """The value of a constant arithmetic expression; None where it varies, calls an op or is not finite in f32."""
    match expr:
        case Number(value):
            return value
        case Name(name):
            return constants.get(name)
        case Negate(operand):
            inner = fold(operand, constants)
            return None if inner is None else -inner
        case Binary(op, left, right):
            x, y = fold(left, constants), fold(right, constants)
            if x is None or y is None or (op == "/" and y == 0):
                return None
            result = {"+": x + y, "-": x - y, "*": x * y, "/": x / y if y else math.nan}[op]
            return result if fits_f32(result) else None
    return None


def reads(tree: Expr) -> list[str]:
    """Names that an expression reads, left to right."""
    return [node.name for node in walk(tree) if isinstance(node, Name | Stored | Slice)]
