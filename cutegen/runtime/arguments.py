"""What a generated plan declares about its arguments, and everything generic that follows from the declarations.

Extents are elements, alignments are bytes. Nothing here runs on the hot path of a launch: faults are looked for only
after the compiled kernel refused a call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Dims = Mapping[str, int]
Extent = int | tuple[int, int | None]  # a constant, or an inclusive range whose upper end may be open


@dataclass(frozen=True, slots=True)
class TensorArg:
    """One tensor argument.

    dtype: its attribute name in torch, such as "bfloat16". dims: one dim per torch axis, its name, or a part of it as
    in "n/2" or "ceil(k/128)", or a number, as "512"; () is a device scalar.
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
        return f"{self.dtype}[{', '.join(self.dims)}]"

    @property
    def named(self) -> tuple[tuple[int, str], ...]:
        """(axis, dim) of those that are no numbers."""
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

    return getattr(torch, name)


def allocate(arg: TensorArg, dims: Dims, device: Any) -> Any:
    """An uninitialised tensor of the declared shape and layout: the contiguous axis innermost, and dense but for padded
    rows."""
    import torch

    shape = tuple(extent_of(d, dims) for d in arg.dims)
    strides, step = [1] * len(shape), 1
    inner = [] if arg.contiguous is None else [arg.contiguous]
    for axis in inner + [i for i in reversed(range(len(shape))) if i != arg.contiguous]:
        strides[axis], step = step, step * max(shape[axis], 1)
        if arg.padded and axis == arg.contiguous:
            unit = max(1, arg.align // _bytes(arg.dtype))
            step = -(-step // unit) * unit
    return torch.empty_strided(shape, strides, dtype=torch_dtype(arg.dtype), device=device)


def draw(tensor: Any, scale: float) -> Any:
    """Fills a tensor with N(0, scale**2), or, when it has integers, uniformly with all that they can be."""
    import torch

    if not tensor.is_floating_point():
        bounds = torch.iinfo(tensor.dtype)
        return tensor.random_(bounds.min, bounds.max + 1)
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
                    step = math.lcm(step, max(1, t.align // _bytes(t.dtype)) * divisor)
    return step


def _bytes(dtype: str) -> int:
    """Element size by the number in a dtype's name (bfloat16, float8_e4m3fn): known without importing torch."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) // 8 if bits else 1


def tensor_bytes(args: Sequence[Argument], dims: Dims) -> int:
    """Bytes of all tensors among the arguments of one problem."""
    tensors = (a for a in args if isinstance(a, TensorArg))
    return sum(math.prod(extent_of(d, dims) for d in t.dims) * _bytes(t.dtype) for t in tensors)


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
            for axis, dim in arg.named:
                if divided(dim)[1] == 1 and axis < len(value.shape):
                    dims.setdefault(dim, value.shape[axis])
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


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason why a call is refused. error: TypeError (what was passed) or ValueError (its numbers)."""

    error: type[Exception]
    text: str


# What to do where the last dim is a number: the tensor has chunks of scales.
PACK = "pass pack_scales({0}) of cutegen.runtime.gemm.scale_packing; what torch has packed, as a view of that shape"
# Instead of a remedy that makes a copy, for what a launch writes.
ALLOCATE = "allocate it so; the kernel writes it, and a copy would be lost"


def find_faults(
    declared: Mapping[str, Extent],
    args: Sequence[Argument],
    values: Sequence[Any],
    device: str,
    reduced: str,
    written: Collection[str] = (),
) -> list[Fault]:
    """Every reason why `values` cannot be passed as `args`, in argument order; empty when they can. written: names of
    the arguments that a launch writes."""
    import torch

    if len(args) != len(values):
        names = ", ".join(a.name for a in args)
        return [Fault(TypeError, f"takes {len(args)} arguments ({names}), got {len(values)}")]
    faults: list[Fault] = []
    bound: dict[str, tuple[int, str]] = {d: (e, "the spec") for d, e in declared.items() if isinstance(e, int)}
    place = None
    for arg, value in zip(args, values):  # wholes come before their parts, whatever the order of arguments
        if isinstance(arg, TensorArg) and isinstance(value, torch.Tensor) and value.dim() == len(arg.dims):
            for axis, dim in arg.named:
                if divided(dim)[1] == 1:
                    bound.setdefault(dim, (value.shape[axis], arg.name))
    for arg, value in zip(args, values):
        if is_omitted(arg, value):
            continue
        if isinstance(arg, ScalarArg):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                hint = "; pass value.item()" if isinstance(value, torch.Tensor) else ""
                faults.append(Fault(TypeError, f"{arg.name}: is {_kind(value)}, needs a Python float{hint}"))
        elif not isinstance(value, torch.Tensor):
            faults.append(Fault(TypeError, f"{arg.name}: is {_kind(value)}, needs a torch tensor {arg.text()}"))
        else:
            place = place or (arg.name, value.device)
            faults += _tensor_faults(arg, value, device, place, bound, declared, arg.name in written)
    if not faults and bound.get(reduced, (1, ""))[0] == 0:
        faults.append(Fault(ValueError, f"{reduced} is 0; a product over no elements is not computed: fill the output"))
    return faults


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _tensor_faults(
    arg: TensorArg,
    value: Any,
    device: str,
    place: tuple[str, Any],
    bound: dict[str, tuple[int, str]],
    declared: Mapping[str, Extent],
    written: bool,
) -> Iterator[Fault]:
    def fault(text: str, error: type[Exception] = ValueError) -> Fault:
        return Fault(error, f"{arg.name}: {text}")

    if value.dtype is not torch_dtype(arg.dtype):
        have = str(value.dtype).removeprefix("torch.")
        cast = f"pass {arg.name}.to(torch.{arg.dtype})"
        if (value.element_size(), _bytes(arg.dtype)) == (1, 2):
            cast = "dequantise it first, as a cast knows no scales"
        elif len(arg.named) < len(arg.dims) and value.element_size() == _bytes(arg.dtype):
            cast = f"pass {arg.name}.view(torch.{arg.dtype}), if it has the bytes of scales"
        elif arg.dtype == "uint8":  # bytes of a format, no numbers
            cast = (
                f"pass {arg.name}.view(torch.uint8)" if value.element_size() == 1 else "write it by `pack` of the plan"
            )
        yield fault(f"has dtype {have}, needs {arg.dtype}: {ALLOCATE if written else cast}", TypeError)
    if value.device.type == "meta":
        yield fault(f"is a meta tensor, which has no data, needs {device}: make it on {device!r}")
    elif value.device.type != device:
        move = ALLOCATE if written else f"pass {arg.name}.to({device!r})"
        yield fault(f"is on {value.device}, needs {device}: {move}")
    elif value.device != place[1]:
        yield fault(f"is on {value.device}, but {place[0]} is on {place[1]}: move all to one device")
    bare = value.device.type == device and lacks_memory(value)
    if bare:
        kind = type(value).__name__
        yield fault(f"is a {kind} without memory of its own: pass the tensor that it wraps or stands for", TypeError)
    if value.dim() != len(arg.dims):
        said = f"has shape {tuple(value.shape)} of rank {value.dim()}, needs {arg.text()} of rank {len(arg.dims)}"
        units = [axis for axis, extent in enumerate(value.shape) if extent == 1]
        spare = value.dim() == len(arg.dims) + 1 and len(units) == 1
        if len(arg.named) < len(arg.dims):
            yield fault(f"{said}: {PACK.format(arg.name)}")
        else:
            yield fault(f"{said}: pass {arg.name}.squeeze({units[0]})" if spare else said)
        return
    for axis, (dim, extent) in enumerate(zip(arg.dims, value.shape)):
        if dim.isdigit():
            if extent != int(dim):
                yield fault(f"shape[{axis}] is {extent}, needs {arg.text()}")
            continue
        name, divisor = divided(dim)
        if extent > MAX_EXTENT:
            yield fault(f"shape[{axis}] ({dim}) is {extent}, more than kernels count ({MAX_EXTENT}): split the call")
            continue
        known, owner = bound.setdefault(name, (extent * divisor, arg.name))
        if not 0 <= extent * divisor - known <= slack(dim):
            origin = f"{name} = {known} from {owner}" if divisor > 1 else f"from {owner}"
            part = -(-known // divisor) if slack(dim) else known / divisor
            said = f"shape[{axis}] is {extent}, but {dim} is {part:g} ({origin}); needs {arg.text()}"
            yield fault(said)
        elif arg.steps and extent % arg.steps[axis]:
            step = arg.steps[axis]
            said = f"shape[{axis}] ({dim}) is {extent}, needs a multiple of {step}"
            yield fault(f"{said}: {name} a multiple of {divisor * step}")
        elif owner == arg.name and (text := range_fault(name, known, declared[name])):
            yield fault(f"shape[{axis}]: {text}")
    if value.numel() and not bare:
        yield from (fault(text) for text in _layout_faults(arg, value, written))


def _layout_faults(arg: TensorArg, value: Any, written: bool) -> Iterator[str]:
    size, inner = value.element_size(), arg.contiguous
    for axis, (extent, stride) in enumerate(zip(value.shape, value.stride())):
        if axis == inner:
            if extent > 1 and stride != 1:
                yield f"stride({axis}) is {stride}, needs 1 ({arg.dims[axis]} contiguous): {_relayout(arg, written)}"
            if extent % arg.multiple:
                up = -(-extent // arg.multiple) * arg.multiple
                yield (
                    f"shape[{axis}] ({arg.dims[axis]}) is {extent}, needs a multiple of {arg.multiple} elements: "
                    f"pad {arg.dims[axis]} to {up}"
                )
        elif extent > 1 and (stride * size) % arg.align:
            text = f"stride({axis}) is {stride} elements = {stride * size} bytes"
            text += f"; the kernel needs multiples of {arg.align} bytes"
            up = -(-value.shape[inner or 0] * size // arg.align) * arg.align // size
            if inner is not None and up != value.shape[inner]:
                fix = f"pad {arg.dims[inner]} to {up}, or pass a slice of a buffer whose rows hold {up} elements"
            else:
                fix = _relayout(arg, written)
            yield f"{text}: {fix}"
    if off := value.data_ptr() % arg.align:
        copy = "" if written else f", or pass {arg.name}.clone()"
        yield (
            f"data pointer is {off} bytes past a multiple of {arg.align}; the kernel needs {arg.align}-byte alignment: "
            f"start the slice at a multiple of {max(1, arg.align // size)} elements{copy}"
        )


def _relayout(arg: TensorArg, written: bool) -> str:
    if written:
        return ALLOCATE
    if arg.contiguous == len(arg.dims) - 1:
        return f"pass {arg.name}.contiguous()"
    axes = (arg.contiguous, len(arg.dims) - 1)
    return f"pass {arg.name}.transpose{axes}.contiguous().transpose{axes}"
