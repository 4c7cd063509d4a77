"""Some rows of a problem by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cutegen.run.subject import Subject
from cutegen.runtime.arguments import Argument, TensorArg

# What a first row is a multiple of, so that slices of tensors with contiguous rows are aligned.
FIRST_ROW = 16


def row_slices(subject: Subject, extent: int) -> Iterator[tuple[int, int]]:
    """(first row, rows) of a problem with `extent` rows: all of them, then as few as calls may have and about half,
    from the start, the middle and the end."""
    rows = subject.roles.m
    promised, step = subject.dims[rows], subject.steps[rows]
    yield 0, extent
    if isinstance(promised, int):
        return
    fewest = -(-promised[0] // step) * step
    middle, last = (at // FIRST_ROW * FIRST_ROW for at in (extent // 2, extent - fewest))
    for start, count in ((0, fewest), (0, middle), (middle, fewest), (middle, extent - middle), (last, extent - last)):
        if fewest <= count < extent:
            yield start, count


def narrowed(arg: Argument, value: Any, dim: str, start: int, count: int) -> Any:
    """An argument for some extents of a dim."""
    if not isinstance(arg, TensorArg) or dim not in arg.dims:
        return value
    return value.narrow(arg.dims.index(dim), start, count)
