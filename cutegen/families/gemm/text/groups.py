"""Groups of rows in the generated text: the table in the kernel module, and what the plan knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cutegen.epilogue import EpilogueProgram, Operand
from cutegen.families.gemm.derived import group_table
from cutegen.families.gemm.problem import GemmProblem, GroupForm
from cutegen.render.layout import bracketed

_OVERVIEW = {
    "labels": "{tensor}[row] is the group of a row; tiles begin where groups may, and padding has none",
    "counts": "the first {tensor}[group] rows of each group count",
    "offsets": "rows of a group end at {tensor}[group] and begin where those of the group before it end",
}


@dataclass(frozen=True, slots=True)
class GroupText:
    """What the templates read as k.groups."""

    form: GroupForm
    tensor: str  # that says which rows are in which group
    entries: int  # of the table of groups
    columns: int  # of it
    rows_along_m: bool

    @property
    def ragged(self) -> bool:
        """Whether groups begin anywhere, not where tiles do."""
        return self.form == "offsets"

    def moves(self, dim: str) -> bool:
        """Whether coordinates along `dim`, m or n, count from the begin of a tile's group."""
        return self.ragged and (dim == "m") == self.rows_along_m


def group_text(problem: GemmProblem) -> GroupText | None:
    """In the kernel's frame."""
    groups = problem.groups
    if groups is None:
        return None
    entries, columns = group_table(problem)
    return GroupText(groups.form, groups.tensor, entries, columns, groups.along == "m")


def group_overview(problem: GemmProblem) -> tuple[str, ...]:
    """Lines of the module docstring."""
    if problem.groups is None or problem.batch is None:
        return ()
    text = _OVERVIEW[problem.groups.form].format(tensor=problem.groups.tensor)
    matrix = (problem.b if problem.groups.along == "m" else problem.a).name
    return (
        f"Rows in groups: {text}.",
        f"The batch index of {matrix} is a tile's group; every CTA tabulates the groups before its first tile.",
        "",
    )


def explain_groups(problem: GemmProblem) -> tuple[str, ...]:
    """In the words of the spec."""
    if problem.groups is None or problem.batch is None:
        return ()
    text = _OVERVIEW[problem.groups.form].format(tensor=problem.groups.tensor)
    aligned = f"; groups begin at multiples of {problem.groups.align} rows" if problem.groups.form == "labels" else ""
    return (f"{problem.b.name}[{problem.batch.name}] is that of a row's group: {text}{aligned}",)


def row_groups_text(problem: GemmProblem) -> str:
    """The RowGroups of the plan; "" without groups."""
    groups = problem.groups
    if groups is None or problem.batch is None:
        return ""
    parts = [f'"{groups.form}"', f'"{groups.tensor}"', f'rows="{problem.m.name}"', f'groups="{problem.batch.name}"']
    if groups.form == "labels":
        parts.append(f"align={groups.align}")
    if groups.expected_rows:
        parts.append(f"expected_rows={groups.expected_rows}")
    return bracketed("RowGroups(", parts, ")", indent=4, used=len("row_groups = "))


def row_group_names(problem: GemmProblem) -> tuple[str, ...]:
    """What the plan imports from cutegen.runtime.row_groups."""
    if problem.groups is None:
        return ()
    return ("RowGroups", "multiply_members") if problem.groups.flat else ("RowGroups",)


def member_lines(problem: GemmProblem) -> Iterator[str]:
    """Statements of the reference that turn operands with a value for each group into such with one for each row."""
    for operand in _of_groups(problem):
        ordered = f"{operand.name}.permute(1, 0)" if operand.axes == (0, 1) else operand.name  # the group first
        yield f"{operand.name} = {ordered}[members]"


def of_rows(problem: GemmProblem) -> EpilogueProgram:
    """The epilogue after `member_lines`."""
    rows = {operand.name: _by_row(operand) for operand in _of_groups(problem)}
    operands = tuple(rows.get(o.name, o) for o in problem.epilogue.operands)
    return replace(problem.epilogue, operands=operands)


def _by_row(operand: Operand) -> Operand:
    if operand.kind == "device_scalar":
        return replace(operand, kind="column_vector", batched=False, axes=(0,))
    return replace(operand, kind="tile", batched=False, axes=(0, 1), major="n")


def _of_groups(problem: GemmProblem) -> list[Operand]:
    """Operands with the dim of groups, where that of rows has no group."""
    if problem.groups is None or not problem.groups.flat:
        return []
    return [operand for operand in problem.epilogue.operands if operand.batched]
