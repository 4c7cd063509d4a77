"""Groups of rows in the kernel module."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.features.groups.group_table import group_table
from cutegen.families.gemm.problem import GemmProblem, GroupForm


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
