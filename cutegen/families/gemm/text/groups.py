"""Groups of rows in the generated text: the table in the kernel module, and what the plan knows of them."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.derived import group_table
from cutegen.families.gemm.problem import GemmProblem, GroupForm

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
