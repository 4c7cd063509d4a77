"""What a generated plan declares about its arguments, and everything generic that follows from the declarations.

Extents are elements, alignments are bytes. Nothing here runs on the hot path of a launch: faults are looked for only
after the compiled kernel refused a call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.runtime.four_bits import decode_e2m1, has_pairs

Dims = Mapping[str, int]
Extent = int | tuple[int, int | None]  # a constant, or an inclusive range whose upper end may be open


@dataclass(frozen=True, slots=True)
class TensorArg:
    """One tensor argument.

    dtype: its attribute name in torch, such as "bfloat16". dims: one dim per torch axis, its name, or a part of it as
    in "n/2" or "ceil(k/128)", or a number, as "512"; () is a device scalar. Extents are those of elements, of which
    "float4_e2m1fn_x2" has two in one of torch's, along the contiguous axis.
    contiguous: the torch axis whose stride is 1 (None for a device scalar). align: bytes that the data pointer and
    every other stride must be a multiple of (16 for a TMA tensor, the element size for a plainly loaded one).
    multiple: the extent of the contiguous axis must be a multiple of this many elements. axes: torch axes in kernel
    order, (m, n[, batch]) for outputs and epilogue tiles; `check` uses it to locate a wrong element. zeroed: scratch
    that is zero before the first launch, and left zero by every launch. padded: rows
    lie a multiple of `align` apart, whatever they hold. steps: what the extent of each axis is a multiple of; () where
    any will do. optional: a call may pass None.
    """

    name: str
    dtype: str
    dims: tuple[str, ...]
    contiguous: int | None
    align: int = 16
    multiple: int = 1
    axes: tuple[int, ...] = ()
    zeroed: bool = False
    padded: bool = False
    optional: bool = False
    steps: tuple[int, ...] = ()

    def text(self) -> str:
        dims = (d if self.packing(axis) == 1 else f"{d}/{self.packing(axis)}" for axis, d in enumerate(self.dims))
        return f"{self.dtype}[{', '.join(dims)}]"

    def packing(self, axis: int) -> int:
        """Elements along an axis in one of torch's."""
        return elements_in(self.dtype) if axis == self.contiguous else 1

    def place(self, axis: int) -> str:
        """The extent of an axis, in words."""
        return f"shape[{axis}]" if self.packing(axis) == 1 else f"{self.packing(axis)} x shape[{axis}]"

    def extents(self, value: Any) -> tuple[int, ...]:
        """Of a tensor's axes, in elements."""
        return tuple(extent * self.packing(axis) for axis, extent in enumerate(value.shape))

    @property
    def named(self) -> tuple[tuple[int, str], ...]:
        """(axis, dim) of those that are not numbers."""
        return tuple((axis, dim) for axis, dim in enumerate(self.dims) if not dim.isdigit())


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """One host scalar, passed by value: a Python float (or int). optional: a call may pass None."""

    name: str
    optional: bool = False


Argument = TensorArg | ScalarArg
MAX_EXTENT = 2**31 - 1  # of any axis: kernels count in i32


def is_omitted(arg: Argument, value: Any) -> bool:
    """Whether a call leaves out an argument that it may leave out."""
    return value is None and arg.optional


def divided(dim: str) -> tuple[str, int]:
    """Name and divisor of a dim: ("n", 2) of "n/2", ("k", 128) of "ceil(k/128)", ("n", 1) of "n"."""
    name, _, divisor = dim.removeprefix("ceil(").removesuffix(")").partition("/")
    return name, int(divisor or 1)


def slack(dim: str) -> int:
    """By how much `extent * divisor` may exceed the whole: a part that is rounded up need not be full."""
    return divided(dim)[1] - 1 if dim.startswith("ceil(") else 0


def extent_of(dim: str, dims: Dims) -> int:
    """The extent of a dim, or of a part of one. ValueError: the part is not whole."""
    if dim.isdigit():
        return int(dim)
    name, divisor = divided(dim)
    if dims[name] % divisor and not slack(dim):
        raise ValueError(f"{name} is {dims[name]}; {dim} needs a multiple of {divisor}")
    return -(-dims[name] // divisor)


def torch_dtype(name: str) -> Any:
    import torch

    if (found := getattr(torch, name, None)) is None:
        raise RuntimeError(f"torch {torch.__version__} has no dtype {name}: install a newer torch")
    return found


def allocate(arg: TensorArg, dims: Dims, device: Any) -> Any:
    """An uninitialised tensor of the declared shape and layout: the contiguous axis innermost, and dense but for padded
    rows."""
    import torch

    shape = tuple(extent_of(d, dims) // arg.packing(axis) for axis, d in enumerate(arg.dims))
    strides, step = [1] * len(shape), 1
    inner = [] if arg.contiguous is None else [arg.contiguous]
    for axis in inner + [i for i in reversed(range(len(shape))) if i != arg.contiguous]:
        strides[axis], step = step, step * max(shape[axis], 1)
        if arg.padded and axis == arg.contiguous:
            unit = max(1, arg.align // element_bytes(arg.dtype))
            step = -(-step // unit) * unit
    return torch.empty_strided(shape, strides, dtype=torch_dtype(arg.dtype), device=device)


def to_dtype(arg: Argument, value: Any, dtype: Any) -> Any:
    """What an argument holds, in a dtype of torch; what is not a tensor as it is."""
    if isinstance(arg, TensorArg) and arg.contiguous is not None and arg.packing(arg.contiguous) > 1:
        return decode_e2m1(value, dtype, arg.contiguous)
    return value.to(dtype) if hasattr(value, "to") else value


def draw(tensor: Any, scale: float) -> Any:
    """Fills a tensor with N(0, scale**2), or, when it has integers or elements of 4 bits, uniformly with all that they
    can be."""
    import torch

    if has_pairs(tensor):
        tensor.view(torch.uint8).random_(0, 256)
        return tensor
    if not tensor.is_floating_point():
        bounds = torch.iinfo(tensor.dtype)
        return tensor.random_(bounds.min, min(bounds.max + 1, 2**63 - 1))
    if tensor.element_size() > 1:
        return tensor.normal_(0.0, scale)
    return tensor.copy_(torch.empty_like(tensor, dtype=torch.float32).normal_(0.0, scale))


def step_of(dim: str, tensors: Sequence[Argument]) -> int:
    """The smallest step that `dim` may be varied in, so that every declared extent and packed stride stays legal."""
    step = 1
    for t in tensors:
        for axis, (name, divisor) in enumerate(map(divided, t.dims) if isinstance(t, TensorArg) else ()):
            if name != dim or not isinstance(t, TensorArg) or slack(t.dims[axis]):
                continue
            step = math.lcm(step, divisor * (t.steps[axis] if t.steps else 1))
            if axis == t.contiguous:
                step = math.lcm(step, t.multiple * divisor)
                if len(t.dims) > 1 and not t.padded:  # packed rows: the row pitch is this extent
                    step = math.lcm(step, max(1, t.align // element_bytes(t.dtype)) * t.packing(axis) * divisor)
    return step


def element_bytes(dtype: str) -> int:
    """Size of one of torch's elements by the numbers in a dtype's name (bfloat16, float8_e4m3fn, float4_e2m1fn_x2):
    known without importing torch."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) * elements_in(dtype) // 8 if bits else 1


def elements_in(dtype: str) -> int:
    """Elements in one of torch's."""
    return 2 if dtype.endswith("_x2") else 1


def tensor_bytes(args: Sequence[Argument], dims: Dims) -> int:
    """Bytes of all tensors among the arguments of one problem."""
    tensors = (a for a in args if isinstance(a, TensorArg))
    elements = ((t.dtype, math.prod(extent_of(d, dims) for d in t.dims)) for t in tensors)
    return sum(count * element_bytes(dtype) // elements_in(dtype) for dtype, count in elements)


def complete_dims(declared: Mapping[str, Extent], given: Dims) -> dict[str, int]:
    """The extents of every declared dim, given those which are not constant.

    TypeError: unknown or missing names. ValueError: an extent that differs from the constant or leaves the range.
    """
    if unknown := sorted(set(given) - set(declared)):
        raise TypeError(f"no dim is named {', '.join(unknown)}; the dims are {', '.join(declared)}")
    if missing := [d for d, extent in declared.items() if d not in given and not isinstance(extent, int)]:
        raise TypeError(f"missing extent of {', '.join(missing)}; pass {', '.join(f'{d}=...' for d in missing)}")
    dims = {d: given.get(d, extent if isinstance(extent, int) else 0) for d, extent in declared.items()}
    if faults := [text for d, extent in dims.items() if (text := range_fault(d, extent, declared[d]))]:
        raise ValueError("; ".join(faults))
    return dims


def legal_extent(allowed: Extent, step: int, extent: int) -> int:
    """`extent` moved into what is promised, up to the next multiple of `step`."""
    if isinstance(allowed, int):
        return allowed
    lo, hi = allowed
    extent = -(-max(extent, lo, 1) // step) * step
    return extent if hi is None or extent <= hi else hi // step * step


def range_fault(dim: str, value: int, extent: Extent) -> str | None:
    if isinstance(extent, int):
        return None if value == extent else f"{dim} is {value}; this kernel is specialised for {dim} = {extent}"
    lo, hi = extent
    if (value >= lo or value == 0) and (hi is None or value <= hi):
        return None
    return f"{dim} is {value}; this kernel is promised {lo} <= {dim}{'' if hi is None else f' <= {hi}'}"


def bind_dims(declared: Mapping[str, Extent], args: Sequence[Argument], values: Sequence[Any]) -> dict[str, int]:
    """The extents that the tensors have (the first one that carries a dim decides), constants included. ValueError:
    there are not as many values as arguments."""
    dims = {d: extent for d, extent in declared.items() if isinstance(extent, int)}
    for arg, value in zip(args, values, strict=True):
        if isinstance(arg, TensorArg) and not is_omitted(arg, value):
            extents = arg.extents(value)
            for axis, dim in arg.named:
                if divided(dim)[1] == 1 and axis < len(extents):
                    dims.setdefault(dim, extents[axis])
    return dims


def lacks_memory(value: Any) -> bool:
    """Whether a tensor has elements, but no address: fake tensors and subclasses that wrap others look like tensors on
    the device, and a kernel would read and write from address 0."""
    try:
        return not value.data_ptr() and value.numel() > 0
    except RuntimeError:  # torch says so itself
        return True


def normalise_strides(args: Sequence[Argument], values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The same storage with legal strides on axes of extent 1, whose strides torch leaves arbitrary; None if nothing
    changes. Such a stride is never used, yet it can fail the kernel's alignment check."""
    out = list(values)
    for i, (arg, v) in enumerate(zip(args, values)):
        if isinstance(arg, TensorArg) and v is not None and 1 in v.shape:
            span = max(s * n for s, n in zip(v.stride(), v.shape)) * v.element_size()
            pitch = -(-span // 128) * 128 // v.element_size()
            strides = tuple(
                s if n > 1 else 1 if axis == arg.contiguous else pitch
                for axis, (s, n) in enumerate(zip(v.stride(), v.shape))
            )
            if strides != v.stride():
                out[i] = v.as_strided(v.shape, strides)
    return None if all(a is b for a, b in zip(out, values)) else tuple(out)
