"""The mainloop of a spec: `a @ b`, or with scales, `(a * sa) @ (b * sb)`, or of gathered rows, `a[rows] @ b`, whose
scales are those of the rows of the product, `(a[rows] * sa) @ b`, or are gathered with them, `(a * sa)[rows] @ b`.

The dims of a scale decide what becomes of it. A scalar, and one value per row (or batch index), factor out of the sum
over k: the epilogue multiplies the accumulator by them. One value per block along k does not: it multiplies the sum of
that block when f32 registers take it from the tensor core; or, of 8 bits, the tensor core multiplies by it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from cutegen.diagnostics import suggest
from cutegen.epilogue import Assign, parse_expression
from cutegen.epilogue.tree import Binary, Expr, Gather, Name, ReportAt, Span, walk
from cutegen.families.gemm import problem_rules as rules
from cutegen.families.gemm.roles import find_roles

if TYPE_CHECKING:
    from cutegen.families.gemm.roles import Roles
    from cutegen.spec import TensorDecl
    from cutegen.spec.dims import Dim


PACKED_BITS = 8  # of scales by which the tensor core multiplies


@dataclass(frozen=True, slots=True)
class Scale:
    """A factor of one operand. side: 0 of the left one, 1 of the right one. blocked: it varies along k. packed: it has
    8 bits. gathered: it has the rows that the operand has, of which an index names those of the product."""

    name: str
    side: int
    blocked: bool
    span: Span
    gathered: bool = False
    packed: bool = False


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
    def gathered(self) -> tuple[str, ...]:
        """Scales whose rows are gathered with those of the left operand."""
        return tuple(s.name for s in self.scales if s.gathered)

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
        beside = "; what becomes of the product stands under `epilogue`" * (not isinstance(tree, Name))
        said = "the mainloop is not a product of two tensors"
        refuse(rules.MAINLOOP, tree.span, said, rules.WRITE_MAINLOOP + beside)
        return None
    for index, at in dict.fromkeys((node.index, node.at) for node in walk(tree) if isinstance(node, Gather)):
        if index not in tensors:
            remedy = suggest(index, tensors) or "declare it, such as rows: i32[m]"
            refuse(rules.UNDEFINED_NAME, at, f"the mainloop reads `{index}`, which is not a tensor", remedy)
    sides = [_factors(side, tensors, refuse) for side in (tree.left, tree.right)]
    matrices = [_matrix(factors, tensors, refuse) for factors in sides]
    a, b = matrices
    if ok and a is not None and b is not None and a.name == b.name:
        remedy = "declare two tensors; a call may pass one twice"
        refuse(rules.MAINLOOP, tree.span, f"both operands are `{a.name}`", remedy)
    if right := next((f for f in sides[1] if isinstance(f, Gather)), None):
        said = f"rows of the right operand `{right.name}` cannot be gathered"
        refuse(rules.MAINLOOP, right.span, said, "write the product the other way round: y[rows] @ x")
    if not ok or a is None or b is None:
        return None
    shared = _names(tensors[a.name]) & _names(tensors[b.name])
    scales = [
        Scale(
            f.name,
            side,
            _is_blocked(tensors[f.name], shared),
            f.span,
            _is_gathered(f, tensors),
            tensors[f.name].dtype.bits == PACKED_BITS,
        )
        for side, factors in enumerate(sides)
        for f in factors
        if f is not matrices[side]
    ]
    gather = a if isinstance(a, Gather) else None
    for f in (f for f in sides[0] if isinstance(f, Gather) and f.index != (gather and gather.index)):
        own = f"those of `{a.name}` are not" if gather is None else f"those of `{a.name}` by `{gather.index}`"
        said = f"rows of the scale `{f.name}` are gathered by `{f.index}`, {own}"
        index = gather.index if gather else f.index
        refuse(rules.MAINLOOP, f.span, said, f"gather both: ({a.name} * {f.name})[{index}]")
    return Mainloop((a.name, b.name), tuple(scales), gather) if ok else None


def suggest_product(tensors: Mapping[str, TensorDecl]) -> str:
    """`x @ y` of the first two tensors whose product a third one can hold; "" where there are none."""
    dims = {name: [d.text for d in decl.shape] for name, decl in tensors.items()}
    for x, y in combinations(dims, 2):
        if any(not isinstance(find_roles(dims[x], dims[y], dims[d], (x, y, d)), str) for d in dims if d not in (x, y)):
            return f"{x} @ {y}"
    return ""


def _is_gathered(factor: Name | Gather, tensors: Mapping[str, TensorDecl]) -> bool:
    """Whether rows of a scale are: a number is the same for all of them."""
    return isinstance(factor, Gather) and bool(tensors[factor.name].dims)


def _is_blocked(decl: TensorDecl, shared: Container[str | None]) -> bool:
    """Whether it has one value per block of a dim that both operands have."""
    return any(d.divided and d.name in shared for d in decl.shape)


def refuse_scale(
    scale: Scale, decl: TensorDecl, operand: TensorDecl, name: str, roles: Roles, own: str, mma_k: int
) -> tuple[str, str] | None:
    """Why (message, remedy) `scale` cannot multiply the operand called `name`, if it cannot. decl, operand: as the
    product sees them. own: what the rows of gathered scales are called where they are declared. mma_k: elements of 8
    bits along k in an MMA, twice as many as of 16 bits."""
    rows = roles.n if scale.side else own if scale.gathered else roles.m
    block = f"f32[{rows}/128, {roles.k}/128]" if scale.side else f"f32[{rows}, {roles.k}/128]"
    block += "" if scale.side or scale.gathered else f"@{rows}"
    remedy = f"use f32, f32[], f32[{rows}] or {block}"
    if decl.dtype.name != "f32":
        return f"`{scale.name}` is {decl.dtype}: scales are f32", remedy
    kinds: dict[str, Dim] = {}
    for dim in decl.shape:
        role = roles.role_of(dim.base)
        if role is None or dim.kind == "mul" or dim.base not in {d.text for d in operand.shape}:
            lacks = f"`{name}` {_listed(operand)} has no such rows"
            if own and not scale.side:
                lacks = f"the rows that are gathered from `{name}` have no such dim"
            return f"`{scale.name}` has the dim `{dim}`, and {lacks}", remedy
        kinds["rows" if role in ("m", "n") else role] = dim
    along_k, along_rows = kinds.get("k"), kinds.get("rows")
    in_blocks = along_rows is not None and along_rows.divided and along_rows.factor > 1
    if along_k is None:
        return (f"`{scale.name}` has blocks along {rows} and none along {roles.k}", remedy) if in_blocks else None
    if not along_k.divided:
        return f"`{scale.name}` varies with every {roles.k}: that is not a scale", remedy
    if along_rows is None or in_blocks != bool(scale.side):
        have = "all rows" if along_rows is None else "each block of rows" if in_blocks else "each row"
        wants = "each block of rows" if scale.side else "each row"
        said = f"`{scale.name}` has one value for {have} and block of {roles.k}, and `{name}` needs one for {wants}"
        return said, remedy
    contiguous = decl.inner
    if contiguous != rows and not scale.side and not scale.gathered:
        return f"`{scale.name}` has {contiguous} contiguous; {rows} has to be, which TMA loads a column of", remedy
    if contiguous == roles.batch:
        return f"`{scale.name}` has {contiguous} contiguous; {along_rows} or {along_k} has to be", "put it first"
    if along_k.factor % mma_k:
        said = f"`{scale.name}` has blocks of {along_k.factor} elements of {roles.k}, no multiple of an MMA's {mma_k}"
        return said, "use blocks of 128"
    return None


def _listed(decl: TensorDecl) -> str:
    return f"[{', '.join(map(str, decl.shape))}]"


def _names(decl: TensorDecl) -> set[str | None]:
    return {d.name for d in decl.shape if d.kind == "name"}


def _factors(tree: Expr, tensors: Mapping[str, TensorDecl], refuse: ReportAt) -> list[Name | Gather]:
    """The factors of one side, left to right; [] after a finding."""
    match tree:
        case Gather(name, _, span) | Name(name, span):
            if name in tensors:
                return [tree]
            said = f"the mainloop reads `{name}`, which is not a tensor"
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
    matrices = [f for f in factors if len(tensors[f.name].shape) >= 2 and tensors[f.name].dtype.bits < 32]
    if len(matrices) > 1:  # one by blocks would be a scale, of a dtype that scales do not have
        matrices = [f for f in matrices if not any(d.divided for d in tensors[f.name].shape)] or matrices
    if len(matrices) == 1:
        return matrices[0]
    listed = ", ".join(f"`{f.name}`" for f in matrices or factors)
    said = (
        f"{listed} would be multiplied element by element" if matrices else f"none of {listed} is an operand of an MMA"
    )
    refuse(rules.MAINLOOP, factors[-1].span, said, rules.WRITE_SCALED)
    return None
