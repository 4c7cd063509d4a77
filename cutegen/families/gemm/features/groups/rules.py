"""The rule about tiles and groups of rows."""

from __future__ import annotations

from cutegen.arch.architecture import Arch
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.groups.group_table import group_step
from cutegen.families.gemm.features.groups.section import GROUP_ALIGNMENT
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection


@BOOK.declare_form(GROUP_ALIGNMENT, "tile", "cluster", "swap_ab")
def group_alignment(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    groups = problem.groups
    if groups is None or groups.form != "labels" or groups.align % group_step(c, groups) == 0:
        return None
    axis = "mn".index(groups.along)
    tile, peers = c.tile[axis], c.cluster[axis]
    rows = f"tile {groups.along} = {tile}" + (
        f" x {peers} CTAs of a cluster = {tile * peers} rows" if peers > 1 else ""
    )
    turned = axis == 0 and groups.align % arch.mma_m != 0
    fits = f"use {'`swap_ab` and a tile n' if turned else f'a tile {groups.along}'} that divides {groups.align}"
    remedy = f"{fits}{' and no cluster along it' * (peers > 1)}, or align groups to more rows"
    return f"{rows}, but groups begin at multiples of {groups.align} rows", remedy
