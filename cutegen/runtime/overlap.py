"""Outputs that lie where other arguments of a call do, or on themselves. Nothing here runs on the hot path of a launch,
but for `lies_apart` once for each layout of an output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.runtime.arguments import Argument, TensorArg
from cutegen.runtime.call_faults import ALLOCATE, Fault


def find_overlaps(
    args: Sequence[Argument], values: Sequence[Any], outputs: Sequence[str], aliases: Mapping[str, str]
) -> Iterator[Fault]:
    """Outputs that share elements with another argument, other than the one that they may lie on exactly, and those
    with several elements at one address."""
    tensors = [(a.name, v) for a, v in zip(args, values) if isinstance(a, TensorArg) and v is not None and v.numel()]
    written = [(name, value) for name, value in tensors if name in outputs]
    for i, (name, value) in enumerate(written):
        if not lies_apart(value.shape, value.stride()):
            said = f"has several elements at one address (shape {tuple(value.shape)}, strides {value.stride()})"
            yield Fault(ValueError, f"{name}: {said}, and each would be written: {ALLOCATE}")
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


def lies_apart(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether every element has an address of its own. Strides are at least 0, as torch has them."""
    axes = sorted(((s, n - 1) for n, s in zip(shape, strides) if n > 1), reverse=True)
    if 0 in shape or not axes:
        return True
    return axes[-1][0] > 0 and not _meet(axes, 0, False)


def _meet(axes: Sequence[tuple[int, int]], offset: int, moved: bool) -> bool:
    """Whether steps along axes, (stride, most steps) by falling strides, can come back from `offset` to 0. moved: the
    way so far had a step; without any it leads nowhere."""
    if not axes:
        return moved and offset == 0
    (stride, most), rest = axes[0], axes[1:]
    reach = sum(s * n for s, n in rest)
    low, high = max(-most if moved else 0, -((reach + offset) // stride)), min(most, (reach - offset) // stride)
    return any(_meet(rest, offset + step * stride, moved or step != 0) for step in range(low, high + 1))


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
    if any(p % row for p in pitch):  # rows of the next batch begin elsewhere in a row
        return True
    offset = (y0 - x0) % row
    return offset < widths[0] or offset + widths[1] > row


def _same_place(x: Any, y: Any) -> bool:
    """Whether each element of one is that of the other: strides of axes of extent 1 do not matter."""
    strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (x, y)]
    return bool(x.data_ptr() == y.data_ptr() and strides[0] == strides[1])
