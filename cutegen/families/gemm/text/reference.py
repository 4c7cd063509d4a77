"""The reference of a plan: the product and the epilogue in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cutegen.epilogue import EpilogueProgram, Operand, torch_lines, torch_operand_lines
from cutegen.families.gemm.problem import BlockScale, GemmProblem, MatrixOperand
from cutegen.families.gemm.without_operands import without
from cutegen.families.optional_operands import list_omissions

Order = tuple[int, ...]
"""Axes for torch's permute; () where they are in order."""


@dataclass(frozen=True, slots=True)
class SpreadText:
    """An operand that is multiplied by scales that vary along k: a scale for `rows` x `depth` elements. order,
    scale_order: to ([batch,] rows, k); back: to the axes of the operand, after `missing` axes in front of those."""

    name: str
    order: Order
    scale: str
    scale_order: Order
    rows: int
    depth: int
    missing: int
    back: Order


@dataclass(frozen=True, slots=True)
class PackedSpreadText:
    """An operand that the tensor core multiplies by scales of `block` elements. order, back: as those of SpreadText."""

    name: str
    order: Order
    scale: str
    block: int
    back: Order


@dataclass(frozen=True, slots=True)
class EpilogueText:
    """omitted: what the call leaves out. of_groups: the order that has the group first, of each operand that has a
    value for each group, and none for each row. lines: statements."""

    omitted: tuple[str, ...]
    of_groups: Mapping[str, Order]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReferenceText:
    """What reference.py.jinja reads as p.reference. gathered: the axis of rows by tensor. a_order, b_order: to
    ([batch,] rows, k), and to ([batch,] k, rows). epilogues: that of all operands last."""

    gathered: Mapping[str, int]
    spreads: tuple[SpreadText, ...]
    packed: tuple[PackedSpreadText, ...]
    a_order: Order
    b_order: Order
    epilogues: tuple[EpilogueText, ...]


def reference_text(problem: GemmProblem) -> ReferenceText:
    a_rows, a_k, *a_batch = problem.a.axes
    b_rows, b_k, *b_batch = problem.b.axes
    return ReferenceText(
        gathered=_gathered(problem),
        spreads=tuple(_spreads(problem)),
        packed=tuple(_packed(problem)),
        a_order=_order(*a_batch, a_rows, a_k),
        b_order=_order(*b_batch, b_k, b_rows),
        epilogues=tuple(_epilogue(problem, omitted) for omitted in reversed([(), *list_omissions(problem.optional)])),
    )


def _order(*axes: int) -> Order:
    return () if axes == tuple(range(len(axes))) else axes


def _gathered(problem: GemmProblem) -> dict[str, int]:
    if problem.gather is None or problem.gathered is None:
        return {}
    axes = {problem.gathered.name: problem.gathered.axes[0], **dict.fromkeys(problem.gather.scales, 0)}
    return axes | {s.name: s.axes[0] for s in (problem.a_scale, problem.b_scale) if s and problem.gathers(s.name)}


def _spreads(problem: GemmProblem) -> Iterator[SpreadText]:
    for t, s in ((problem.a, problem.a_scale), (problem.b, problem.b_scale)):
        if s is not None:
            axes, own = _batch_first(t), _batch_first(s)
            order, back = _order(*axes), _order(*(axes.index(axis) for axis in range(len(axes))))
            missing = len(axes) - len(own) if order else 0
            yield SpreadText(t.name, order, s.name, _order(*own), s.rows, s.depth, missing, back)


def _packed(problem: GemmProblem) -> Iterator[PackedSpreadText]:
    for t, s in zip((problem.a, problem.b), problem.packed_scales):
        axes = _batch_first(t)
        back = _order(*(axes.index(axis) for axis in range(len(axes))))
        yield PackedSpreadText(t.name, _order(*axes), s.name, s.block, back)


def _batch_first(t: MatrixOperand | BlockScale) -> tuple[int, ...]:
    """([batch,] rows, k) from (rows, k[, batch])."""
    return *t.axes[2:], *t.axes[:2]


def _epilogue(problem: GemmProblem, omitted: tuple[str, ...]) -> EpilogueText:
    own = without(problem, omitted)
    spread = [o for o in own.epilogue.operands if o.batched and own.groups and own.groups.flat]
    lines = (*torch_operand_lines(_of_rows(own.epilogue, spread)), *torch_lines(own.epilogue))
    return EpilogueText(omitted, {o.name: (1, 0) if o.axes == (0, 1) else () for o in spread}, lines)


def _of_rows(program: EpilogueProgram, spread: list[Operand]) -> EpilogueProgram:
    """The epilogue where operands with a value for each group have one for each row."""
    return replace(program, operands=tuple(_by_row(o) if o in spread else o for o in program.operands))


def _by_row(operand: Operand) -> Operand:
    if operand.kind == "device_scalar":
        return replace(operand, kind="column_vector", batched=False, axes=(0,))
    return replace(operand, kind="tile", batched=False, axes=(0, 1), major="n")
