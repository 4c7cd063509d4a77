"""Conditions that are always the same, and what an expression reads without the branches that they leave out.

The compiler finds them too, and drops the product where nothing depends on it any more. NaN makes every comparison
false but `!=`, so that most of what cannot be true is known, and little of what is always true.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations

from cutegen.epilogue.tree import (
    Binary,
    Call,
    Compare,
    Expr,
    Logic,
    Name,
    Negate,
    Number,
    Slice,
    Stored,
    Where,
    children,
)

Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)
# Of ops, whatever their arguments are.
_RANGES: dict[str, Range] = {
    **dict.fromkeys(("relu", "abs", "square", "exp", "sqrt", "rsqrt", "softplus"), (0.0, math.inf)),
    **dict.fromkeys(("sigmoid", "hard_sigmoid", "hardsigmoid"), (0.0, 1.0)),
    "tanh": (-1.0, 1.0),
}
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def live_reads(expr: Expr, ranges: Mapping[str, Range]) -> Iterator[str]:
    """Names that the value of an expression can depend on. ranges: of the names that are known."""
    if isinstance(expr, Where):
        if expr.chosen == expr.other or _are_one_number(expr.chosen, expr.other, ranges):
            expr = expr.chosen
        elif (taken := decide(expr.condition, ranges)) is not None:
            expr = expr.chosen if taken else expr.other
        else:
            for part in children(expr):
                yield from live_reads(part, ranges)
            return
        yield from live_reads(expr, ranges)
    elif isinstance(expr, Name | Stored | Slice):
        yield expr.name
    else:
        for part in children(expr):
            yield from live_reads(part, ranges)


def _are_one_number(one: Expr, other: Expr, ranges: Mapping[str, Range]) -> bool:
    low, high = find_range(one, ranges)
    return low == high and (low, high) == find_range(other, ranges)


def decide(condition: Expr, ranges: Mapping[str, Range]) -> bool | None:
    """What a condition always is; None where it may be either."""
    match condition:
        case Compare(op, left, right):
            (low, high), (least, most) = find_range(left, ranges), find_range(right, ranges)
            apart = high < least or most < low
            if op in ("<", ">", "==", "!="):
                same = op in ("<", ">") and left == right
                never = {"<": low >= most, ">": high <= least}.get(op, apart)
                return op == "!=" if same or never else None
            return False if {"<=": low > most, ">=": high < least}[op] else None
        case Logic("not", (part,)):
            found = decide(part, ranges)
            return None if found is None else not found
        case Logic(op, parts):
            known = [decide(part, ranges) for part in parts]
            ends = op == "or"
            if ends in known or (op == "and" and any(_exclude(*pair, ranges) for pair in combinations(parts, 2))):
                return ends
            return None if None in known else not ends
    return None


def _exclude(one: Expr, other: Expr, ranges: Mapping[str, Range]) -> bool:
    """Whether two comparisons of one value cannot both be true."""
    found = [_bounds(c, ranges) for c in (one, other) if isinstance(c, Compare)]
    if len(found) < 2 or None in found:
        return False
    (x, low, high, open_x), (y, least, most, open_y) = (f for f in found if f)
    below, above = max(low, least), min(high, most)
    return x == y and (below > above or (below == above and (open_x or open_y)))


def _bounds(condition: Compare, ranges: Mapping[str, Range]) -> tuple[Expr, float, float, bool] | None:
    """(value, least, most, whether a bound is none of the values) of a comparison with what is constant."""
    op, value, bound = condition.op, condition.left, condition.right
    if find_range(value, ranges)[0] == find_range(value, ranges)[1]:
        op, value, bound = _SWAPPED.get(op, op), bound, value
    low, high = find_range(bound, ranges)
    if low != high or op == "!=":
        return None
    least, most = {"<": (-math.inf, low), "<=": (-math.inf, low), "==": (low, low)}.get(op, (low, math.inf))
    return value, least, most, op in ("<", ">")


def find_range(expr: Expr, ranges: Mapping[str, Range]) -> Range:
    """Where the value of an expression lies, unless it is NaN."""
    match expr:
        case Number(value):
            return value, value
        case Name(name):
            return ranges.get(name, ANY)
        case Negate(operand):
            low, high = find_range(operand, ranges)
            return -high, -low
        case Where(condition, chosen, other):
            taken = decide(condition, ranges)
            (low, high), (least, most) = find_range(chosen, ranges), find_range(other, ranges)
            both = min(low, least), max(high, most)
            return both if taken is None else (low, high) if taken else (least, most)
        case Binary(op, left, right):
            return _combine(op, find_range(left, ranges), find_range(right, ranges))
        case Call(op, args):
            found = [find_range(arg, ranges) for arg in args]
            if op in ("min", "max"):
                choose = min if op == "min" else max
                return choose(low for low, _ in found), choose(high for _, high in found)
            if op == "clamp" and len(found) == 3:
                (low, high), (least, least_most), (most_least, most) = found  # clamp is min(max(x, least), most)
                return min(max(low, least), most_least), min(max(high, least_most), most)
            return _RANGES.get(op, ANY)
    return ANY


def _combine(op: str, x: Range, y: Range) -> Range:
    if op == "-":
        op, y = "+", (-y[1], -y[0])
    if op not in "+*" or not all(map(math.isfinite, (*x, *y))):
        return ANY
    ends = (x[0] + y[0], x[1] + y[1]) if op == "+" else [p * q for p in x for q in y]
    return (min(ends), max(ends)) if x[0] == x[1] and y[0] == y[1] else ANY  # of what varies, rounding moves the ends
