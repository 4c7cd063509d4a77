"""Outputs beside their reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.run.subject import Subject
from cutegen.runtime.accuracy import Comparison, compare, tolerance


@dataclass(frozen=True, slots=True)
class OutputError:
    """Errors of one output in a case. relative, scaled: its tolerance; allowed: that at the largest error."""

    name: str
    relative: float
    scaled: float
    max_error: float
    allowed: float
    mean_error: float
    mismatches: int
    elements: int


def judge(name: str, result: Any, reference: Any, k: int, subject: Subject) -> tuple[OutputError, Comparison]:
    """Compares one output with its reference, at the tolerance that follows from their dtypes and from K."""
    approximation = subject.plan.approximation if subject.plan else 0.0
    allowed = tolerance(dtype_name(result), k, approximation, dtype_name(reference))
    found = compare(result, reference, allowed)
    figures = (found.max_error, found.allowed, found.mean_error, found.mismatches, found.elements)
    return OutputError(name, allowed.relative, allowed.scaled, *figures), found


def output_names(subject: Subject, count: int) -> list[str]:
    return [o.name for o in subject.plan.outputs] if subject.plan else [f"output {i}" for i in range(count)]


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


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
