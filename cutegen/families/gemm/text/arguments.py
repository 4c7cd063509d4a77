"""The arguments of the compiled kernel, and the symbolic ones that it is compiled with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.families.argument_text import FakeArgument, Symbol
from cutegen.families.gemm.arguments import TensorShape, tensor_shapes
from cutegen.families.gemm.features.reductions.reduction_text import ReductionsText
from cutegen.families.gemm.form_rules import MAX_TILE_M
from cutegen.families.gemm.problem import GemmProblem, ProblemDim
from cutegen.families.gemm.text.work import WorkText


@dataclass(frozen=True, slots=True)
class ArgumentsText:
    """What the templates read as k.arguments. names: those of the spec, then scratch; scalars: that are no tensors.
    symbols: dynamic extents; fakes: arguments of them. dtypes: their names in cutlass."""

    names: tuple[str, ...]
    scalars: frozenset[str]
    symbols: tuple[Symbol, ...]
    fakes: tuple[FakeArgument, ...]
    dtypes: frozenset[str]


def arguments_text(problem: GemmProblem, reductions: ReductionsText, work: WorkText) -> ArgumentsText:
    """In the kernel's frame."""
    shapes = tensor_shapes(problem)
    return ArgumentsText(
        names=(*problem.arguments, *reductions.scratch, *work.scratch),
        scalars=frozenset(problem.arguments) - frozenset(shapes),
        symbols=tuple(list_symbols(problem, shapes)),
        fakes=(
            *(fake_argument(problem, name, shapes) for name in problem.arguments),
            *map(_reduction_scratch, reductions.scratch),
            *work.fakes,
        ),
        dtypes=frozenset(s.dtype.cutlass for s in shapes.values()),
    )


def _reduction_scratch(name: str) -> FakeArgument:
    return FakeArgument(f"{name}: scratch", "Int32" if name == "arrivals" else "Float32", (Symbol("", ""),))


def list_symbols(problem: GemmProblem, shapes: dict[str, TensorShape]) -> Iterable[Symbol]:
    """One symbol per dynamic dim of the tensors; its divisibility is what the most demanding of them needs."""
    used = {d.name for s in shapes.values() for d in s.dims}
    parts = {d.name: d for s in shapes.values() for d in s.dims if d.divisor > 1}
    for dim in filter(None, (problem.batch, *problem.gathered_dims, problem.m, problem.n, problem.k, *parts.values())):
        if dim.name in used and _is_symbol(problem, dim):
            multiples = [
                s.multiple for s in shapes.values() if s.contiguous is not None and s.dims[s.contiguous] == dim
            ]
            multiples += [step for s in shapes.values() for d, step in zip(s.dims, s.steps) if d == dim]
            yield Symbol(_symbol(dim), dim.name, max(multiples, default=1))


def _is_symbol(problem: GemmProblem, dim: ProblemDim) -> bool:
    """Whether the compiler is not told the extent. It drops the index of a mode of extent 1: a TMA instruction would
    lack a coordinate that its tensor map has, and of a tensor that fits one box every box would be the first."""
    tiled = {problem.m.name, problem.n.name, *([problem.gather.extent.name] if problem.gather else [])}
    fits_a_tile = dim.value is not None and dim.value * dim.divisor <= MAX_TILE_M
    return dim.value in (None, 1) or (fits_a_tile and (dim.base or dim.name) in tiled)


def _symbol(dim: ProblemDim) -> str:
    """The name of a dynamic extent in generated source."""
    return f"{dim.base}_over_{dim.divisor}{'_up' * dim.up}" if dim.divisor > 1 else dim.name


def fake_argument(problem: GemmProblem, name: str, shapes: dict[str, TensorShape]) -> FakeArgument:
    s = shapes.get(name)
    if s is None:
        return FakeArgument(f"{name}: f32", "Float32", None)
    extents = tuple(_symbol(d) if d.value is None or _is_symbol(problem, d) else d.value for d in s.dims)
    return FakeArgument(s.text, s.dtype.cutlass, extents, s.contiguous, s.align, s.stride_multiple)
