"""What an epilogue computes, whatever its tensors are called: suites and baselines are told apart by it.

Operands are named by their shape beside the m x n output: `tile` (m, n), `row` (n), `column` (m), `scalar`, numbered
from the second of a kind on. Locals are put in their places, and terms of sums and factors of products in order:
`x = acc + res`, `d = x * 2` and `d = 2 * (skip + acc)` both read `2 * (acc + tile)`. Halves of columns read as if they
were interleaved: which columns belong together makes no other work. A long local goes by the hash of its form: in their
places, locals of locals would double with each step.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

PLAIN = "acc"
KINDS = ("tile", "row", "column", "scalar")
_HALVES = {":, :n / 2": ":, 0::2", ":, n / 2:": ":, 1::2"}
_COMMUTES = (ast.Add, ast.Mult)
DIMS = ("m", "n")
_LONGEST = 200  # characters of a local that is put in its place


def form_of_statements(statements: Mapping[str, str], named: Callable[[str], str]) -> str:
    """The form of the last statement; those before it are locals. named: the name of a tensor or dim in the form.
    SyntaxError: one is no expression."""
    values = inline(statements, named)
    return form_text(list(values.values())[-1]) if values else PLAIN


def inline(statements: Mapping[str, str], named: Callable[[str], str]) -> dict[str, ast.expr]:
    values: dict[str, ast.expr] = {}
    places: dict[str, ast.expr] = {}
    for name, text in statements.items():
        line = "".join(" " if char.isspace() else char for char in text).strip()  # line breaks are blanks, as in specs
        value = _Naming(places, named).visit(ast.parse(line, mode="eval").body)
        values[name] = places[name] = value
        if len(form := form_text(value)) > _LONGEST:
            places[name] = ast.Name(f"local_{sha256(form.encode()).hexdigest()[:12]}", ast.Load())
    return values


def form_text(value: ast.expr) -> str:
    return " ".join(ast.unparse(value).split())


class _Naming(ast.NodeTransformer):
    """Locals inlined, names replaced, sums and products in order."""

    def __init__(self, values: Mapping[str, ast.expr], named: Callable[[str], str]) -> None:
        self.values, self.named = values, named

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return ast.Call(node.func, [self.visit(a) for a in node.args], [])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id) or ast.Name(self.named(node.id), ast.Load())

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        whole = isinstance(node.value, float) and node.value.is_integer() and abs(node.value) < 2**53
        return ast.Constant(int(node.value)) if whole else node  # type: ignore[arg-type]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        place = " ".join(ast.unparse(node.slice).split()).strip("()")
        part = ast.parse(f"x[{_HALVES.get(place, place)}]", mode="eval").body
        assert isinstance(part, ast.Subscript)
        return ast.Subscript(self.visit(node.value), part.slice, ast.Load())

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if not isinstance(node.op, _COMMUTES):
            return ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))
        op = type(node.op)
        visited = map(self.visit, _terms(node, op))  # a local may be a sum of its own
        first, *rest = sorted((t for v in visited for t in _terms(v, op)), key=ast.unparse)
        for term in rest:
            first = ast.BinOp(first, node.op, term)
        return first


def _terms(node: ast.expr, op: type[ast.operator]) -> Sequence[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, op):
        return [*_terms(node.left, op), *_terms(node.right, op)]
    return [node]
