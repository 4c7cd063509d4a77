"""The reference of a plan: the maths of the spec in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.epilogue import torch_lines, torch_operand_lines
from cutegen.families.gemm.omission import list_omissions, without
from cutegen.families.gemm.problem import GemmProblem, MatrixOperand
from cutegen.families.gemm.text.gather import gather_lines
from cutegen.families.gemm.text.groups import member_lines, of_rows
from cutegen.render.layout import statement


@dataclass(frozen=True, slots=True)
class ShorterText:
    """The reference of calls without optional operands: the condition, and the statements."""

    when: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReferenceText:
    """What plan.py.jinja reads as p.reference. parameters: the inputs. product: statements that leave it in `acc`;
    epilogue: those of all operands; shorter: of calls that leave some out. results: a tuple of the outputs."""

    parameters: tuple[str, ...]
    product: tuple[str, ...]
    shorter: tuple[ShorterText, ...]
    epilogue: tuple[str, ...]
    results: str


def reference_text(problem: GemmProblem) -> ReferenceText:
    outputs = problem.outputs
    return ReferenceText(
        parameters=problem.inputs,
        product=tuple(_product(problem)),
        shorter=tuple(_shorter(problem, omitted) for omitted in reversed(tuple(list_omissions(problem)))),
        epilogue=_epilogue(problem, 8),
        results=", ".join(outputs) if len(outputs) > 1 else f"({outputs[0]},)",
    )


def _shorter(problem: GemmProblem, omitted: tuple[str, ...]) -> ShorterText:
    condition = " and ".join(f"{name} is None" for name in omitted)
    return ShorterText(condition, _epilogue(without(problem, omitted), 12))


def _epilogue(problem: GemmProblem, indent: int) -> tuple[str, ...]:
    lines = (*member_lines(problem), *torch_operand_lines(of_rows(problem)), *torch_lines(problem.epilogue))
    return tuple(statement(line, indent=indent) for line in lines)


def _product(problem: GemmProblem) -> Iterator[str]:
    """Statements that leave the product in `acc`."""
    yield from gather_lines(problem)
    yield from _spreads(problem)
    a, b = _operand(problem.a, problem, transposed=False), _operand(problem.b, problem, transposed=True)
    if problem.groups and problem.groups.flat:
        tensor, count = problem.groups.tensor, f"{problem.b.name}.shape[{problem.b.axes[2]}]"
        yield f"members = self.row_groups.members({tensor}, {count}, {a}.shape[0])"
        yield f"acc = multiply_members({a}, {b}, members)"
    else:
        yield f"acc = torch.matmul({a}, {b})"


def _operand(t: MatrixOperand, problem: GemmProblem, *, transposed: bool) -> str:
    """The operand as torch.matmul takes it: ([batch,] rows, k), or ([batch,] k, rows)."""
    rows, k, *batch = t.axes
    order = (*batch, k, rows) if transposed else (*batch, rows, k)
    return t.name if order == tuple(range(len(order))) else f"{t.name}.permute{order}"


def _spreads(problem: GemmProblem) -> Iterator[str]:
    """Statements that multiply operands by scales that vary along k."""
    for t, s in ((problem.a, problem.a_scale), (problem.b, problem.b_scale)):
        if s is None:
            continue
        order, within = _batch_first(t.axes), _batch_first(s.axes)
        scale = s.name if within == tuple(range(len(within))) else f"{s.name}.permute{within}"
        turned = order != tuple(range(len(order)))
        shape = f"{t.name}.permute{order}.shape" if turned else f"{t.name}.shape"
        factor = f"spread_blocks({scale}, {shape}, {s.rows}, {s.depth})"
        if turned:  # back to the axes of the operand
            alike = "[None]" * (len(order) - len(within))
            factor += f"{alike}.permute{tuple(order.index(axis) for axis in range(len(order)))}"
        yield f"{t.name} = {t.name} * {factor}"


def _batch_first(axes: tuple[int, ...]) -> tuple[int, ...]:
    """([batch,] rows, k) from (rows, k[, batch])."""
    return *axes[2:], *axes[:2]
