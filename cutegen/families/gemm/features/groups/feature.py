"""What rows in groups add to a GEMM, seam by seam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cutegen.arch.architecture import ACCESS_BYTES
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.feature import Feature
from cutegen.families.gemm.features.groups.group_table import group_table
from cutegen.families.gemm.problem import GemmProblem, ProblemDim
from cutegen.model.smem import I32, SmemField

_OVERVIEW = {
    "labels": "{tensor}[row] is the group of a row; tiles begin where groups may, and padding has none",
    "counts": "the first {tensor}[group] rows of each group count",
    "offsets": "rows of a group end at {tensor}[group] and begin where those of the group before it end",
}


class GroupsFeature(Feature):
    def list_tables(self, problem: GemmProblem) -> Iterator[SmemField]:
        if problem.groups:
            entries, facts = group_table(problem)
            holds = f"i32 ({entries}, {facts}), where each group lies"
            yield SmemField("group_table", I32, entries * facts, f"GROUPS * {facts}", holds, ACCESS_BYTES)

    def index_tensors(self, problem: GemmProblem) -> Iterator[tuple[str, ProblemDim]]:
        if problem.groups and problem.batch:
            of_rows = problem.groups.form == "labels"
            yield problem.groups.tensor, problem.extents[problem.groups.along] if of_rows else problem.batch

    # -- what is said of it --

    def overview(self, problem: GemmProblem) -> tuple[str, ...]:
        if problem.groups is None or problem.batch is None:
            return ()
        text = _OVERVIEW[problem.groups.form].format(tensor=problem.groups.tensor)
        matrix = (problem.b if problem.groups.along == "m" else problem.a).name
        return (
            f"Rows in groups: {text}.",
            f"The batch index of {matrix} is a tile's group; every CTA tabulates the groups before its first tile.",
            "",
        )

    def describe_results(self, problem: GemmProblem) -> Iterator[tuple[str, str, str]]:
        if problem.groups and problem.batch:
            yield problem.groups.tensor, "i32", f"{problem.groups.form} of rows in groups"

    def explain_product(self, problem: GemmProblem, tilings: Mapping[str, Candidate]) -> Iterator[str]:
        if problem.groups is None or problem.batch is None:
            return
        groups = problem.groups
        aligned = f"; groups begin at multiples of {groups.align} rows" if groups.form == "labels" else ""
        text = _OVERVIEW[groups.form].format(tensor=groups.tensor)
        yield f"{problem.b.name}[{problem.batch.name}] is that of a row's group: {text}{aligned}"
