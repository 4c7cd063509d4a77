"""What looks like Python in an expression and is not: forms of our own, refused syntax, names from elsewhere."""

from __future__ import annotations

import ast
from typing import NamedTuple

from cutegen import elsewhere
from cutegen.diagnostics import suggest
from cutegen.distributions import OFF, refuses_packages
from cutegen.epilogue.installed import find_installed
from cutegen.epilogue.ops import OPS
from cutegen.epilogue.rules import EXPRESSION


class Form(NamedTuple):
    """What is called like an op and is none: how it is written, what it takes, what it is."""

    example: str
    takes: str
    doc: str


FORMS = {
    "stored": Form("stored(d)", "an output", "The value of output d after it was rounded to its dtype."),
    "where": Form(
        "where(acc > 0, acc, 0)", "a condition and 2 values", "The first value where it holds, the second elsewhere."
    ),
}
CALLS = FORMS | {
    "sum": Form("sum(x, n)", "a value and dims", "The sum over all indices of the dims: an output without them."),
    "max": Form("max(x, n)", "a value and dims", "The largest value over the dims: an output without them, or NaN."),
    "max_abs": Form(
        "max_abs(x, n, 128)",
        "a value and dims, or a dim and how many make a block",
        "The largest absolute value over the dims, or of each block of them; NaN if any is NaN.",
    ),
}
ALLOWED = "write names, numbers, + - * /, parentheses and calls such as relu(acc)"
CHOICE = "choose between two values: where(acc > 0, acc, 0)"
SLICES = "write acc[:, 0::2] and acc[:, 1::2], or acc[:, :{n}/2] and acc[:, {n}/2:]"


def find_unpaired(text: str) -> tuple[int, str] | None:
    """(column, what is wrong) of the first bracket that closes nothing, else of the last that is not closed."""
    opened: list[int] = []
    for at, char in enumerate(text):
        if char in "([":
            opened.append(at)
        elif char in ")]":
            if not opened or text[opened[-1]] + char not in ("()", "[]"):
                return at, f"has a `{char}` that closes nothing"
            opened.pop()
    return (opened[-1], f"has a `{text[opened[-1]]}` that nothing closes") if opened else None


def find_deeper(text: str, levels: int) -> int | None:
    """The column of the first bracket that is inside of so many others. (Python's parser gives up at some depth, too,
    and says less.)"""
    depth = 0
    for at, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if depth > levels:
            return at
    return None


def list_ops() -> str:
    return f"ops: {', '.join(dict.fromkeys((*OPS, *CALLS, *find_installed().offers)))}"


def write_instead(name: str) -> str:
    """What to write in place of an op that there is not: what others mean by it, else the ops, those like it first."""
    if name in elsewhere.OPS:
        return elsewhere.OPS[name]
    installed = find_installed()
    names = (*OPS, *CALLS, *installed.offers)
    variants = " or ".join(f"`{op}`" for op in names if op.startswith(f"{name}_"))
    near = f"did you mean {variants}?" if variants else suggest(name, names)
    unread = "".join(f"; entry points cannot be read: {text}" for text in installed.unreadable)
    off = f"; those of packages are off: {OFF}" if refuses_packages() else ""
    return f"{near} {list_ops()}{unread}{off}".strip()


def shorten(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:20]}..."


def refuse_syntax(node: ast.expr) -> tuple[str, ast.expr, str, str]:
    """Rule, node, message and remedy for Python syntax that is no part of the language."""
    match node:
        case ast.IfExp():
            return EXPRESSION, node, "a choice is written as a call", "write where(condition, x, y)"
        case ast.Compare():
            return EXPRESSION, node, "values are compared by < <= > >= == and !=", CHOICE
        case ast.BinOp(_, ast.Pow(), _):
            return EXPRESSION, node, "there is no power operator", "write square(x) or x * x * x"
        case ast.BinOp(_, ast.FloorDiv() | ast.Mod(), _):
            return EXPRESSION, node, "there is no integer division and no remainder: values are f32", "write x / y"
        case ast.UnaryOp(ast.UAdd(), _):
            return EXPRESSION, node, "there is no unary plus", "drop the sign"
        case ast.Attribute(attr="T" | "mT" | "t"):
            remedy = "drop it: the names of dims say what is contracted, and their order how a tensor lies"
            return EXPRESSION, node, "there is no transpose", remedy
        case ast.Attribute():
            return EXPRESSION, node, "names have no attributes", "call ops by their plain name: tanh(x)"
        case ast.Starred():
            return EXPRESSION, node, "arguments are written one by one, without a star", ALLOWED
    return EXPRESSION, node, "this is not part of the expression language", ALLOWED
