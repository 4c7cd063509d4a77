"""Outputs that lie where other arguments of a call do. Nothing here runs on the hot path of a launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.runtime.arguments import Argument, Fault, TensorArg


def find_overlaps(
    args: Sequence[Argument], values: Sequence[Any], outputs: Sequence[str], aliases: Mapping[str, str]
) -> Iterator[Fault]:
    """Outputs that share elements with another argument, other than the one that they may lie on exactly."""
    tensors = [(a.name, v) for a, v in zip(args, values) if isinstance(a, TensorArg) and v is not None and v.numel()]
    written = [(name, value) for name, value in tensors if name in outputs]
    for i, (name, value) in enumerate(written):
        for other, tensor in tensors:
            if other == name or other in [n for n, _ in written[:i]] or not may_share(value, tensor):
                continue
            if aliases.get(name) == other and _same_place(value, tensor):
                continue
            if aliases.get(name) == other:
                said = f"shares storage with {other}, not element by element: pass one tensor for both, or two apart"
            else:
                said = f"shares storage with {other}, which may be read after that is written: pass another tensor"
            yield Fault(ValueError, f"{name}: {said}")


def may_share(x: Any, y: Any) -> bool:
    """Whether two tensors may have a byte in common: their spans meet, and they are no bands of columns of one
    buffer."""
    spans = []
    for t in (x, y):
        start = t.data_ptr()
        spans.append((start, start + (sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1) * t.element_size()))
    (x0, x1), (y0, y1) = spans
    if x1 <= y0 or y1 <= x0:
        return False
    pitches = {tuple(s * t.element_size() for s in t.stride() if s > 1) for t in (x, y)}
    if len(pitches) > 1 or not (pitch := next(iter(pitches))):
        return True
    widths = [t.element_size() * min((n for n, s in zip(t.shape, t.stride()) if s == 1), default=1) for t in (x, y)]
    row = min(pitch)
    offset = (y0 - x0) % row
    return offset < widths[0] or offset + widths[1] > row


def _same_place(x: Any, y: Any) -> bool:
    """Whether each element of one is that of the other: strides of axes of extent 1 do not matter."""
    strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (x, y)]
    return bool(x.data_ptr() == y.data_ptr() and strides[0] == strides[1])
