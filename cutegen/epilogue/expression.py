"""Expressions of the spec language: text to a tree. Whitelisted syntax only; nothing is ever evaluated."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from cutegen.epilogue.context import REDUCTIONS
from cutegen.epilogue.installed import Unusable, load_op
from cutegen.epilogue.ops import OPS, EpilogueOp
from cutegen.epilogue.rules import (
    BLOCK,
    BLOCKS,
    CONDITION,
    EXPRESSION,
    MAX_DEPTH,
    MAX_EXPRESSION,
    NUMBER,
    OP_ARITY,
    OP_PACKAGE,
    SLICE,
    SPLIT,
    TOO_DEEP,
    UNKNOWN_OP,
)
from cutegen.epilogue.syntax import (
    ALLOWED,
    CHOICE,
    FORMS,
    SLICES,
    find_deeper,
    find_unpaired,
    list_ops,
    refuse_syntax,
    shorten,
    write_instead,
)
from cutegen.epilogue.tree import (
    MAX_F32,
    MIN_F32,
    Binary,
    Call,
    Compare,
    Expr,
    Gather,
    Index,
    Logic,
    Name,
    Negate,
    Number,
    Paired,
    Pairing,
    Reduce,
    ReduceOp,
    ReportAt,
    Slice,
    Span,
    Stored,
    Where,
    fits_f32,
)

_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@"}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
PAIRED: dict[str, Pairing] = {"halves": "concatenated", "pairs": "interleaved"}


def parse_expression(
    text: str,
    report: ReportAt,
    dims: Collection[str] = (),
    *,
    gathers: bool = False,
    reductions: Mapping[str, ReduceOp] = REDUCTIONS,
    columns: str = "",
    blocks: Sequence[int] = BLOCKS,
) -> Expr | None:
    """The tree of one expression, or None after reporting every reason why there is none. dims: what may be reduced;
    reductions: by which calls. gathers: whether `x[y]` with a name y is a gather, not a slice. columns, blocks: as
    in Context."""
    if len(text) > MAX_EXPRESSION:
        said = f"the expression has {len(text)} characters; at most {MAX_EXPRESSION} are allowed"
        report(EXPRESSION, (0, 0), said, SPLIT)
        return None
    for offset, char in enumerate(text):
        # '#' would start a Python comment and hide what follows.
        if char in "#\\" or not char.isascii() or not (char.isprintable() or char.isspace()):
            report(EXPRESSION, (offset, offset + 1), f"character {char!r} has no place in an expression", ALLOWED)
            return None
    if (at := find_deeper(text, MAX_DEPTH)) is not None:
        report(EXPRESSION, (at, at + 1), TOO_DEEP, SPLIT)
        return None
    # A folded YAML scalar may hold line breaks; as blanks they keep every offset.
    line = "".join(" " if char.isspace() else char for char in text).rstrip()
    source = line.lstrip()
    indent = len(line) - len(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(source, mode="eval").body
        return _Converter(text, indent, report, dims, gathers, reductions, columns, blocks).value(body, 1)
    except SyntaxError as error:
        # Python's messages differ between its versions; an offset of 0 or past the end means that something is missing.
        inside = 0 < (error.offset or 0) <= len(source)
        at = indent + (error.offset or 0) - 1 if inside else max(len(line) - 1, 0)
        said = "cannot be read from here on" if inside else "ends too early" if source else "is empty"
        if (unpaired := find_unpaired(line)) is not None:
            at, said = unpaired
        report(EXPRESSION, (at, at + 1), f"the expression {said}", ALLOWED)
    except (RecursionError, MemoryError, ValueError):
        report(EXPRESSION, (0, len(text)), "the expression is nested too deeply to be read", SPLIT)
    return None


class _Converter:
    """One pass over the Python tree; `report` sees every refused node."""

    def __init__(
        self,
        text: str,
        indent: int,
        report: ReportAt,
        dims: Collection[str],
        gathers: bool,
        reductions: Mapping[str, ReduceOp],
        columns: str,
        blocks: Sequence[int],
    ) -> None:
        self.text = text
        self.blocks = blocks
        self.columns = columns
        self.reductions = reductions
        self.dims = dims
        self.gathers = gathers
        self.indent = indent
        self.report = report

    def span(self, node: ast.expr) -> Span:
        return self.indent + node.col_offset, self.indent + (node.end_col_offset or node.col_offset + 1)

    def refuse(self, rule: str, node: ast.expr, message: str, remedy: str = ALLOWED) -> None:
        self.report(rule, self.span(node), message, remedy)

    def value(self, node: ast.expr, depth: int) -> Expr | None:
        """The tree of what has to be an f32 value."""
        if isinstance(node, ast.Compare | ast.BoolOp) or _is_not(node):
            self.refuse(CONDITION, node, "a condition is not a value", CHOICE)
            return None
        return self.convert(node, depth)

    def condition(self, node: ast.expr, depth: int) -> Expr | None:
        """The tree of what has to be a condition."""
        if isinstance(node, ast.Compare | ast.BoolOp) or _is_not(node):
            return self.convert(node, depth)
        self.refuse(CONDITION, node, "a condition is needed here", "compare two values: acc > 0")
        return None

    def convert(self, node: ast.expr, depth: int) -> Expr | None:
        span = self.span(node)
        if depth > MAX_DEPTH and not isinstance(node, ast.Constant | ast.Name):
            self.refuse(EXPRESSION, node, TOO_DEEP, SPLIT)
            return None
        match node:
            case ast.Constant(value):
                return self.number(node, value)
            case ast.Name(name):
                return Name(name, span)
            case ast.UnaryOp(ast.USub(), operand):
                inner = self.value(operand, depth + 1)
                return inner and Negate(inner, span)
            case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
                first, second = self.value(left, depth + 1), self.value(right, depth + 1)
                return first and second and Binary(_OPERATORS[type(operator)], first, second, span)
            case ast.Compare(left, operators, rights) if all(type(op) in _COMPARISONS for op in operators):
                return self.comparison([left, *rights], operators, depth, span)
            case ast.BoolOp(operator, parts):
                conditions = self.all(self.condition, parts, depth)
                name = "and" if isinstance(operator, ast.And) else "or"
                return None if conditions is None else Logic(name, conditions, span)
            case ast.UnaryOp(ast.Not(), operand):
                inner = self.condition(operand, depth + 1)
                return inner and Logic("not", (inner,), span)
            case ast.Call():
                return self.call(node, depth)
            case ast.Subscript(_, ast.Name(index)) if self.gathers:
                return self.gather(node, index, depth)
            case ast.Subscript():
                return self.slice(node)
        self.refuse(*refuse_syntax(node))
        return None

    def all(
        self, convert: Callable[[ast.expr, int], Expr | None], nodes: Sequence[ast.expr], depth: int
    ) -> tuple[Expr, ...] | None:
        """The trees of several parts, or None when any has none."""
        trees = [convert(node, depth + 1) for node in nodes]
        known = tuple(tree for tree in trees if tree is not None)
        return known if len(known) == len(trees) else None

    def comparison(
        self, values: Sequence[ast.expr], operators: Sequence[ast.cmpop], depth: int, span: Span
    ) -> Expr | None:
        """`x < y`, or a chain: `x < y <= z` is `x < y and y <= z`."""
        trees = self.all(self.value, values, depth)
        if trees is None:
            return None
        links = tuple(
            Compare(_COMPARISONS[type(op)], left, right, (left.span[0], right.span[1]))
            for op, left, right in zip(operators, trees, trees[1:])
        )
        return Logic("and", links, span) if len(links) > 1 else replace(links[0], span=span)

    def number(self, node: ast.Constant, value: object) -> Number | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(EXPRESSION, node, f"`{shorten(self.source(node))}` is not a number", ALLOWED)
            return None
        if not fits_f32(value):
            said = f"{shorten(self.source(node))} is out of the range of f32"
            # Rounded to five digits, both are within the range.
            self.refuse(NUMBER, node, said, f"use 0, or a number from {MIN_F32:.5g} to {MAX_F32:.5g}")
            return None
        return Number(float(value), self.span(node))

    def call(self, node: ast.Call, depth: int) -> Expr | None:
        if not isinstance(node.func, ast.Name):
            plain = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            remedy = f"write {plain}(..)" if plain in OPS else write_instead(plain) if plain else list_ops()
            self.refuse(EXPRESSION, node.func, "only an op can be called, by its plain name", remedy)
            return None
        name = node.func.id
        if name in self.reductions and (name not in OPS or any(map(self.is_dim, node.args[1:]))):
            return self.reduce(node, self.reductions[name], depth)
        if self.columns and name in ("index", "pick"):
            return self.index(node) if name == "index" else self.pick(node, depth)
        if self.columns and name in PAIRED:
            return self.paired(node, name, depth)
        op = None if name in FORMS else self.find_op(node.func)
        if op is None and name not in FORMS:
            return None
        if node.keywords:
            first = node.keywords[0].value
            said = f"`{name}` takes its arguments by position, not by keyword"
            self.refuse(EXPRESSION, first, said, f"write {op.form() if op else FORMS[name].example}")
            return None
        if name == "where":
            return self.where(node, depth)
        known = self.all(self.value, node.args, depth)
        if known is None:
            return None
        if name == "stored":
            if len(known) != 1 or not isinstance(known[0], Name):
                self.refuse(OP_ARITY, node, "`stored` takes the name of one output", "write stored(d)")
                return None
            return Stored(known[0].name, self.span(node))
        assert op
        if not op.accepts(len(known)):
            self.refuse(OP_ARITY, node, f"`{name}` takes {op.arity_text()}, not {len(known)}", f"`{name}`: {op.doc}")
            return None
        return Call(name, known, self.span(node))

    def find_op(self, node: ast.Name) -> EpilogueOp | None:
        """The op that is called, or None after a finding."""
        op = load_op(node.id)
        if isinstance(op, EpilogueOp):
            return op
        if isinstance(op, Unusable):
            self.refuse(OP_PACKAGE, node, op.reason, op.remedy)
            return None
        self.refuse(UNKNOWN_OP, node, f"there is no op `{node.id}`", write_instead(node.id))
        return None

    def is_dim(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.dims

    def reduce(self, node: ast.Call, op: ReduceOp, depth: int) -> Reduce | None:
        """`sum(x, n)`, `sum(x, m, n)`, or of blocks, `max_abs(x, n, 128)`."""
        rest = node.args[1:]
        size = rest[1] if len(rest) == 2 and isinstance(rest[1], ast.Constant) else None
        over = [arg.id for arg in rest if isinstance(arg, ast.Name) and self.is_dim(arg)]
        if not over or len(rest) != len({*over}) + (size is not None) or node.keywords:
            dims = ", ".join(self.dims) or "none here"
            said = f"`{op}` takes a value and the dims that it reduces"
            self.refuse(OP_ARITY, node, said, f"write {op}(x, n) or {op}(x, n, 128); dims: {dims}")
            return None
        block = 0
        if size is not None:
            if not isinstance(size.value, int) or size.value not in self.blocks:
                said = f"blocks of {shorten(self.source(size))} columns"
                low, high, step = BLOCKS.start, BLOCKS[-1], BLOCKS.step
                more = "".join(f"{n}, or " for n in self.blocks if n not in BLOCKS)
                self.refuse(BLOCK, size, said, f"use {more}a multiple of {step} from {low} to {high}")
                return None
            block = size.value
        value = self.value(node.args[0], depth + 1)
        return None if value is None else Reduce(op, value, tuple(over), block, self.span(node))

    def index(self, node: ast.Call) -> Index | None:
        if len(node.args) == 1 and isinstance(dim := node.args[0], ast.Name) and dim.id == self.columns:
            return Index(self.columns, self.span(node))
        said = f"`index` takes the dim of a row's elements, {self.columns}"
        self.refuse(OP_ARITY, node, said, f"write index({self.columns})")
        return None

    def pick(self, node: ast.Call, depth: int) -> Reduce | None:
        """`pick(x, i)`: the element whose index is i, else 0."""
        span = self.span(node)
        if len(node.args) != 2 or node.keywords:
            said = "`pick` takes a value of elements and the index of one of them"
            self.refuse(OP_ARITY, node, said, "write pick(x, label)")
            return None
        parts = self.all(self.value, node.args, depth)
        if parts is None:
            return None
        here = Compare("==", Index(self.columns, span), parts[1], span)
        return Reduce("sum", Where(here, parts[0], Number(0.0, span), span), (self.columns,), 0, span)

    def paired(self, node: ast.Call, name: str, depth: int) -> Paired | None:
        if len(node.args) != 2 or node.keywords:
            said = f"`{name}` takes two values with half of the columns"
            self.refuse(OP_ARITY, node, said, f"write {name}(x, y)")
            return None
        parts = self.all(self.value, node.args, depth)
        return None if parts is None else Paired(PAIRED[name], parts[0], parts[1], self.span(node))

    def where(self, node: ast.Call, depth: int) -> Where | None:
        if len(node.args) != 3:
            said = f"`where` takes a condition and two values, not {len(node.args)} arguments"
            self.refuse(OP_ARITY, node, said, f"write {FORMS['where'].example}")
            return None
        condition = self.condition(node.args[0], depth + 1)
        chosen, other = (self.value(arg, depth + 1) for arg in node.args[1:])
        return Where(condition, chosen, other, self.span(node)) if condition and chosen and other else None

    def gather(self, node: ast.Subscript, index: str, depth: int) -> Expr | None:
        """`x[rows]`; `(x * y)[rows]` is x[rows] * y[rows]."""
        whole = self.value(node.value, depth + 1)
        gathered = whole and _gather(whole, index, self.span(node.slice))
        if isinstance(gathered, Gather):
            return replace(gathered, span=self.span(node))
        if whole and not gathered:
            said = "rows are gathered from a tensor, or from one times its scales"
            self.refuse(EXPRESSION, node, said, f"write a[{index}], or (a * sa)[{index}]")
        return gathered

    def slice(self, node: ast.Subscript) -> Slice | None:
        """`x[:, 0::2]`, `x[:, 1::2]`, `x[:, :n/2]`, `x[:, n/2:]`; x with one dim is written without the colon."""
        if not isinstance(node.value, ast.Name):
            self.refuse(EXPRESSION, node, "only a name can be sliced", "name the value as a local, and slice that")
            return None
        before = node.slice.elts[:-1] if isinstance(node.slice, ast.Tuple) and node.slice.elts else []
        last = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        whole = all(isinstance(part, ast.Slice) and not (part.lower or part.upper or part.step) for part in before)
        ellipsis = len(before) == 1 and isinstance(before[0], ast.Constant) and before[0].value is ...
        columns = _half(last) if whole or ellipsis else None
        if columns is None:
            parts = (part.left for part in ast.walk(node.slice) if isinstance(part, ast.BinOp))  # `n` of n//2
            dim = next((part.id for part in parts if isinstance(part, ast.Name)), "n")
            said = "a slice takes every second column or one half of the columns"
            self.refuse(SLICE, node, said, SLICES.format(n=dim))
            return None
        return Slice(node.value.id, *columns[:2], None if ellipsis else len(before), columns[2], self.span(node))

    def source(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]


def _gather(tree: Expr, index: str, at: Span) -> Expr | None:
    """The rows of each factor; None where there is more than names and products."""
    match tree:
        case Name(name, span):
            return Gather(name, index, span, at)
        case Binary("*", left, right):
            first, second = _gather(left, index, at), _gather(right, index, at)
            return first and second and replace(tree, left=first, right=second)
    return None


def _half(node: ast.expr) -> tuple[Pairing, int, str | None] | None:
    """Pairing, part and the name in `n/2` of the slice of the columns."""
    if not isinstance(node, ast.Slice):
        return None
    match node.lower, node.upper, node.step:
        case None | ast.Constant(0), None, ast.Constant(2):
            return "interleaved", 0, None
        case ast.Constant(1), None, ast.Constant(2):
            return "interleaved", 1, None
        case None, ast.BinOp(ast.Name(name), ast.Div(), ast.Constant(2)), None:
            return "concatenated", 0, name
        case ast.BinOp(ast.Name(name), ast.Div(), ast.Constant(2)), None, None:
            return "concatenated", 1, name
    return None


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
