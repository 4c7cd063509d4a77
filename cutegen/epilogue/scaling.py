"""Tiles that a scalar scales: where it is 0 they are not read, as BLAS has it for `alpha * acc + beta * c`.

A tile is scaled by a scalar s where each of its occurrences, whole or a slice, is a product with s alone: `s * c` or
`c * s`. Such a product is 0 where s is 0, whatever c holds, NaN and infinity too.
"""

from __future__ import annotations

from collections.abc import Sequence

from cutegen.epilogue.program import Assign, Operand
from cutegen.epilogue.tree import Binary, Expr, Name, Slice, children


def find_scaled(statements: Sequence[Assign], operands: Sequence[Operand]) -> tuple[tuple[str, str], ...]:
    """(tile, scalar) of each tile that one scalar operand scales, in the order of the tiles."""
    scalars = {o.name for o in operands if o.kind in ("host_scalar", "device_scalar")}
    found: dict[str, set[str | None]] = {o.name: set() for o in operands if o.kind == "tile"}
    for statement in statements:
        _visit(statement.expr, scalars, found)
    return tuple((tile, s) for tile, by in found.items() for s in by if len(by) == 1 and s is not None)


def scaled_product(expr: Expr) -> tuple[str, str] | None:
    """The two names of a product of names, of which either may be sliced."""
    match expr:
        case Binary("*", (Name() | Slice()) as left, (Name() | Slice()) as right):
            return left.name, right.name
    return None


def _visit(expr: Expr, scalars: set[str], found: dict[str, set[str | None]]) -> None:
    names = scaled_product(expr)
    if names and len(set(names) & set(found)) == 1 and len(set(names) & scalars) == 1:
        (tile,), (scalar,) = set(names) & set(found), set(names) & scalars
        found[tile].add(scalar)
        return
    if isinstance(expr, Name | Slice) and expr.name in found:
        found[expr.name].add(None)
    for part in children(expr):
        _visit(part, scalars, found)
