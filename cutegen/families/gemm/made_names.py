"""Names that generated source has beside those of a spec: findings where they would clash."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from cutegen.epilogue import Assign, EpilogueProgram, Report, old_name, pair_names
from cutegen.epilogue.installed import find_op
from cutegen.epilogue.ops import BUILT_IN_MODULE
from cutegen.epilogue.rules import OP_PACKAGE
from cutegen.epilogue.tree import Call, walk
from cutegen.families.gemm.problem_rules import NAME_COLLISION
from cutegen.runtime.gathered_rows import copied_name
from cutegen.spec.names import function_problem

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec


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
            elif problem := function_problem(op.device):
                said = f"`{op.device}`, the device function of `{op.name}`, {problem}"
                report(OP_PACKAGE, path, said, "rename it in its package", span=call.span)
            elif modules.setdefault(op.device, op.module) != op.module:
                said = f"`{op.device}` is a function of {modules[op.device]} and of {op.module}"
                report(OP_PACKAGE, path, said, "rename it in one of the packages", span=call.span)


def check_made_names(spec: GemmSpec, program: EpilogueProgram, gathered: Iterable[str], report: Report) -> None:
    """Names that the kernel makes of values with pairs of columns, of outputs that it updates, and of what is gathered,
    name nothing else."""
    made = {old_name(name): name for name in program.updated}
    made |= {copied_name(name): name for name in gathered}
    if program.pairing:
        made |= pair_names(["acc", *spec.tensors, *made, *spec.epilogue])
    for dim in spec.dim_names():
        if program.pairing and dim in {f"{other}_over_2" for other in spec.dim_names()}:
            said = f"the dim `{dim}` is what generated source makes of `{dim.removesuffix('_over_2')}/2`"
            report(NAME_COLLISION, ("tensors",), said, "choose another name", key=True)
    for section in ("tensors", "epilogue"):
        for name in getattr(spec, section):
            if name in made and not (section == "epilogue" and name in spec.tensors):
                said = f"`{name}` is what generated source makes of `{made[name]}`"
                report(NAME_COLLISION, (section, name), said, "choose another name", key=True)


def check_call_names(spec: GemmSpec, outputs: Iterable[str], updated: Collection[str], report: Report) -> None:
    """No operand is named as the parameter that takes the results."""
    fresh = [name for name in outputs if name not in updated]
    if fresh and "out" in spec.tensors and "out" not in fresh:
        said = f"`out` is the parameter of the package's function that takes `{fresh[0]}`"
        report(NAME_COLLISION, ("tensors", "out"), said, "choose another name", key=True)
