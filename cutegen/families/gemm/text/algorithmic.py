"""Algorithmic work in a plan: floating-point operations, and the bytes that must move at least."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cutegen.epilogue import cost
from cutegen.families.gemm.arguments import TensorShape, tensor_shapes
from cutegen.families.gemm.problem import GemmProblem


@dataclass(frozen=True, slots=True)
class AlgorithmicText:
    """What plan.py.jinja reads as p.work. parameters: names of all dims; flops: an expression of them; bytes: the lines
    of another."""

    parameters: tuple[str, ...]
    flops: str
    bytes: tuple[str, ...]


def algorithmic_text(problem: GemmProblem) -> AlgorithmicText:
    others = (problem.k, *problem.gathered_dims, *([problem.batch] if problem.groups else []))
    of_outputs = [d for d in problem.dims if d not in others]
    product, work = " * ".join(d.name for d in of_outputs), cost(problem.epilogue)
    per_output = f" + {work.flops} * {product}{' // 2' * work.paired}" if work.flops else ""
    return AlgorithmicText(
        parameters=tuple(d.name for d in problem.dims),
        flops=f"2 * {product} * {problem.k.name}{per_output}",
        bytes=tuple(_bytes(tensor_shapes(problem).values(), problem)),
    )


def _bytes(shapes: Iterable[TensorShape], problem: GemmProblem) -> Iterator[str]:
    """Every tensor once: the bytes that must move at least. m is the rows of all groups where there are any."""
    terms = list(shapes)
    updated = problem.epilogue.updated
    for i, s in enumerate(terms):
        counted = problem.groups is not None and problem.m in s.dims
        dims = [d for d in s.dims if not (counted and d is problem.batch)]
        named = problem.gathered_dims if problem.gathers(s.name) else ()
        # A part such as n/2 is whole, and so is the product that is divided last.
        halves = "".join(f" // {d.divisor}" for d in dims if d.divisor > 1 and not d.up)
        extents = (
            f"min({d.name}, {problem.m.name})"
            if d in named
            else f"-(-{d.base} // {d.divisor})"
            if d.up
            else d.base or d.name
            for d in dims
        )
        size = s.dtype.bytes * (2 if s.name in updated else 1)
        factors = " * ".join((*extents, str(size))) + halves
        note = s.name + ", read and written" * (s.name in updated)
        yield f"{'+ ' if i else ''}{factors}{',' if s is terms[-1] else ''}  # {note}"
