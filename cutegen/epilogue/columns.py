"""Which columns of the product a value has, and the epilogue of a product whose columns come in pairs.

A gated output has half the columns of the product: each element is computed from a pair of accumulators. The kernel
loads the columns of B such that both accumulators of a pair lie in one thread, and computes one pair where another
kernel computes one element. `split_pairs` turns the epilogue of a spec into that of a pair: what has all columns of the
product becomes two values, NAME_0 and NAME_1, and a slice becomes one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from cutegen.epilogue.program import Assign, EpilogueProgram, Operand, Output, Part, Report
from cutegen.epilogue.rules import COLUMNS, NOT_YET_SUPPORTED, SLICE
from cutegen.epilogue.tree import (
    Binary,
    Call,
    Expr,
    Name,
    Number,
    Paired,
    Pairing,
    Reduce,
    ReportAt,
    Slice,
    Span,
    Stored,
    children,
    map_children,
    walk,
)

Tensor = TypeVar("Tensor", Operand, Output)
Columns = Literal["all", "half", "blocks", "none"]
_WORDS: dict[Columns, str] = {
    "all": "{n} columns", "half": "{n}/2 columns", "blocks": "a column for each block", "none": "no columns",
}  # fmt: skip


def find_pairing(statements: Sequence[Assign]) -> Pairing | None:
    """The pairing of the first slice, or of what is put together of two."""
    nodes = (node for s in statements for node in walk(s.expr))
    return next((node.pairing for node in nodes if isinstance(node, Slice | Paired)), None)


def check_columns(
    program: EpilogueProgram, n: str, batched: bool, report: Report, ranks: Mapping[str, int] | None = None
) -> None:
    """Reports slices of what has no columns, other slices than the first, and values whose columns do not agree.

    n: the name of the product's columns. batched: whether the product has a batch dim. ranks: of tensors, where they
    are rows, whose reductions are values.
    """
    has: dict[str, Columns] = {"acc": "all"}
    rank_of_rows = max(ranks.values()) if ranks else 2 + batched
    dims = {"acc": 2 + batched}
    for operand in program.operands:
        with_columns = operand.kind in ("row_vector", "tile", "block_input")
        has[operand.name] = ("half" if operand.half else "all") if with_columns else "none"
        dims[operand.name] = (ranks or {}).get(operand.name, len(operand.axes))
    outputs = (o for o in program.outputs if len(o.axes) > 1)
    declared: dict[str, Columns] = {o.name: "half" if o.half else "all" for o in outputs}
    declared |= {o.name: "none" for o in program.outputs if o.name not in declared}
    declared |= {o.name: "blocks" for o in program.block_outputs}
    declared |= {r.name: "half" if r.half else "all" for r in program.reductions if r.kept == "n"}
    domain: Columns = "half" if program.pairing else "all"
    for statement in program.statements:
        path = ("epilogue" if ranks is None else "rows", statement.name)

        def refuse(rule: str, span: Span, said: str, remedy: str, path: tuple[str, ...] = path) -> None:
            report(rule, path, said, remedy, span=span)

        for node in walk(statement.expr):
            if isinstance(node, Paired) and node.pairing != program.pairing:
                said = f"the columns are {node.pairing} here and {program.pairing} before"
                refuse(SLICE, node.span, said, "use one kind of slice")
            if isinstance(node, Slice):
                rank = dims.get(node.name, rank_of_rows)
                for rule, said, remedy in _wrong_slice(node, program.pairing, has.get(node.name, "all"), rank, n):
                    refuse(rule, node.span, said, remedy)
        found = _columns(statement.expr, has, domain, n, refuse)
        expected = declared.get(statement.name)
        if found is not None and expected is not None and found not in (expected, "none"):
            said = f"the value has {_words(found, n)}, output `{statement.name}` has {_words(expected, n)}"
            half = f"compute it from slices: {_example(program.pairing, n)}"
            blocks = f"compute it of blocks: max_abs(x, {n}, 128)"
            has_it = f"{_words(found, n)}{f', such as {n}/128' * (found == 'blocks')}"
            remedy = {"half": half, "blocks": blocks}.get(expected, f"declare `{statement.name}` with {has_it}")
            refuse(COLUMNS, statement.expr.span, said, remedy)
        for node in walk(statement.expr):
            if isinstance(node, Reduce):
                what = _columns(node.value, has, domain, n, lambda *_: None)
                if ranks is not None and not node.block:
                    continue
                for rule, said, remedy in _wrong_reduction(node, what, program, n):
                    refuse(rule, node.span, said, remedy)
        has[statement.name] = expected or found or "all"


def _words(columns: Columns, n: str) -> str:
    return _WORDS[columns].format(n=n)


def _example(pairing: Pairing | None, n: str) -> str:
    return f"acc[:, :{n}/2], acc[:, {n}/2:]" if pairing == "concatenated" else "acc[:, 0::2], acc[:, 1::2]"


def _wrong_slice(
    node: Slice, pairing: Pairing | None, columns: Columns, rank: int, n: str
) -> Iterator[tuple[str, str, str]]:
    if columns != "all":
        yield SLICE, f"`{node.name}` has {_words(columns, n)}: it cannot be sliced", f"slice what has {n} columns"
    elif node.pairing != pairing:
        yield SLICE, f"the columns are {node.pairing} here and {pairing} before", "use one kind of slice"
    elif node.extent not in (None, n):
        yield SLICE, f"`{node.extent}` is not the number of columns", f"write {n}/2"
    elif node.dims not in (None, rank - 1):
        colons = "".join(":, " for _ in range(rank - 1))
        said = f"`{node.name}` has {rank} dim{'s' * (rank != 1)}, the slice {(node.dims or 0) + 1}"
        yield SLICE, said, f"write {node.name}[{colons}{'0::2' if node.extent is None else f':{n}/2'}]"


def _wrong_reduction(
    node: Reduce, columns: Columns | None, program: EpilogueProgram, n: str
) -> Iterator[tuple[str, str, str]]:
    over, what = ", ".join(node.over), node.op
    if node.block and node.over != (n,):
        yield NOT_YET_SUPPORTED, f"blocks of {over} are not supported yet", f"write {what}(x, {n}, {node.block})"
    elif program.pairing and columns == "all":
        said = f"a reduction of {n} columns in a gated product is not supported yet"
        yield NOT_YET_SUPPORTED, said, "reduce a value of slices"
    elif columns == "blocks":
        yield COLUMNS, f"the value has {_words(columns, n)} already", "reduce a value of columns"


def _columns(expr: Expr, has: Mapping[str, Columns], domain: Columns, n: str, refuse: ReportAt) -> Columns | None:
    """The columns of a value; None after a finding. domain: what blocks are blocks of."""
    match expr:
        case Name(name) | Stored(name):
            return has.get(name, "all")
        case Slice():
            return "half"
        case Reduce(value=value, over=over, block=block):
            columns = _columns(value, has, domain, n, refuse)
            return columns and ("blocks" if block else "none" if n in over else columns)
        case Paired(_, one, other):
            for part in (one, other):
                columns = _columns(part, has, domain, n, refuse)
                if columns not in (None, "half"):
                    said = f"this half has {_words(columns or 'none', n)}"
                    refuse(COLUMNS, part.span, said, f"give it {n}/2 columns, as slices have")
            return "all"
    first: tuple[Columns, Expr] | None = None
    ok = True
    for part in children(expr):
        columns = _columns(part, has, domain, n, refuse)
        ok = ok and columns is not None
        if columns is None or columns == "none":
            continue
        if first is None or (first[0] == "blocks" and columns == domain):
            first = columns, part
        elif columns != first[0] and not (columns == "blocks" and first[0] == domain):
            said = f"a value with {_words(columns, n)} meets one with {_words(first[0], n)}"
            blocks = "blocks" in (columns, first[0])
            refuse(
                COLUMNS,
                part.span,
                said,
                f"blocks are of {n}/2 columns here" if blocks else "take the same slices of both",
            )
            ok = False
    if not ok:
        return None
    return first[0] if first else "none"


def split_pairs(program: EpilogueProgram) -> EpilogueProgram:
    """The epilogue of a pair of accumulators, `acc_0` and `acc_1`; a program without slices stays as it is."""
    if program.pairing is None:
        return program
    whole = {"acc"} | {o.name for o in program.outputs if not o.half and len(o.axes) > 1}
    whole |= {o.name for o in program.operands if not o.half and o.kind in ("row_vector", "tile")}
    for s in program.statements:
        if s.kind == "local" and _has_all(s.expr, whole):
            whole.add(s.name)
    statements: list[Assign] = []
    for s in program.statements:
        if s.name in whole:
            statements += [replace(s, name=f"{s.name}_{i}", expr=_part(s.expr, i, whole)) for i in (0, 1)]
        else:
            statements.append(replace(s, expr=_part(s.expr, 0, whole)))
    operands = tuple(part for o in program.operands for part in _parts(o, whole))
    outputs = tuple(part for o in program.outputs for part in _parts(o, whole))
    scaled = tuple((o.name, s) for tile, s in program.scaled for o in operands if (o.part_of or o).name == tile)
    return replace(program, statements=tuple(statements), operands=operands, outputs=outputs, scaled=scaled)


def name_roles(program: EpilogueProgram, role_of: Callable[[str], str | None]) -> EpilogueProgram:
    """The program with roles in place of the dims that reductions are over."""

    def convert(node: Expr) -> Expr:
        if isinstance(node, Reduce):
            node = replace(node, over=tuple(role_of(dim) or dim for dim in node.over))
        return map_children(node, convert)

    return replace(program, statements=tuple(replace(s, expr=convert(s.expr)) for s in program.statements))


def pair_names(names: Sequence[str]) -> dict[str, str]:
    """The names that `split_pairs` may introduce, each with the one it is made of."""
    return {f"{name}_{i}": name for name in names for i in (0, 1)}


def _has_all(expr: Expr, whole: set[str]) -> bool:
    """Whether a value has all columns: it reads, unsliced, what has them."""
    if isinstance(expr, Name | Stored):
        return expr.name in whole
    if isinstance(expr, Paired | Reduce):
        return isinstance(expr, Paired)
    return any(_has_all(part, whole) for part in children(expr))


def _parts(tensor: Tensor, whole: Collection[str]) -> Iterator[Tensor]:
    if tensor.name not in whole:
        yield tensor
        return
    for i in (0, 1):
        yield replace(tensor, name=f"{tensor.name}_{i}", half=True, part_of=Part(tensor.name, i))


def _part(expr: Expr, index: int, whole: set[str]) -> Expr:
    """The tree for one of the pair: names with all columns become those of part `index`."""
    match expr:
        case Slice(name=name, part=part, span=span):
            return Name(f"{name}_{part}", span)
        case Name(name) | Stored(name) if name in whole:
            return replace(expr, name=f"{name}_{index}")
        case Paired(_, first, second):
            return _part(second if index else first, index, whole)
        case Reduce(op, value, _, 0) if _has_all(value, whole):
            one, other = (_part(value, i, whole) for i in (0, 1))
            if op == "max_abs":
                one, other = (Call("abs", (part,), value.span) for part in (one, other))
            largest = Call("max", (one, other), value.span)
            return replace(expr, value=Binary("+", one, other, value.span) if op in ("sum", "mean") else largest)
        case Reduce("mean", value):  # of half as many
            return replace(expr, value=Binary("*", Number(2.0, value.span), _part(value, 0, whole), value.span))
    return map_children(expr, lambda node: _part(node, index, whole))
