"""The epilogue as a spec writes it, before dims have roles: its statements, and which tensors it reads and stores."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cutegen.arch import ARCHS
from cutegen.epilogue import Assign, Report, find_in_place, parse_epilogue, separate_in_place
from cutegen.epilogue.context import EPILOGUE, REDUCTIONS
from cutegen.epilogue.rules import NARROW_BLOCK
from cutegen.epilogue.tree import Reduce, reads
from cutegen.families.aliasing import IN_PLACE
from cutegen.families.gemm import problem_rules as rules
from cutegen.families.gemm.mainloop import Mainloop
from cutegen.families.gemm.name_clashes import check_installed_ops
from cutegen.families.gemm.placement import Placement
from cutegen.spec.base import list_names

if TYPE_CHECKING:
    from cutegen.families.gemm.spec import GemmSpec

_REDUCES = re.compile(rf"\s*({'|'.join(REDUCTIONS)})\s*\(")
_CALL = re.compile(r"\s*\w+\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Written:
    """What an epilogue says before dims have roles. statements: None after a finding; those of the mainloop's scales
    come first. inputs, outputs: tensors, in declared order; updated: outputs that are read, too.

    sums: outputs that are one value for all rows or columns; whole: the others."""

    statements: tuple[Assign, ...] | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    updated: tuple[str, ...]
    sums: Mapping[str, Reduce]
    whole: tuple[str, ...]


def read_epilogue(
    spec: GemmSpec, mainloop: Mainloop | None, claimed: str | None, placement: Placement, report: Report
) -> Written:
    """claimed: the tensor that tells groups."""
    taken, own, gathered = (mainloop.reads, mainloop.own, mainloop.gathered) if mainloop else ((), (), ())
    own = (*own, *([claimed] if claimed else []))
    assignments = _assignments(spec, taken, claimed, report)
    rest = [name for name in spec.tensors if name not in own]
    outputs = [name for name in rest if name in assignments]
    inputs = [name for name in rest if name not in assignments]
    dims = list(spec.dim_names())
    read = [name for name in inputs if name not in gathered]
    narrow = [NARROW_BLOCK] if ARCHS[spec.arch].tensor_memory else []
    context = replace(EPILOGUE, blocks=(*narrow, *EPILOGUE.blocks))
    statements = parse_epilogue(assignments, read, outputs, report, (*own, *gathered, *dims), dims, context)
    check_installed_ops(spec, statements or (), report)
    updated = tuple(name for name in outputs if name in find_in_place(statements or ()))
    if mainloop and statements is not None:
        statements = (*mainloop.scaled(), *separate_in_place(statements))
        if outputs:
            _check_used(statements, inputs, report)
    roots = {s.name: s.expr for s in statements or () if isinstance(s.expr, Reduce)}
    sums = {name: roots[name] for name in outputs if name in roots and not roots[name].block}
    reduced = set(sums)
    if statements is None:  # after findings: what looks like a reduction is not judged as a tile
        looks = (name for name in outputs if _looks_reduced(assignments[name], dims))
        reduced = {name for name in looks if not placement.has_blocks(name)}
    whole = tuple(name for name in outputs if name not in reduced)
    return Written(statements, tuple(inputs), tuple(outputs), updated, sums, whole)


def _looks_reduced(text: str, dims: Collection[str]) -> bool:
    """Whether an expression that has findings is a reduction, or the call of a name with a dim, as only those take."""
    called = _CALL.fullmatch(text)
    return bool(_REDUCES.match(text) or (called and any(part.strip() in dims for part in called[1].split(","))))


def _assignments(spec: GemmSpec, operands: tuple[str, ...], claimed: str | None, report: Report) -> dict[str, str]:
    """The epilogue as written, or `acc` for the one tensor that is neither read by the mainloop (operands) nor
    tells groups (claimed)."""
    written = spec.epilogue
    rest = [name for name in spec.tensors if name not in (*operands, claimed)]
    if not written and len(rest) == 1:
        return {rest[0]: "acc"}
    for name in operands:
        if name in written:
            said = f"`{name}` is read by the mainloop, by tiles that may be computed after this is stored"
            report(IN_PLACE, ("epilogue", name), said, "assign another tensor", key=True)
    if not set(rest) & set(written) and (written or operands):
        said = "no tensor is assigned" if written or not rest else f"which of {list_names(rest)} is the output?"
        remedy = "declare the output under `tensors` and assign it under `epilogue`, such as d: acc"
        report(rules.NO_OUTPUT, ("epilogue",) if written else ("tensors",), said, remedy, key=True)
    return {name: text for name, text in written.items() if name not in operands}


def _check_used(statements: tuple[Assign, ...], inputs: list[str], report: Report) -> None:
    read = {name for statement in statements for name in reads(statement.expr)}
    for name in inputs:
        if name not in read:
            remedy = "remove it, or use it in `mainloop` or `epilogue`"
            report(rules.UNUSED_TENSOR, ("tensors", name), f"nothing reads or assigns `{name}`", remedy, key=True)
