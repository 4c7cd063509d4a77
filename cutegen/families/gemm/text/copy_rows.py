"""The module that copies gathered rows to scratch, for kernels that multiply the copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cutegen.families.argument_text import FakeArgument, Symbol
from cutegen.families.gemm.arguments import TensorShape, tensor_shapes
from cutegen.families.gemm.orientation import copy_rows
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.families.gemm.text.arguments import fake_argument, list_symbols
from cutegen.render.layout import import_order
from cutegen.runtime.gemm.gathered_rows import copied_name


@dataclass(frozen=True, slots=True)
class CopiedText:
    """A tensor whose rows are copied. kind: matrix, scales or vector. copy: the name of the copy. axes: torch axes in
    the order of the copy's modes, empty where that is torch's."""

    kind: str
    name: str
    copy: str
    axes: list[int]


@dataclass(frozen=True, slots=True)
class CopyRowsText:
    """What copy_rows.py.jinja reads as c. names: of all arguments."""

    symbol: str
    matrix: str
    index: str
    copied: tuple[CopiedText, ...]
    dtypes: tuple[str, ...]
    symbols: tuple[Symbol, ...]
    fakes: tuple[FakeArgument, ...]
    names: tuple[str, ...]
    pdl_wait: bool


def copy_rows_text(resolved: ResolvedGemm) -> CopyRowsText | None:
    """None where no kernel multiplies a copy."""
    kernel, problem = resolved.row_copy, resolved.problem
    if kernel is None or problem.gather is None or problem.gathered is None:
        return None
    copied = tuple(_copied(problem))
    shapes, ordered = tensor_shapes(problem), tensor_shapes(copy_rows(problem))
    arguments: list[TensorShape] = [shapes[name] for name in (*(c.name for c in copied), problem.gather.index)]
    arguments += [replace(ordered[c.name], name=c.copy) for c in copied]
    named = {s.name: s for s in arguments}
    return CopyRowsText(
        symbol=f"{resolved.name}_{kernel.module}",
        matrix=problem.gathered.name,
        index=problem.gather.index,
        copied=copied,
        dtypes=tuple(sorted({s.dtype.cutlass for s in arguments}, key=import_order)),
        symbols=tuple(list_symbols(problem, named)),
        fakes=tuple(fake_argument(problem, name, named) for name in named),
        names=tuple(named),
        pdl_wait=kernel.pdl_wait,
    )


def _copied(problem: GemmProblem) -> Iterator[CopiedText]:
    assert problem.gather
    assert problem.gathered
    matrix = problem.gathered
    blocks = {s.name: s.axes for s in (problem.a_scale, problem.b_scale) if s}
    found = [("matrix", matrix.name, matrix.axes)]
    found += [("scales" if x in blocks else "vector", x, blocks.get(x, (0,))) for x in problem.gather.scales]
    for kind, name, axes in found:
        yield CopiedText(kind, name, copied_name(name), list(axes) if axes != tuple(range(len(axes))) else [])
