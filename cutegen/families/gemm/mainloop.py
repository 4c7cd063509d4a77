"""The mainloop of a spec: `a @ b`, or with scales, `(a * sa) @ (b * sb)`, or of gathered rows, `a[rows] @ b`.

The dims of a scale decide what becomes of it. A scalar, and one value per row (or batch index), factor out of the sum
over k: the epilogue multiplies the accumulator by them. One value per block along k does not: it multiplies the sum of
that block when f32 registers take it from the tensor core.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutegen.diagnostics import suggest
from cutegen.epilogue import Assign, parse_expression
from cutegen.epilogue.tree import Binary, Expr, Gather, Name, ReportAt, Span
from cutegen.families.gemm import problem_rules as rules

if TYPE_CHECKING:
    from cutegen.families.gemm.roles import Roles
    from cutegen.spec import TensorDecl
    from cutegen.spec.dims import Dim

_BLOCKS = ("div", "ceil_div")
MMA_K = 32  # elements of k in an MMA of 8-bit operands; twice as many as of 16-bit ones


@dataclass(frozen=True, slots=True)
class Scale:
    """A factor of one operand. side: 0 of the left one, 1 of the right one. blocked: it varies along k."""

    name: str
    side: int
    blocked: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Mainloop:
    """operands: names of the two that are multiplied. scales: left to right. gather: the left operand as it is read,
    where an index names its rows."""

    operands: tuple[str, str]
    scales: tuple[Scale, ...]
    gather: Gather | None = None

    @property
    def index(self) -> tuple[str, ...]:
        """The tensor that names rows, if there is one."""
        return (self.gather.index,) if self.gather else ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.operands, *self.index, *(s.name for s in self.scales))

    @property
    def blocked(self) -> tuple[str, ...]:
        """Scales that vary along k."""
        return tuple(s.name for s in self.scales if s.blocked)

    @property
    def own(self) -> tuple[str, ...]:
        """What only the mainloop reads: operands, the index of rows and blocked scales."""
        return (*self.operands, *self.index, *self.blocked)

    def scaled(self) -> tuple[Assign, ...]:
        """The statement that applies the scales that factor out of the sum, none where there are none."""
        factors = [s for s in self.scales if not s.blocked]
        tree: Expr = Name("acc", (0, 0))
        for s in factors:
            tree = Binary("*", tree, Name(s.name, s.span), s.span)
        return (Assign("acc", tree, "local", " * ".join(["acc", *(s.name for s in factors)])),) if factors else ()


def parse_mainloop(text: str, tensors: Mapping[str, TensorDecl], report: ReportAt) -> Mainloop | None:
    """None after a finding."""
    ok = True

    def refuse(rule: str, span: Span, message: str, remedy: str) -> None:
        nonlocal ok
        ok = False
        report(rule, span, message, remedy)

    tree = parse_expression(text, refuse, gathers=True)
    if tree is None:
        return None
    if not isinstance(tree, Binary) or tree.op != "@":
        refuse(rules.MAINLOOP, tree.span, "the mainloop is no product of two tensors", rules.WRITE_MAINLOOP)
        return None
    sides = [_factors(side, tensors, refuse) for side in (tree.left, tree.right)]
    matrices = [_matrix(factors, tensors, refuse) for factors in sides]
    a, b = matrices
    if ok and a is not None and b is not None and a.name == b.name:
        remedy = "declare two tensors; a call may pass one twice"
        refuse(rules.MAINLOOP, tree.span, f"both operands are `{a.name}`", remedy)
    if isinstance(b, Gather):
        said = f"rows of the right operand `{b.name}` cannot be gathered"
        refuse(rules.MAINLOOP, b.span, said, "write the product the other way round: y[rows] @ x")
    if not ok or a is None or b is None:
        return None
    shared = _names(tensors[a.name]) & _names(tensors[b.name])
    scales = [
        Scale(f.name, side, _is_blocked(tensors[f.name], shared), f.span)
        for side, factors in enumerate(sides)
        for f in factors
        if f is not matrices[side]
    ]
    return Mainloop((a.name, b.name), tuple(scales), a if isinstance(a, Gather) else None)


def _is_blocked(decl: TensorDecl, shared: Container[str | None]) -> bool:
    """Whether it has one value per block of a dim that both operands have."""
    return any(d.kind in _BLOCKS and d.name in shared for d in decl.dims or ())


def refuse_scale(
    scale: Scale, decl: TensorDecl, operand: TensorDecl, name: str, roles: Roles
) -> tuple[str, str] | None:
    """Why (message, remedy) `scale` cannot multiply the operand called `name`, if it cannot."""
    rows = roles.n if scale.side else roles.m
    block = f"f32[{rows}/128, {roles.k}/128]" if scale.side else f"f32[{rows}, {roles.k}/128]@{rows}"
    remedy = f"use f32, f32[], f32[{rows}] or {block}"
    if decl.dtype.name != "f32":
        return f"`{scale.name}` is {decl.dtype}: scales are f32", remedy
    kinds: dict[str, Dim] = {}
    for dim in decl.dims or ():
        role = roles.role_of(dim.name or dim.text)
        if role is None or dim.kind == "mul" or (dim.name or dim.text) not in {d.text for d in operand.dims or ()}:
            return f"`{scale.name}` has the dim `{dim}`, and `{name}` {_listed(operand)} has no such rows", remedy
        kinds["rows" if role in ("m", "n") else role] = dim
    along_k, along_rows = kinds.get("k"), kinds.get("rows")
    in_blocks = along_rows is not None and along_rows.kind in _BLOCKS and along_rows.factor > 1
    if along_k is None:
        return (f"`{scale.name}` has blocks along {rows} and none along {roles.k}", remedy) if in_blocks else None
    if along_k.kind not in _BLOCKS:
        return f"`{scale.name}` varies with every {roles.k}: that is no scale", remedy
    if along_rows is None or in_blocks != bool(scale.side):
        have = "all rows" if along_rows is None else "each block of rows" if in_blocks else "each row"
        wants = "each block of rows" if scale.side else "each row"
        said = f"`{scale.name}` has one value for {have} and block of {roles.k}, and `{name}` needs one for {wants}"
        return said, remedy
    contiguous = decl.contiguous or (decl.dims or ())[-1].text
    if contiguous != rows and not scale.side:
        return f"`{scale.name}` has {contiguous} contiguous; {rows} has to be, which TMA loads a column of", remedy
    if contiguous == roles.batch:
        return f"`{scale.name}` has {contiguous} contiguous; {along_rows} or {along_k} has to be", "put it first"
    if along_k.factor % MMA_K:
        said = f"`{scale.name}` has blocks of {along_k.factor} elements of {roles.k}, no multiple of an MMA's {MMA_K}"
        return said, "use blocks of 128"
    return None


def _listed(decl: TensorDecl) -> str:
    return f"[{', '.join(map(str, decl.dims or ()))}]"


def _names(decl: TensorDecl) -> set[str | None]:
    return {d.name for d in decl.dims or () if d.kind == "name"}


def _factors(tree: Expr, tensors: Mapping[str, TensorDecl], refuse: ReportAt) -> list[Name | Gather]:
    """The factors of one side, left to right; [] after a finding."""
    match tree:
        case Gather(name, index, span):
            for read in (name, index):
                if read not in tensors:
                    remedy = suggest(read, tensors) or "declare it, such as rows: i32[m]"
                    refuse(rules.UNDEFINED_NAME, span, f"the mainloop reads `{read}`, which is no tensor", remedy)
                    return []
            return [tree]
        case Name(name, span):
            if name in tensors:
                return [tree]
            said = f"the mainloop reads `{name}`, which is no tensor"
            remedy = suggest(name, tensors) or "declare it, or name others: `mainloop: x @ y`"
            refuse(rules.UNDEFINED_NAME, span, said, remedy)
            return []
        case Binary("*", left, right):
            return _factors(left, tensors, refuse) + _factors(right, tensors, refuse)
    refuse(rules.MAINLOOP, tree.span, "an operand of the mainloop is a tensor, times scales", rules.WRITE_SCALED)
    return []


def _matrix(factors: list[Name | Gather], tensors: Mapping[str, TensorDecl], refuse: ReportAt) -> Name | Gather | None:
    """The factor that is the operand: of two dims or more, and no f32 where there are others."""
    if len(factors) < 2:
        return factors[0] if factors else None
    for f in factors:
        if isinstance(f, Gather) and (tensors[f.name].dtype.bits == 32 or len(tensors[f.name].dims or ()) < 2):
            said = f"`{f.name}[{f.index}]`: scales are not gathered"
            refuse(rules.MAINLOOP, f.span, said, f"write {f.name}, with a scale for each row of the product")
            return None
    matrices = [f for f in factors if len(tensors[f.name].dims or ()) >= 2 and tensors[f.name].dtype.bits < 32]
    if len(matrices) == 1:
        return matrices[0]
    listed = ", ".join(f"`{f.name}`" for f in matrices or factors)
    said = (
        f"{listed} would be multiplied element by element" if matrices else f"none of {listed} is an operand of an MMA"
    )
    refuse(rules.MAINLOOP, factors[-1].span, said, rules.WRITE_SCALED)
    return None
