"""Outputs that their own expression reads: `grad: grad + acc` adds to what the tensor holds.

In its own expression the name is the value before the launch, everywhere else the value that is stored. The program
gives the value before a name of its own, NAME_old, so that every name in it has one meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutegen.epilogue.program import Assign
from cutegen.epilogue.tree import Expr, Name, Slice, map_children, walk


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


def _reads(expr: Expr, name: str) -> bool:
    return any(isinstance(node, Name | Slice) and node.name == name for node in walk(expr))


def _rename(expr: Expr, name: str) -> Expr:
    if isinstance(expr, Name | Slice) and expr.name == name:
        return replace(expr, name=old_name(name))
    return map_children(expr, lambda part: _rename(part, name))
