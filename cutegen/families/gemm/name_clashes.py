"""Names that generated source has beside those of a spec: findings where they would clash."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cutegen.epilogue import Assign, Report
from cutegen.epilogue.installed import find_op
from cutegen.epilogue.ops import BUILT_IN_MODULE
from cutegen.epilogue.rules import OP_PACKAGE
from cutegen.epilogue.tree import Call, walk
from cutegen.families.gemm.problem_rules import NAME_COLLISION, RESERVED_NAME
from cutegen.families.generated_names import Clash, find_clashes
from cutegen.spec.names import reserved_problem

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec
    from cutegen.spec import SpecDocument

FAMILY = "gemm"
_RENAME = "choose another name"
_WORD = re.compile(r"\w+")


def check_made_names(spec: GemmSpec, doc: SpecDocument, report: Report) -> None:
    """Names of the spec, and what the kernel makes of them, are neither each other's nor those of generated source."""
    for clash in find_clashes(FAMILY, _names(spec)):
        _report_clash(spec, doc, clash, report)


def check_installed_ops(spec: GemmSpec, statements: tuple[Assign, ...], report: Report) -> None:
    """Functions of other packages stand beside the names of the spec in generated source."""
    taken = {*spec.tensors, *spec.dim_names(), *spec.epilogue}
    modules: dict[str, str] = {}
    for statement in statements:
        calls = (node for node in walk(statement.expr) if isinstance(node, Call))
        for call, op in ((call, find_op(call.op)) for call in calls):
            if op.module == BUILT_IN_MODULE:
                continue
            path = ("epilogue", statement.name)
            if name := next((name for name in (op.name, op.device) if name in taken), None):
                what = "the op" if name == op.name else f"the device function of `{op.name}`,"
                said = f"`{name}` is {what} that is called"
                remedy = "give the tensor, dim or local another name"
                report(NAME_COLLISION, path, said, remedy, span=call.span)
            elif problem := _function_problem(spec, op.device):
                said = f"`{op.device}`, the device function of `{op.name}`, {problem}"
                report(OP_PACKAGE, path, said, "rename it in its package", span=call.span)
            elif modules.setdefault(op.device, op.module) != op.module:
                said = f"`{op.device}` is a function of {modules[op.device]} and of {op.module}"
                report(OP_PACKAGE, path, said, "rename it in one of the packages", span=call.span)


def check_call_names(spec: GemmSpec, outputs: Iterable[str], updated: Collection[str], report: Report) -> None:
    """No operand is named as the parameter that takes the results."""
    fresh = [name for name in outputs if name not in updated]
    if fresh and "out" in spec.tensors and "out" not in fresh:
        said = f"`out` is the parameter of the package's function that takes `{fresh[0]}`"
        report(NAME_COLLISION, ("tensors", "out"), said, _RENAME, key=True)


def _function_problem(spec: GemmSpec, name: str) -> str | None:
    """Why a function of that name cannot be imported into generated source, or None."""
    for clash in find_clashes(FAMILY, [*_names(spec), (name, "op")]):
        if name in (clash.name, clash.other):
            return "is a name of generated source"
    return reserved_problem(name)


def _names(spec: GemmSpec) -> Iterator[tuple[str, str]]:
    """The names of a spec, each with its kind."""
    yield from ((dim, "dim") for dim in spec.dim_names())
    groups = spec.groups
    read = {*_WORD.findall(spec.mainloop), *((groups.labels, groups.counts, groups.offsets) if groups else ())}
    for name in spec.tensors:
        text = spec.epilogue.get(name)
        output = text is not None or not (spec.epilogue or name in read)
        yield name, "updated" if text and name in _WORD.findall(text) else "output" if output else "input"
    yield from ((name, "local") for name in spec.epilogue if name not in spec.tensors)


def _report_clash(spec: GemmSpec, doc: SpecDocument, clash: Clash, report: Report) -> None:
    name = clash.name
    rule = NAME_COLLISION if clash.other else RESERVED_NAME
    if name in spec.tensors or name in spec.epilogue:
        report(rule, ("tensors" if name in spec.tensors else "epilogue", name), clash.words(), _RENAME, key=True)
    else:
        texts: Any = doc.data["tensors"]
        tensor = next(t for t, decl in spec.tensors.items() if any(d.name == name for d in decl.shape))
        place = re.compile(rf"\b{name}\b").search(texts[tensor], texts[tensor].index("["))
        report(rule, ("tensors", tensor), clash.words(), _RENAME, span=place.span() if place else None)
