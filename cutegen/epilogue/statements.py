"""The statements of an epilogue: parsed, checked, and put in the order in which they are computed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from cutegen.diagnostics import suggest
from cutegen.epilogue.context import EPILOGUE, Context
from cutegen.epilogue.deciding import Range, find_range, live_reads
from cutegen.epilogue.expression import parse_expression
from cutegen.epilogue.installed import find_installed, find_op
from cutegen.epilogue.ops import OPS
from cutegen.epilogue.program import Assign, Report
from cutegen.epilogue.rules import (
    CONSTANT,
    CYCLE,
    EXPRESSION,
    MAX_STATEMENTS,
    REDUCTION,
    STATEMENTS,
    STORED,
    UNDEFINED_NAME,
    UNUSED_LOCAL,
)
from cutegen.epilogue.syntax import FORMS
from cutegen.epilogue.tree import (
    Binary,
    Call,
    Compare,
    Expr,
    Logic,
    Name,
    Reduce,
    ReportAt,
    Slice,
    Span,
    Stored,
    children,
    fold,
    is_constant,
    reads,
    walk,
)


def parse_epilogue(
    assignments: Mapping[str, str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    report: Report,
    taken: Sequence[str] = (),
    dims: Collection[str] = (),
    context: Context = EPILOGUE,
    rowwise: Collection[str] = (),
) -> tuple[Assign, ...] | None:
    """The assignments as ordered statements, or None after reporting every finding.

    inputs, outputs: names of declared tensors in order of declaration, outputs being those assigned. taken: names that
    exist but are no values of the epilogue (dims, mainloop operands), for better messages. dims: those of tensors that
    may be reduced. context: where the assignments stand. rowwise: inputs with a value for each row, one of which every
    output depends on where there is no product.
    """
    if len(assignments) > MAX_STATEMENTS:
        said = f"the epilogue has {len(assignments)} assignments; at most {MAX_STATEMENTS} are allowed"
        report(STATEMENTS, (context.section,), context.say(said), "write some of them as one expression", key=True)
        return None
    ok = True

    def refuse(name: str, rule: str, span: Span, message: str, remedy: str) -> None:
        nonlocal ok
        ok = False
        report(rule, (context.section, name), context.say(message), context.say(remedy), span=span)

    trees: dict[str, Expr] = {}
    for name, text in assignments.items():
        tree = parse_expression(
            text,
            partial(refuse, name),
            dims,
            reductions=context.reductions,
            columns=context.columns,
            blocks=context.blocks,
        )
        if tree is not None:
            trees[name] = tree
    values = [*context.sources, *inputs, *assignments]
    for name, tree in trees.items():
        products = [node for node in walk(tree) if isinstance(node, Binary) and node.op == "@"]
        inside = {id(part) for product in products for part in walk(product) if part is not product}
        for node in walk(tree):  # a product is no expression here: what it is of is no finding of its own
            if id(node) not in inside:
                _check_node(node, values, outputs, taken, partial(refuse, name))
        if not context.readable:
            _check_reductions(name, tree, trees, outputs, partial(refuse, name))
    if not ok:
        return None
    order = _order(trees, outputs, report, context)
    sources = {*context.sources, *rowwise}
    if order is None or not _check_values(trees, order, outputs, report, context, sources):
        return None
    return tuple(
        Assign(name, trees[name], "output" if name in outputs else "local", " ".join(assignments[name].split()))
        for name in order
    )


def _check_node(
    node: Expr, values: Sequence[str], outputs: Sequence[str], taken: Sequence[str], refuse: ReportAt
) -> None:
    """Names and `@`: what the syntax alone does not tell."""
    match node:
        case Name(name, span) | Slice(name=name, span=span) if name in taken:
            known = f"values are {', '.join(values)}"
            refuse(UNDEFINED_NAME, span, f"`{name}` is not a value of the epilogue", known)
        case Name(name, span) | Slice(name=name, span=span) if _is_op(name, values):
            form = FORMS[name].example if name in FORMS else f"{name}(x)"
            refuse(UNDEFINED_NAME, span, f"`{name}` is an op and needs its arguments", f"write {form}")
        case Name(name, span) | Slice(name=name, span=span) if name not in values:
            listed = f"values are {', '.join(values)}"
            near = suggest(name, values) or "an input is declared under `tensors`;"
            refuse(UNDEFINED_NAME, span, f"`{name}` is not defined", f"{near} {listed}")
        case Stored(name, span) if name not in outputs:
            listed = ", ".join(outputs) or "none"
            refuse(STORED, span, f"`{name}` is not an output of this epilogue", f"outputs: {listed}")
        case Binary("@", _, _, span):
            refuse(EXPRESSION, span, "`@` belongs in `mainloop`", "the product is called acc here")


def _is_op(name: str, values: Sequence[str]) -> bool:
    """Whether a name that stands alone is that of an op; what the spec defines comes before ops of other packages."""
    return name in OPS or name in FORMS or (name not in values and name in find_installed().offers)


def _check_reductions(
    owner: str, tree: Expr, trees: Mapping[str, Expr], outputs: Sequence[str], refuse: ReportAt
) -> None:
    """A reduction of all is the root of an output's tree, and is read by nothing."""
    for node in walk(tree):
        if isinstance(node, Reduce) and not node.block and (node is not tree or owner not in outputs):
            said = "a reduction is part of a value" if node is not tree else f"the local `{owner}` is a reduction"
            alone = f"{node.op}(x, {', '.join(node.over)})"
            remedy = (
                f"declare a tensor for it, and assign the reduction alone: r: {alone}; what the epilogue reads again "
                f"is a value of blocks: {node.op}(x, n, 128)"
            )
            refuse(REDUCTION, node.span, said, remedy)
        elif (
            isinstance(node, Name | Stored | Slice)
            and isinstance(read := trees.get(node.name), Reduce)
            and not read.block
        ):
            said = f"`{node.name}` is complete only when all tiles are: nothing can be computed from it here"
            remedy = "compute that in the next kernel, or reduce blocks of columns: max_abs(x, n, 128)"
            refuse(REDUCTION, node.span, said, remedy)


def _order(trees: Mapping[str, Expr], outputs: Sequence[str], report: Report, context: Context) -> list[str] | None:
    """Names in order of computation: depth first from the outputs as declared, so that key order changes nothing."""
    done: list[str] = []
    active: list[str] = []
    ok = True

    def visit(name: str) -> None:
        nonlocal ok
        if name in done or name not in trees:
            return
        if name in active:
            ok = False
            circle = " -> ".join((*active[active.index(name) :], name))
            report(
                CYCLE, (context.section, name), f"`{name}` depends on itself: {circle}", "break the circle", key=True
            )
            return
        active.append(name)
        for node in walk(trees[name]):
            in_place = isinstance(node, Name | Slice) and node.name == name and name in outputs
            if isinstance(node, Name | Stored | Slice) and not in_place:
                visit(node.name)
        active.pop()
        done.append(name)

    for name in outputs:
        visit(name)
    reached = set(done)
    for name in trees:
        visit(name)
    if ok and outputs:
        for name in trees:
            if name not in reached:
                ok = False
                remedy = f"remove it, or declare `{name}` under `tensors` if it is an output"
                report(UNUSED_LOCAL, (context.section, name), f"nothing reads the local `{name}`", remedy, key=True)
    return done if ok else None


def _check_values(
    trees: Mapping[str, Expr],
    order: Sequence[str],
    outputs: Sequence[str],
    report: Report,
    context: Context,
    sources: Collection[str],
) -> bool:
    """Constant parts fold to finite numbers, and every output depends on one of the sources."""
    constants: dict[str, float] = {}
    ranges: dict[str, Range] = {}
    depends = {*sources}
    rule, source, remedy_alone = context.alone
    ok = True
    for name in order:
        tree = trees[name]
        for node, said, remedy in _bad_constants(tree, constants):
            ok = False
            report(CONSTANT, (context.section, name), said, remedy, span=node.span)
        if (value := fold(tree, constants)) is not None:
            constants[name] = value
        ranges[name] = find_range(tree, ranges)
        if depends.intersection(live_reads(tree, ranges)):
            depends.add(name)
        elif name in outputs:
            ok = False
            read = depends.intersection(reads(tree))
            said = f"does not depend on {source}{': its conditions are always the same' * bool(read)}"
            report(rule, (context.section, name), f"output `{name}` {said}", remedy_alone)
    return ok


def _bad_constants(expr: Expr, constants: Mapping[str, float]) -> Iterator[tuple[Expr, str, str]]:
    """The innermost parts that are constant without a value, and divisions of what varies by zero."""
    if fold(expr, constants) is not None:
        return
    inner = [finding for part in children(expr) for finding in _bad_constants(part, constants)]
    yield from inner
    if isinstance(expr, Binary) and expr.op == "/" and fold(expr.right, constants) == 0:
        yield expr.right, "division by zero", "a divisor is not zero"
    elif is_constant(expr, constants) and not inner:
        if isinstance(expr, Compare | Logic):
            yield expr, "a condition that is always the same", "compare something that varies"
        else:
            what = f"`{expr.op}` of constants" if isinstance(expr, Call) else "a constant beyond the range of f32"
            yield expr, what, "write its value as a number"
    elif isinstance(expr, Call):
        for index in find_op(expr.op).numbers:
            if fold(expr.args[index], constants) is None:
                said = f"argument {index + 1} of `{expr.op}` is not a number"
                yield expr.args[index], said, f"`{expr.op}`: {find_op(expr.op).doc}"
