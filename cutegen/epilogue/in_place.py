"""Outputs that their own expression reads: `grad: grad + acc` adds to what the tensor holds.

In its own expression the name is the value before the launch, everywhere else the value that is stored. The program
gives the value before a name of its own, NAME_old, so that every name in it has one meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutegen.epilogue.program import Assign, EpilogueProgram
from cutegen.epilogue.tree import Binary, Expr, Name, Negate, Slice, Stored, map_children, walk


def find_in_place(statements: Sequence[Assign]) -> tuple[str, ...]:
    """Outputs that their own expression reads."""
    return tuple(s.name for s in statements if s.kind == "output" and _reads(s.expr, s.name))


def old_name(name: str) -> str:
    """What the program calls the value before."""
    return f"{name}_old"


def separate_in_place(statements: Sequence[Assign]) -> tuple[Assign, ...]:
    """The statements with the value before under its own name."""
    updated = find_in_place(statements)
    return tuple(replace(s, expr=_rename(s.expr, s.name)) if s.name in updated else s for s in statements)


def find_added(statements: Sequence[Assign], name: str) -> Expr | tuple[str, str]:
    """What is added to the value before of an output that is updated by nothing but that; or why it is not, and what to
    do. The statements are those of `separate_in_place`."""
    own = next(s for s in statements if s.name == name)
    old = old_name(name)
    count = sum(isinstance(node, Name | Slice) and node.name == old for node in walk(own.expr))
    if not count:
        return f"`{name}` is not updated: its expression does not read it", f"write {name}: {name} + acc"
    reader = next((s.name for s in statements for node in walk(s.expr) if _is_value(node, name)), None)
    if reader:
        said = f"`{reader}` reads the new value of `{name}`, which no thread has"
        return said, f"compute `{reader}` from the terms of `{name}`, or store `{name}` by `tma`"
    added = _without(own.expr, old) if count == 1 else None
    return added or (f"`{own.text}` does more than add to `{name}`", f"write {name}: {name} + a value without it")


def drop_added(program: EpilogueProgram) -> EpilogueProgram:
    """The program of a kernel, which does not read what it adds to."""
    return replace(program, operands=tuple(o for o in program.operands if o.updates not in program.added))


def _is_value(node: Expr, name: str) -> bool:
    return isinstance(node, Name | Slice | Stored) and node.name == name


def _without(expr: Expr, name: str) -> Expr | None:
    """The sum without its term `name`; None where that is no plain term of it."""
    match expr:
        case Binary("+", Name(left), right) if left == name:
            return right
        case Binary("+", left, Name(right)) if right == name:
            return left
        case Binary("-", Name(left), right, span) if left == name:
            return Negate(right, span)
        case Binary("+" | "-", left, right):
            if (rest := _without(left, name)) is not None:
                return replace(expr, left=rest)
            if expr.op == "+" and (rest := _without(right, name)) is not None:
                return replace(expr, right=rest)
    return None


def _reads(expr: Expr, name: str) -> bool:
    return any(isinstance(node, Name | Slice) and node.name == name for node in walk(expr))


def _rename(expr: Expr, name: str) -> Expr:
    if isinstance(expr, Name | Slice) and expr.name == name:
        return replace(expr, name=old_name(name))
    return map_children(expr, lambda part: _rename(part, name))
