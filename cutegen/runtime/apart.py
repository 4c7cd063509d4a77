"""Outputs and scratch of one call that overlap: the compiled kernel takes them, and what it stores is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from cutegen.runtime.overlap import may_share


def make_apart_check(written: Sequence[int], end: int) -> Callable[[Sequence[Any]], None]:
    """A check that no two of the tensors of a call that a launch writes have memory in common, which raises a
    ValueError. written: positions of the outputs; scratch follows from `end` on."""
    outputs, pairs = tuple(written), tuple(combinations(written, 2))

    def check(values: Sequence[Any]) -> None:
        if len(values) > end:
            spans = []
            for tensor in (*[values[i] for i in outputs], *values[end:]):
                start = tensor.data_ptr()
                spans.append((start, start + (tensor.nbytes if tensor.is_contiguous() else _reach(tensor))))
            spans.sort()
            last = 0
            for start, stop in spans:
                if start < last:
                    break
                last = stop
            else:
                return
            for one, other in combinations([*(values[i] for i in outputs), *values[end:]], 2):
                _refuse_shared(one, other)
            return
        for i, j in pairs:
            x, y = values[i], values[j]
            start, begin = x.data_ptr(), y.data_ptr()
            if start > begin:
                x, y, start, begin = y, x, begin, start
            if start + (x.nbytes if x.is_contiguous() else _reach(x)) > begin:
                _refuse_shared(x, y)

    return check


def _refuse_shared(x: Any, y: Any) -> None:
    if x.numel() and y.numel() and may_share(x, y):
        raise ValueError("overlapping outputs")


def _reach(tensor: Any) -> int:
    """Bytes from the first element of a tensor to the end of the last; strides are at least 0, as torch has them."""
    if not tensor.numel():
        return 0
    return tensor.element_size() * (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())))  # type: ignore[no-any-return]
