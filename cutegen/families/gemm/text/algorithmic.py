"""Algorithmic work in a plan: floating-point operations, and the bytes that must move at least."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.epilogue import cost
from cutegen.families.gemm.arguments import tensor_shapes
from cutegen.families.gemm.problem import GemmProblem, ProblemDim


@dataclass(frozen=True, slots=True)
class MovedText:
    """A tensor. named: those of its dims of which only rows that an index names move, at most m. bytes: of `packing`
    elements, once for each time that they move."""

    name: str
    dims: tuple[ProblemDim, ...]
    named: tuple[ProblemDim, ...]
    bytes: int
    packing: int
    updated: bool


@dataclass(frozen=True, slots=True)
class AlgorithmicText:
    """What plan.py.jinja reads as p.work. of_outputs: dims of the product; flops: of the epilogue for each output, or
    for each pair."""

    of_outputs: tuple[str, ...]
    flops: int
    paired: bool
    moved: tuple[MovedText, ...]


def algorithmic_text(problem: GemmProblem) -> AlgorithmicText:
    others = (problem.k, *problem.gathered_dims, *([problem.batch] if problem.groups else []))
    work = cost(problem.epilogue)
    of_outputs = tuple(d.name for d in problem.dims if d not in others)
    return AlgorithmicText(of_outputs, work.flops, work.paired, tuple(_moved(problem)))


def _moved(problem: GemmProblem) -> Iterator[MovedText]:
    """Every tensor once. m is the rows of all groups where there are any."""
    for s in tensor_shapes(problem).values():
        counted = problem.groups is not None and problem.m in s.dims
        dims = tuple(d for d in s.dims if not (counted and d is problem.batch))
        named = problem.gathered_dims if problem.gathers(s.name) else ()
        updated = s.name in problem.epilogue.updated
        size, packing = s.dtype.size(s.dtype.packing), s.dtype.packing
        yield MovedText(s.name, dims, named, size * (2 if updated else 1), packing, updated)
