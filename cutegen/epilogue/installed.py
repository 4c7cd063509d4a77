"""Ops that installed distributions add, through the entry point group `cutegen.epilogue_ops`.

A spec that calls built-in ops alone costs nothing here: metadata is read when a name is none of theirs, and a package
is imported when one of its ops is called or explained. A package cannot change what a built-in name means.
cutegen.distributions tells which packages count.
"""

from __future__ import annotations

import ast
import functools
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutegen.diagnostics import describe_error
from cutegen.distributions import (
    Installed,
    Offer,
    Unloadable,
    find_elsewhere,
    find_offers,
    load_offer,
    refuses_packages,
    several,
)
from cutegen.epilogue.ops import BUILT_IN_MODULE, FUNCTIONS, OPS, EpilogueOp

GROUP = "cutegen.epilogue_ops"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why an op that is installed cannot be called, and what to do."""

    reason: str
    remedy: str


def find_installed() -> Installed:
    """The ops that the installed distributions offer, by their metadata; no package is imported."""
    return find_offers(GROUP)


def load_op(name: str) -> EpilogueOp | Unusable | None:
    """The op of that name, its package imported; None: nothing offers it. Built-in names are the built-in ops."""
    return OPS[name] if name in OPS else None if refuses_packages() else _load_installed(name)


@functools.cache
def _load_installed(name: str) -> EpilogueOp | Unusable | None:
    offers = find_installed().offers.get(name, ())
    if not offers:
        return None
    first = offers[0]
    if len(offers) > 1:
        return Unusable(several(offers), "uninstall all of them but one")
    loaded = _load(first)
    if isinstance(loaded, EpilogueOp):
        return loaded
    return Unusable(f"`{name}`, {first}, cannot be used: {loaded}", f"fix or uninstall {first.distribution}")


def find_op(name: str) -> EpilogueOp:
    """The op that a parsed call names."""
    op = load_op(name)
    assert isinstance(op, EpilogueOp), name
    return op


def clashes() -> Iterator[str]:
    """Entry points that no spec can call, because their name means something else."""
    for name, offers in find_installed().offers.items():
        if _taken(name):
            yield from (f"`{name}`, {offer}, is never called: the name is built in" for offer in offers)


def _taken(name: str) -> bool:
    return name in OPS or name in FUNCTIONS


def _load(offer: Offer) -> EpilogueOp | str:
    """The op of an entry point, or why there is none."""
    if _taken(offer.name):
        return "the name is built in"
    try:
        found = load_offer(offer, GROUP)
        op = found() if isinstance(found, type) and issubclass(found, EpilogueOp) else found
    except Unloadable as error:
        return str(error)
    except (Exception, SystemExit) as error:
        return describe_error(error)
    if not isinstance(op, EpilogueOp):
        return "it is not a class derived from cutegen.epilogue.EpilogueOp"
    try:
        return next(_faults(op, offer.name), find_elsewhere(op.module, offer.folders) or op)
    except Exception as error:
        return describe_error(error)


def _faults(op: EpilogueOp, name: str) -> Iterator[str]:
    """What is wrong with the attributes of an op."""
    missing = [key for key in ("name", "device", "flops") if not hasattr(op, key)]
    if missing:
        yield f"it has no `{missing[0]}`"
        return
    if op.name != name or not _NAME.fullmatch(name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        yield f"its name is {op.name!r}, that of its entry point {name!r}: both have to be one identifier"
    if not op.doc or op.__doc__ == EpilogueOp.__doc__:
        yield "it has no docstring, which is its documentation"
    if op.arguments is not None and (not _is_int(op.arguments) or op.arguments < 1):
        yield f"`arguments` is {op.arguments!r}: how many, from 1 on, or None for two or more"
    count = op.arguments or 2
    if not all(_is_int(index) and 0 <= index < count for index in op.numbers):
        yield f"`numbers` is {op.numbers!r}: indices of its {count} arguments"
    if not _is_int(op.flops) or op.flops < 0:
        yield f"`flops` is {op.flops!r}: a whole number"
    if not isinstance(op.error, float | int) or not 0 <= op.error < 1:
        yield f"`error` is {op.error!r}: a number from 0 to 1"
    for name in ("derivative", "derivative_constant"):
        texts = getattr(op, name)
        if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts) or len(texts) > count:
            yield f"`{name}` is {texts!r}: a tuple with an expression for each of its {count} arguments"
    yield from _device_faults(op)
    for constant in ([False] * count, [i in op.numbers or i > 0 for i in range(count)]):
        text, sums = (
            op.torch_text([form.format(i) for i in range(count)], constant) for form in ("x{0}", "x{0} + y{0}")
        )
        if reason := _reference_fault(text, sums, count):
            yield f"its torch reference {reason}: {text}"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _device_faults(op: EpilogueOp) -> Iterator[str]:
    """What is wrong with the device function, as far as the text of its module tells: importing it needs the DSL."""
    from importlib.util import find_spec

    if not isinstance(op.device, str) or not _NAME.fullmatch(op.device) or keyword.iskeyword(op.device):
        yield f"`device` is {op.device!r}: the name of a function"
    elif op.device in FUNCTIONS:
        yield f"`device` is {op.device!r}, which is built in: choose another name"
    elif not isinstance(op.module, str) or not _MODULE.fullmatch(op.module):
        yield f"`module` is {op.module!r}: the dotted name of a module"
    elif op.module == BUILT_IN_MODULE:
        yield "it has no `module`, where its device function is"
    elif (spec := find_spec(op.module)) is None:
        yield f"there is no module {op.module}, where its device function is"
    elif spec.origin and spec.origin.endswith(".py"):
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        if op.device not in _bound(tree):
            yield f"{op.module} defines no `{op.device}`"


def _bound(tree: ast.Module) -> set[str]:
    """Names that the statements of a module bind, those inside of `if` and `try` included."""
    names: set[str] = set()
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            pending += ast.iter_child_nodes(node)
    return names


class _Sums(ast.NodeTransformer):
    """Writes `x0 + y0` for the argument `x0`."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "torch":
            return node
        return ast.BinOp(node, ast.Add(), ast.Name(node.id.replace("x", "y"), ast.Load()))


def _reference_fault(text: str, sums: str, count: int) -> str | None:
    """Why a reference cannot stand in the plan: one expression over torch and its arguments, which binds as a call
    whatever its arguments are. sums: the same with a sum for each argument."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return "is not an expression"
    known = {"torch", *(f"x{i}" for i in range(count))}
    if unknown := sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - known):
        return f"reads `{unknown[0]}`; it may read torch and its arguments"
    if not isinstance(node, ast.Call) and node.col_offset == 0:
        return "is not enclosed in parentheses"
    if ast.dump(_Sums().visit(node)) != ast.dump(ast.parse(sums, mode="eval").body):
        return "has an argument that is neither one of a call nor in parentheses"
    return None
