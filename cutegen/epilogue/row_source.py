"""Rows as source text: device statements of elements, rows and blocks, and the PyTorch reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cutegen.epilogue.program import Assign, EpilogueProgram
from cutegen.epilogue.source import AfterWriter, OnceWriter, TorchWriter, device_lines, rounded_text
from cutegen.epilogue.tree import Expr, Reduce


class _RowTorchWriter(TorchWriter):
    """Of rows: what has one value for a row keeps the last dim. Ops call the dtype of the arithmetic that of acc."""

    def call(self, op: str, args: tuple[Expr, ...]) -> str:
        like = next(o.name for o in self.program.operands if o.kind in ("tile", "column_vector"))
        return super().call(op, args).replace("acc.dtype", f"{like}.dtype")

    def divide(self, quotient: Expr, divisor: Expr) -> str:
        return ""

    def reduce(self, expr: Reduce) -> str:
        if expr.block:
            return super().reduce(expr)
        value, dims = self.text(expr.value), "dim=-1, keepdim=True"
        if self.program.reductions and self.of_rows(expr):
            dims = f"dim={tuple(range(len(expr.over))) if len(expr.over) > 1 else 0}"
        if expr.op in ("sum", "mean"):
            return f"torch.{expr.op}({value}, {dims})"
        return f"torch.amax({f'torch.abs({value})' if expr.op == 'max_abs' else value}, {dims})"

    def of_rows(self, expr: Reduce) -> bool:
        """Whether it is over rows: all of an output."""
        own = {r.name for r in self.program.reductions}
        return any(s.expr is expr for s in self.program.statements if s.name in own)


def row_torch_lines(program: EpilogueProgram, whole: Iterable[str]) -> tuple[str, ...]:
    """The reference of rows, on tensors of one float dtype: operands are (rows.., n), those of columns (n), and those
    of rows (rows.., 1). whole: outputs with a value for each element; of the others, those of rows lose the last dim.
    """
    kept = {*whole}
    stores = (
        f"{o.name} = {rounded_text(o.name, o.dtype)}{'' if o.name in kept else '.squeeze(-1)'}" for o in program.outputs
    )
    joined = (f"{r.name} = {rounded_text(r.name, r.dtype)}" for r in program.reductions)
    blocks = (
        f"{o.name} = pack_exponents({o.name}[..., ::{program.block}])"
        if o.packed
        else f"{o.name} = {o.name}[..., ::{program.block}]"
        for o in program.block_outputs
    )
    like = next(o.name for o in program.operands if o.kind == "tile")
    indices = (
        f"{o.name} = torch.arange({like}.shape[-1], dtype={like}.dtype, device={like}.device)"
        for o in program.operands
        if o.kind == "index"
    )
    return (*indices, *_RowTorchWriter(program).lines, *stores, *joined, *blocks)


def row_value_lines(program: EpilogueProgram, statements: Iterable[Assign]) -> tuple[str, ...]:
    """Device statements of what has one value for a row, or for a block of it."""
    return tuple(OnceWriter(replace(program, statements=tuple(statements))).lines)


def divided_lines(
    program: EpilogueProgram, statements: Iterable[Assign], inverses: Mapping[str, str]
) -> tuple[str, ...]:
    """`element_lines` with exact quotients by the values that have inverses."""
    return tuple(AfterWriter(replace(program, statements=tuple(statements)), dict(inverses)).lines)


def element_lines(program: EpilogueProgram, statements: Iterable[Assign]) -> tuple[str, ...]:
    """Device statements for one element of a row."""
    return device_lines(replace(program, statements=tuple(statements)))
