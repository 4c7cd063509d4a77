"""Outputs beside their reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutegen.run.subject import Subject, as_tuple
from cutegen.runtime.accuracy import HALF_ULP, Comparison, Tolerance, compare, tolerance


@dataclass(frozen=True, slots=True)
class OutputError:
    """Errors of one output in a case. tolerance: its terms; allowed: their sum at the largest error."""

    name: str
    tolerance: Tolerance
    max_error: float
    allowed: float
    mean_error: float
    mismatches: int
    elements: int


def judge(
    output: int, result: Any, reference: Any, inputs: tuple[Any, ...], subject: Subject, shape: Mapping[str, int]
) -> tuple[OutputError, Comparison]:
    """Compares an output with its reference, at the given tolerance, or that which follows from their dtypes and from
    the problem. RuntimeError: none follows."""
    if subject.allowed:
        allowed = subject.allowed
    elif subject.plan:
        allowed = subject.plan.output_tolerance(output, inputs, dtype_name(reference))
    else:
        for dtype in map(dtype_name, (result, reference)):
            if dtype not in HALF_ULP:
                raise RuntimeError(f"no tolerance follows from dtype {dtype}: give --rtol and --atol")
        allowed = tolerance(dtype_name(result), subject.reduction(shape, inputs), 0.0, dtype_name(reference))
    free = subject.plan.free_elements(output, inputs) if subject.plan else None
    found = compare(result, reference, allowed, free)
    figures = (found.max_error, found.allowed, found.mean_error, found.mismatches, found.elements)
    return OutputError(output_name(subject, output), allowed, *figures), found


def output_name(subject: Subject, output: int) -> str:
    return subject.plan.outputs[output].name if subject.plan else f"output {output}"


def reference_outputs(subject: Subject, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The reference's outputs, its f32 products computed in f32: no TF32, no 16-bit partial sums."""
    import torch

    matmul = torch.backends.cuda.matmul
    names = ("allow_tf32", "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    before = [getattr(matmul, n) for n in names]
    try:
        for n in names:
            setattr(matmul, n, False)
        return as_tuple(subject.reference_fn(*inputs))
    finally:
        for n, value in zip(names, before):
            setattr(matmul, n, value)


def dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
