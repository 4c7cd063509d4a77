"""Scales that vary along k, one factor for each block of an operand: where they lie, and which go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cutegen.epilogue.tree import ReportAt, Span
from cutegen.families.gemm import problem_rules as rules
from cutegen.families.gemm.placement import HALF
from cutegen.families.gemm.problem import BlockScale, ProblemDim

if TYPE_CHECKING:
    from cutegen.families.gemm.mainloop import Scale
    from cutegen.families.gemm.roles import Roles
    from cutegen.spec import TensorDecl

SIDES = ("m", "n")  # the rows of the left and of the right operand


def place_block_scale(scale: Scale, decl: TensorDecl, roles: Roles) -> BlockScale:
    """A scale that `refuse_scale` has let pass."""
    placed = {roles.role_of(dim.base): (axis, dim) for axis, dim in enumerate(decl.shape)}
    (row_axis, along_rows), (k_axis, along_k) = placed[SIDES[scale.side]], placed["k"]
    rows = 1 if along_rows.kind in ("name", "int") else along_rows.factor
    contiguous = decl.inner
    return BlockScale(
        name=scale.name, dtype=decl.dtype, rows=rows, depth=along_k.factor,
        axes=(row_axis, k_axis, *([placed["batch"][0]] if "batch" in placed else [])),
        up=(along_rows.rounds_up, along_k.rounds_up), k_major=contiguous == along_k.text,
    )  # fmt: skip


def place_block_scales(
    scales: tuple[Scale, ...],
    tensors: Mapping[str, TensorDecl],
    roles: Roles,
    dims: Mapping[str, ProblemDim],
    report: ReportAt,
) -> tuple[BlockScale | None, BlockScale | None]:
    """Those of the left and of the right operand; what does not go together is reported."""
    sides: list[BlockScale | None] = [None, None]
    depth = 0
    for scale in scales:
        if not scale.blocked:
            continue
        placed = place_block_scale(scale, tensors[scale.name], roles)
        if sides[scale.side] is not None:
            said = f"`{scale.name}` is the second scale of blocks for one operand"
            report(rules.SCALE, scale.span, said, "multiply them into one beforehand")
        if depth not in (0, placed.depth):
            said = f"`{scale.name}` has blocks of {placed.depth} elements of {roles.k}, the other scale of {depth}"
            report(rules.SCALE, scale.span, said, "use blocks of the same size")
        for role, divisor, up in ((SIDES[scale.side], placed.rows, placed.up[0]), ("k", placed.depth, placed.up[1])):
            dim = dims[role]
            if not up and dim.value is not None and dim.value % divisor:
                said = f"`{scale.name}`: {dim.name} = {dim.value} is not a multiple of {divisor}"
                report(rules.EXACT_DIVISION, scale.span, said, f"write ceil({dim.name}/{divisor})")
        sides[scale.side], depth = placed, placed.depth
    return sides[0], sides[1]


def check_halves(scale: BlockScale, n: ProblemDim, span: Span, report: ReportAt) -> None:
    """Where the columns of pairs are half of n apart, each half has blocks of its own, and all of them are whole: a
    tile reads one factor for its first columns and one for its second."""
    both = HALF * scale.rows
    if scale.up[0]:
        said = f"`{scale.name}`: each half of {n.name} consists of whole blocks of {scale.rows} columns"
        report(rules.SCALE, span, said, f"write {n.name}/{scale.rows}")
    elif n.value is not None and n.value % both:
        said = f"`{scale.name}`: half of {n.name} = {n.value} is not a multiple of {scale.rows} columns"
        report(rules.EXACT_DIVISION, span, said, f"use a multiple of {both}, or pairs 2 i and 2 i + 1: acc[:, 0::2]")
