"""Scales by which the tensor core multiplies: which there are, and how a spec declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cutegen.arch import Arch
from cutegen.epilogue.tree import ReportAt
from cutegen.families.gemm import problem_rules as rules
from cutegen.families.gemm.placement import HALF
from cutegen.families.gemm.problem import PackedScale, ProblemDim
from cutegen.runtime.gemm.scale_packing import ROWS

if TYPE_CHECKING:
    from cutegen.families.gemm.mainloop import Mainloop, Scale
    from cutegen.families.gemm.roles import Roles
    from cutegen.spec import TensorDecl

ELSEWHERE = "or `arch: sm_100a` or sm_120a, whose tensor cores multiply by scales such as e8m0[m, k/32]"


def refuse_packed(
    scale: Scale, mainloop: Mainloop, tensors: Mapping[str, TensorDecl], roles: Roles, arch: Arch
) -> tuple[str, str] | None:
    """Why (message, remedy) the tensor core cannot multiply by `scale`, if it cannot."""
    decl, operands = tensors[scale.name], [tensors[name] for name in mainloop.operands]
    if not arch.scaled_mmas:
        return f"`{scale.name}` is {decl.dtype}: on {arch.name} scales are f32", f"use f32, {ELSEWHERE}"
    a, b = (operand.dtype for operand in operands)
    kinds = arch.list_scales(a, b)
    if not kinds:
        have = ", ".join(dict.fromkeys(f"{x} @ {y}" for x, y, _ in arch.scaled_mmas))
        f32 = "use f32 scales, or one of" if arch.find_mma(a, b) else "there are"
        return f"there is no product {a} @ {b} with scales of {decl.dtype}", f"{f32} {have}"
    rows = roles.n if scale.side else roles.m
    batch = [roles.batch] if roles.batch and roles.batch in {d.text for d in operands[scale.side].shape} else []
    wanted = {f"{dtype}[{', '.join((*batch, rows, f'{roles.k}/{block}'))}]": (dtype, block) for dtype, block in kinds}
    listed = " or ".join(wanted)
    if str(decl) not in wanted:
        return f"`{scale.name}` is {decl}, no scale by which {arch.mma} multiplies", f"declare it {listed}"
    each = [[s for s in mainloop.scales if s.packed and s.side == side] for side in (0, 1)]
    for own, name in zip(each, mainloop.operands):
        if len(own) != 1:
            said = f"`{name}` has {len(own) or 'no'} scales of blocks: {arch.mma} multiplies both operands by one"
            return said, "write (a * sa) @ (b * sb)"
    left = tensors[each[0][0].name]
    same = [text for text, kind in wanted.items() if kind == (left.dtype.name, left.shape[-1].factor)]
    if scale.side and same and str(decl) not in same:
        said = f"`{scale.name}` is {decl}, but `{each[0][0].name}` {left}: both operands have scales of one kind"
        return said, f"declare it {same[0]}"
    return None


def check_packed_halves(scale: PackedScale, n: ProblemDim, report: ReportAt, mainloop: Mainloop) -> None:
    """Where the columns of pairs are half of n apart, each half has chunks of its own, and all of them are whole."""
    if n.value is None or n.value % (step := HALF * ROWS) == 0:
        return
    span = next(s.span for s in mainloop.scales if s.name == scale.name)
    said = f"`{scale.name}`: half of {n.name} = {n.value} is not a multiple of the {ROWS} rows of a chunk of scales"
    report(rules.EXACT_DIVISION, span, said, f"pad {n.name} to {-(-n.value // step) * step}")


def place_packed(
    scales: Sequence[Scale], tensors: Mapping[str, TensorDecl], roles: Roles, k: ProblemDim, report: ReportAt
) -> tuple[PackedScale | None, PackedScale | None]:
    """Those of the left and of the right operand, of scales that `refuse_packed` has let pass."""
    sides: list[PackedScale | None] = [None, None]
    for scale in scales:
        decl = tensors[scale.name]
        placed = PackedScale(scale.name, decl.dtype, decl.shape[-1].factor, roles.batch in {d.text for d in decl.shape})
        if k.value is not None and k.value % placed.block:
            said = f"`{scale.name}`: {k.name} = {k.value} is not a multiple of {placed.block}"
            up = -(-k.value // placed.block) * placed.block
            report(rules.EXACT_DIVISION, scale.span, said, f"pad {k.name} to {up}")
        sides[scale.side] = placed
    return sides[0], sides[1]
