"""The gradient of an epilogue, as statements of an epilogue: the chain rule in reverse, statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from cutegen.epilogue.expression import parse_expression
from cutegen.epilogue.installed import find_op
from cutegen.epilogue.program import EpilogueProgram
from cutegen.epilogue.tree import (
    Binary,
    Call,
    Compare,
    Expr,
    Logic,
    Name,
    Negate,
    Number,
    Reduce,
    Slice,
    Stored,
    Where,
    is_constant,
    map_children,
    walk,
)
from cutegen.runtime.autograd import NotDifferentiable

NOWHERE = (0, 0)
ROUNDED = {"bf16": "round_bf16", "f16": "round_f16"}
ZERO, ONE = Number(0.0, NOWHERE), Number(1.0, NOWHERE)

Leaf = tuple[str, int | None]
"""What a gradient is with respect to: ("acc", None), ("acc", 0) of the first columns of a pair, ("bias", None)."""


@dataclass
class Adjoints:
    """statements: by name, each after those it reads: those of the epilogue that are needed, then those of the chain
    rule. results: the gradient with respect to each leaf, that of a single element."""

    statements: dict[str, Expr] = field(default_factory=dict)
    results: dict[Leaf, Expr] = field(default_factory=dict)

    def reads(self, expr: Expr) -> set[str]:
        """Names that an expression is computed from, statements seen through."""
        found: set[str] = set()
        pending = [node.name for node in walk(expr) if isinstance(node, Name | Slice)]
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                inner = walk(self.statements[name]) if name in self.statements else ()
                pending += [node.name for node in inner if isinstance(node, Name | Slice)]
        return found

    def needed(self, leaves: Collection[Leaf]) -> dict[str, Expr]:
        """The statements that some results are computed from, in order."""
        read = set().union(*(self.reads(self.results[leaf]) for leaf in leaves))
        return {name: expr for name, expr in self.statements.items() if name in read}


def differentiate(
    program: EpilogueProgram, wanted: Collection[str], grads: Mapping[str, str], new_name: Callable[[str], str]
) -> Adjoints:
    """wanted: operands, and "acc". grads: by output, the name of the gradient of what follows with respect to it.
    new_name: a name that nothing has, from a stem. NotDifferentiable: with the reason."""
    forward = {s.name: _without_rounding(s.expr, program) for s in program.statements}
    active = _find_active(forward, wanted)
    chain = _Chain(Adjoints(dict(forward)), active, new_name)
    for name, grad in grads.items():
        chain.add((name, None), Name(grad, NOWHERE))
    for statement in reversed(program.statements):
        if statement.name in active and (adjoint := chain.take(statement.name)):
            chain.back(forward[statement.name], adjoint)
    adjoints = chain.adjoints
    adjoints.results = {leaf: expr for leaf, expr in chain.sums.items() if leaf[0] in wanted}
    adjoints.statements = adjoints.needed(adjoints.results)
    return adjoints


def _without_rounding(expr: Expr, program: EpilogueProgram) -> Expr:
    """Outputs are locals of a gradient: what is stored of one is its value, rounded."""
    if isinstance(expr, Reduce):
        raise NotDifferentiable("a reduction over rows or columns has no gradient kernel")
    if isinstance(expr, Stored):
        dtype = next(o.dtype.name for o in program.outputs if o.name == expr.name)
        value = Name(expr.name, expr.span)
        return value if dtype == "f32" else Call(ROUNDED[dtype], (value,), expr.span)
    return map_children(expr, lambda part: _without_rounding(part, program))


def _find_active(statements: Mapping[str, Expr], wanted: Collection[str]) -> set[str]:
    """Names whose value depends on what a gradient is wanted of."""
    active = set(wanted)
    for name, expr in statements.items():
        if any(node.name in active for node in walk(expr) if isinstance(node, Name | Slice)):
            active.add(name)
    return active


class _Chain:
    """sums: the gradient with respect to each leaf and statement, as far as it is known."""

    def __init__(self, adjoints: Adjoints, active: Collection[str], new_name: Callable[[str], str]) -> None:
        self.adjoints, self.active, self.new_name = adjoints, active, new_name
        self.sums: dict[Leaf, Expr] = {}

    def add(self, leaf: Leaf, grad: Expr) -> None:
        self.sums[leaf] = Binary("+", self.sums[leaf], grad, NOWHERE) if leaf in self.sums else grad

    def take(self, name: str) -> Expr | None:
        """The whole gradient with respect to a statement, whose readers were all seen."""
        whole = self.sums.pop((name, None), None)
        return None if whole is None else self.let(whole)

    def let(self, expr: Expr) -> Expr:
        """A name for what is read more than once."""
        if isinstance(expr, Name | Number | Slice):
            return expr
        name = self.new_name("t")
        self.adjoints.statements[name] = expr
        return Name(name, NOWHERE)

    def depends(self, expr: Expr) -> bool:
        return any(node.name in self.active for node in walk(expr) if isinstance(node, Name | Slice))

    def back(self, expr: Expr, grad: Expr) -> None:
        """Adds what `grad`, the gradient with respect to the value of `expr`, gives its parts."""
        if not self.depends(expr):
            return
        match expr:
            case Name(name):
                self.add((name, None), grad)
            case Slice(name=name, part=part):
                if name != "acc":
                    raise NotDifferentiable(f"columns of `{name}` are read in parts, which has no gradient kernel")
                self.add((name, part), grad)
            case Negate(operand):
                self.back(operand, Negate(grad, NOWHERE))
            case Binary("+" | "-" as op, left, right):
                grad = self.let(grad)
                self.back(left, grad)
                self.back(right, grad if op == "+" else Negate(grad, NOWHERE))
            case Binary("*", left, right):
                grad, x, y = self.let(grad), self.let(left), self.let(right)
                self.back(left, _times(grad, y))
                self.back(right, _times(grad, x))
            case Binary("/", left, right):
                grad, x, y = self.let(grad), self.let(left), self.let(right)
                self.back(left, Binary("/", grad, y, NOWHERE))
                square = Binary("*", y, y, NOWHERE)
                self.back(right, Negate(Binary("/", _times(grad, x), square, NOWHERE), NOWHERE))
            case Where(condition, chosen, other):
                grad = self.let(grad)
                self.back(chosen, Where(condition, grad, ZERO, NOWHERE))
                self.back(other, Where(condition, ZERO, grad, NOWHERE))
            case Call(op, args):
                self.call(op, args, grad)

    def call(self, op: str, args: tuple[Expr, ...], grad: Expr) -> None:
        if find_op(op).arguments is None and len(args) > 2:  # applied two at a time
            args = (Call(op, args[:-1], NOWHERE), args[-1])
        if find_op(op).arguments is None and is_constant(args[0], ()):
            args = args[::-1]
        rules = derivatives(op, constant=find_op(op).arguments is None and is_constant(args[1], ()))
        grad, values = self.let(grad), tuple(self.let(arg) for arg in args)
        for arg, rule in zip(args, rules):
            if self.depends(arg):
                self.back(arg, _times(grad, substitute(rule, dict(zip("xyz", values)))))


def _times(grad: Expr, factor: Expr) -> Expr:
    return grad if factor == ONE else Binary("*", grad, factor, NOWHERE)


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    if isinstance(expr, Name):
        return values[expr.name]
    return map_children(expr, lambda part: substitute(part, values))


@cache
def derivatives(op: str, *, constant: bool = False) -> tuple[Expr, ...]:
    """Of an op with respect to each argument, in x, y and z. NotDifferentiable: it has none."""
    texts = find_op(op).derivative_constant if constant else find_op(op).derivative
    if not texts:
        raise NotDifferentiable(f"the op `{op}` has no derivative")
    return tuple(_parse(op, text) for text in texts)


def _parse(op: str, text: str) -> Expr:
    found: list[str] = []
    tree = parse_expression(text, lambda rule, span, said, remedy: found.append(said))
    if tree is None:
        raise NotDifferentiable(f"the derivative of the op `{op}` cannot be read: {'; '.join(found)}: {text}")
    return tree


def write(expr: Expr) -> str:
    """An expression as a spec has it."""
    text = _written(expr)
    return text[1:-1] if isinstance(expr, Binary) else text


def _written(expr: Expr) -> str:
    match expr:
        case Number(value):
            return repr(value)
        case Name(name):
            return name
        case Negate(operand):
            return f"(-{_written(operand)})"
        case Binary(op, left, right) | Compare(op, left, right):
            return f"({_written(left)} {op} {_written(right)})"
        case Logic("not", (part,)):
            return f"(not {_written(part)})"
        case Logic(op, parts):
            return f"({f' {op} '.join(map(_written, parts))})"
        case Where(condition, chosen, other):
            return f"where({_written(condition)}, {_written(chosen)}, {_written(other)})"
        case Call(op, args):
            return f"{op}({', '.join(map(write, args))})"
        case Slice():
            return _slice(expr)
    raise NotDifferentiable(f"a {type(expr).__name__.lower()} has no gradient kernel")


def _slice(expr: Slice) -> str:
    before = "..." if expr.dims is None else ", ".join(":" * expr.dims)
    if expr.pairing == "interleaved":
        return f"{expr.name}[{before}, {expr.part}::2]"
    half = f"{expr.extent}/2"
    return f"{expr.name}[{before}, {f'{half}:' if expr.part else f':{half}'}]"


def new_names(taken: Collection[str]) -> Callable[[str], str]:
    """A source of names that nothing has: stem0, stem1, ..."""
    used = set(taken)

    def new_name(stem: str) -> str:
        name = next(name for name in _numbered(stem) if name not in used)
        used.add(name)
        return name

    return new_name


def _numbered(stem: str) -> Iterator[str]:
    number = 0
    while True:
        yield f"{stem}{number}"
        number += 1
