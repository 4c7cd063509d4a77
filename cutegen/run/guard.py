"""Buffers that show what a kernel touched: NaN poison inside, the same pattern as guard bands around."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cutegen.runtime.four_bits import has_pairs

# A NaN in f16, bf16, and, repeated, in f32 and f64, with a payload that no arithmetic produces; in e4m3 and e5m2 the
# NaN with a sign, in which no conversion ends: that of a NaN is 0x7F (PTX ISA, cvt).
POISON, POISON_8BIT = 0x7FD5, -1
# The first element lies this far past a 256-byte boundary: 16-byte aligned, which is all that a plan asks for, and
# not more.
OFFSET_BYTES = 48
GUARD_ROWS, GUARD_BYTES = 16, 4096
PADDING_BYTES = 48


@dataclass(frozen=True, slots=True)
class Guarded:
    """A tensor of given shape inside a larger buffer. `tensor` is what the kernel gets."""

    buffer: Any
    tensor: Any
    offset: int

    def poison(self) -> None:
        _words(self.buffer).fill_(_pattern(self.buffer))

    def damage(self) -> str:
        """What was written outside of the tensor, in words; "" when nothing was."""
        import torch

        words = _words(self.buffer)
        per_element = max(1, self.buffer.element_size() // words.element_size())
        outside = torch.ones(self.buffer.numel(), dtype=torch.bool, device=self.buffer.device)
        outside.as_strided(self.tensor.shape, self.tensor.stride(), self.offset).fill_(False)
        changed = (words.view(-1, per_element) != _pattern(self.buffer)).any(1) & outside
        if not bool(changed.any()):
            return ""
        where = changed.nonzero().flatten()
        last = self.offset + sum((n - 1) * s for n, s in zip(self.tensor.shape, self.tensor.stride()))
        before, after = int((where < self.offset).sum()), int((where > last).sum())
        parts = ((before, "before the start"), (after, "after the end"), (len(where) - before - after, "between rows"))
        return "wrote outside of the tensor: " + ", ".join(f"{n} elements {place}" for n, place in parts if n)

    def unwritten(self, free: Any = None) -> int:
        """Elements of the tensor that still are the poison; free: a mask of those that may be. Integers and pairs of 4
        bits have none that no kernel writes: they are found where they are wrong."""
        if not self.tensor.is_floating_point() or has_pairs(self.tensor):
            return 0
        words = _words(self.buffer)
        per_element = max(1, self.buffer.element_size() // words.element_size())
        kept = (words.view(-1, per_element) == _pattern(self.buffer)).all(1)
        kept = kept.as_strided(self.tensor.shape, self.tensor.stride(), self.offset)
        return int((kept if free is None else kept & ~free).sum())


def guarded(
    shape: Sequence[int], contiguous: int | None, dtype: Any, device: Any, *, padded: bool, row: int = 0
) -> Guarded:
    """A poisoned tensor with guard bands. padded: outer strides are 48 bytes longer than packed ones. row: elements
    from one contiguous row to the next, at least."""
    import torch

    size = dtype.itemsize
    strides, pitch = [1] * len(shape), 1
    order = [i for i in reversed(range(len(shape))) if i != contiguous]
    for axis in ([] if contiguous is None else [contiguous]) + order:
        strides[axis] = pitch
        pitch *= max(shape[axis], 1)
        if axis == contiguous and order:
            pitch = max(pitch, row)
        if padded and axis == contiguous and order:
            pitch = -(-pitch * size // 16) * 16 // size + PADDING_BYTES // size
    inner = strides[order[0]] if order else 1
    guard = -(-(GUARD_BYTES + GUARD_ROWS * inner * size) // 256) * 256
    offset = (guard + OFFSET_BYTES) // size
    buffer = torch.empty(offset + pitch + guard // size, dtype=dtype, device=device)
    result = Guarded(buffer, buffer.as_strided(tuple(shape), strides, offset), offset)
    result.poison()
    return result


def guarded_like(tensor: Any, *, padded: bool) -> Guarded:
    """`guarded` with the shape, dtype, contiguous axis and length of rows of a tensor."""
    inner = next((i for i in reversed(range(tensor.dim())) if tensor.stride(i) == 1), None)
    row = min((tensor.stride(i) for i in range(tensor.dim()) if i != inner), default=0) if tensor.numel() else 0
    return guarded(tensor.shape, inner, tensor.dtype, tensor.device, padded=padded, row=row)


def invalid_copy(value: Any) -> Any:
    """A tensor of the same strides, gaps between rows included, with NaN, or 0 where there is none; other values as
    they are."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    if has_pairs(value):
        return copy.view(torch.uint8).fill_(0).view(value.dtype)
    return copy.fill_(float("nan") if value.is_floating_point() else 0)


def bits(tensor: Any) -> Any:
    """The tensor's storage words as integers, for bitwise comparison."""
    import torch

    if has_pairs(tensor):  # of which torch copies no transposed ones
        tensor = tensor.view(torch.uint8)
    flat = tensor.contiguous().view(-1)
    return _words(flat.as_strided(flat.shape, (1,)))  # a single element keeps any stride, and is contiguous


def _words(tensor: Any) -> Any:
    import torch

    return tensor.view(-1).view(torch.int8 if tensor.element_size() == 1 else torch.int16)


def _pattern(tensor: Any) -> int:
    return POISON_8BIT if tensor.element_size() == 1 else POISON


@contextmanager
def poisoned_allocations() -> Iterator[None]:
    """Within it, torch.empty and its kin return NaN, so that a kernel which does not write its output is seen."""
    import torch

    before = torch.get_deterministic_debug_mode()
    settings: Any = torch.utils.deterministic
    fill = settings.fill_uninitialized_memory
    # As use_deterministic_algorithms, which imports Dynamo to tell Inductor: more than all the rest of a small check.
    torch.set_deterministic_debug_mode("warn")
    settings.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
        settings.fill_uninitialized_memory = fill
