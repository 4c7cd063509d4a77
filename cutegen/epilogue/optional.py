"""The epilogue of calls that pass None for optional operands: what is left of each expression without them.

A term of a sum is left out, and so is a factor or divisor of what depends on acc. What is computed from a missing value
and scalars alone is missing with it: of `acc + beta * c` without c, `acc`. Everything else has no meaning without the
operand, and is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from cutegen.epilogue.program import ACCUMULATORS, Assign, EpilogueProgram, Report
from cutegen.epilogue.rules import OPTIONAL
from cutegen.epilogue.scaling import find_scaled
from cutegen.epilogue.tree import (
    Binary,
    Call,
    Expr,
    Name,
    Negate,
    Reduce,
    Slice,
    Span,
    children,
    map_children,
    reads,
    walk,
)


class Unclear(Exception):
    """A part of an expression that has no value without an operand. said, remedy: for the user."""

    def __init__(self, span: Span, said: str, remedy: str) -> None:
        super().__init__(said)
        self.span, self.said, self.remedy = span, said, remedy


def omit(
    program: EpilogueProgram,
    names: Collection[str],
    report: Report | None = None,
    sources: Collection[str] = ACCUMULATORS,
    section: str = "epilogue",
) -> EpilogueProgram:
    """The program without these operands, and without locals that only they needed. Scalars stay operands, read or not.

    report: gets a finding for every statement that has no meaning without them; without it there are none. sources:
    what outputs depend on, whose factors are left out. section: of the spec.
    """
    scalars = {o.name for o in program.operands if o.kind in ("host_scalar", "device_scalar")}
    omission = _Omission(set(names), scalars - set(names), set(sources) - set(names))
    kept: list[Assign] = []
    for statement in program.statements:
        try:
            left = omission.reduce(statement.expr)
            if left is None and statement.kind == "output":
                raise Unclear(statement.expr.span, f"nothing is left of `{statement.name}`", _REMEDY)
        except Unclear as unclear:
            if report is None:
                raise
            left = statement.expr
            report(OPTIONAL, (section, statement.name), unclear.said, unclear.remedy, span=unclear.span)
        omission.note(statement.name, left)
        if left is not None:
            kept.append(replace(statement, expr=left))
    statements = _needed(kept)
    operands = tuple(o for o in program.operands if o.name not in names)
    left_over = replace(program, statements=statements, operands=operands)
    return replace(left_over, scaled=find_scaled(statements, operands))


_REMEDY = "add the operand to the rest, or multiply or divide what depends on acc by it"


def _needed(statements: Sequence[Assign]) -> tuple[Assign, ...]:
    """Outputs and what they read, in order. `acc` may be scaled under its own name."""
    needed: set[str] = set()
    kept: list[Assign] = []
    for statement in reversed(statements):
        if statement.kind == "output" or statement.name in needed:
            kept.append(statement)
            needed.update(reads(statement.expr))
    return tuple(reversed(kept))


@dataclass
class _Omission:
    """missing: operands and locals without a value. scalars: what has one value for the whole product."""

    missing: set[str]
    scalars: set[str]
    with_acc: set[str]

    def note(self, name: str, left: Expr | None) -> None:
        """A statement's name means what is left of its expression."""
        if left is None:
            self.missing.add(name)
        elif self.has_acc(left):
            self.with_acc.add(name)
        elif self.is_scalar(left):
            self.scalars.add(name)

    def has_acc(self, expr: Expr) -> bool:
        return not self.with_acc.isdisjoint(reads(expr))

    def is_scalar(self, expr: Expr) -> bool:
        return self.scalars.issuperset(reads(expr))

    def reduce(self, expr: Expr) -> Expr | None:
        """What is left of an expression; None: nothing."""
        if self.missing.isdisjoint(reads(expr)):
            return expr
        match expr:
            case Name(name) | Slice(name=name):
                return None if name in self.missing else expr
            case Negate(operand):
                left = self.reduce(operand)
                return None if left is None else replace(expr, operand=left)
            case Binary("+" | "-", left, right):
                return self._sum(expr, self.reduce(left), self.reduce(right))
            case Binary():
                return self._product(expr, self.has_acc(expr))
            case Call(op, args):
                return self._call(expr, op, [self.reduce(arg) for arg in args])
            case Reduce(op, value) if self.reduce(value) is None:
                raise Unclear(expr.span, f"`{op}` has no meaning without {self._absent(value)}", _REMEDY)
        for part in children(expr):
            if self.reduce(part) is None:
                raise Unclear(part.span, f"this choice has no meaning without {self._absent(part)}", _REMEDY)
        return map_children(expr, lambda part: self.reduce(part) or part)

    def _sum(self, expr: Binary, left: Expr | None, right: Expr | None) -> Expr | None:
        if left is None or right is None:
            kept = left if right is None else right
            return Negate(kept, expr.span) if kept is right and kept is not None and expr.op == "-" else kept
        return replace(expr, left=left, right=right)

    def _product(self, expr: Expr, has_acc: bool) -> Expr | None:
        """has_acc: whether the whole product, of which this is a part, depends on acc."""
        if not isinstance(expr, Binary) or expr.op not in "*/":
            return self.reduce(expr)
        left, right = self._product(expr.left, has_acc), self._product(expr.right, has_acc)
        if left is not None and right is not None:
            return replace(expr, left=left, right=right)
        kept = left if right is None else right
        if kept is None:
            return None
        if kept is right and expr.op == "/":
            said = f"a quotient has no meaning without {self._absent(expr.left)} above the line"
            raise Unclear(expr.span, said, _REMEDY)
        if has_acc:
            return kept
        if self.is_scalar(kept):
            return None
        said = f"without {self._absent(expr)}, this could be left out, or be 1 times the rest"
        raise Unclear(expr.span, said, "multiply by it what depends on acc, or add a tensor that is scaled already")

    def _call(self, expr: Call, op: str, args: Sequence[Expr | None]) -> Expr | None:
        kept = [arg for arg in args if arg is not None]
        if len(kept) == len(args):
            return replace(expr, args=tuple(kept))
        if all(map(self.is_scalar, kept)):
            return None
        raise Unclear(expr.span, f"`{op}` has no meaning without {self._absent(expr)}", _REMEDY)

    def _absent(self, expr: Expr) -> str:
        names = [node.name for node in walk(expr) if isinstance(node, Name | Slice) and node.name in self.missing]
        return " and ".join(f"`{name}`" for name in dict.fromkeys(names))
