"""What is wrong with the arguments of a call: looked for after the compiled kernel refused it, not on the hot path."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.runtime.arguments import (
    MAX_EXTENT,
    Argument,
    Extent,
    ScalarArg,
    TensorArg,
    divided,
    element_bytes,
    elements_in,
    is_omitted,
    lacks_memory,
    range_fault,
    slack,
    torch_dtype,
)


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
                    bound.setdefault(dim, (arg.extents(value)[axis], arg.name))
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
        if (value.element_size(), element_bytes(arg.dtype)) == (1, 2):
            cast = "dequantise it first, as a cast knows no scales"
        elif len(arg.named) < len(arg.dims) and value.element_size() == element_bytes(arg.dtype):
            cast = f"pass {arg.name}.view(torch.{arg.dtype}), if it has the bytes of scales"
        elif elements_in(arg.dtype) > 1:
            cast = "pass what encode_e2m1 of cutegen.runtime.four_bits makes"
            if value.element_size() == 1:
                cast = f"pass {arg.name}.view(torch.{arg.dtype}), if it has two codes of e2m1 in a byte"
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
    for axis, (dim, extent) in enumerate(zip(arg.dims, arg.extents(value))):
        if dim.isdigit():
            if extent != int(dim):
                yield fault(f"shape[{axis}] is {extent}, needs {arg.text()}")
            continue
        name, divisor = divided(dim)
        if extent > MAX_EXTENT:
            said = f"{arg.place(axis)} ({dim}) is {extent}, more than kernels count ({MAX_EXTENT})"
            yield fault(f"{said}: split the call")
            continue
        known, owner = bound.setdefault(name, (extent * divisor, arg.name))
        if not 0 <= extent * divisor - known <= slack(dim):
            origin = f"{name} = {known} from {owner}" if divisor > 1 else f"from {owner}"
            part = -(-known // divisor) if slack(dim) else known / divisor
            said = f"{arg.place(axis)} is {extent}, but {dim} is {part:g} ({origin}); needs {arg.text()}"
            yield fault(said)
        elif arg.steps and extent % arg.steps[axis]:
            step = arg.steps[axis]
            said = f"{arg.place(axis)} ({dim}) is {extent}, needs a multiple of {step}"
            yield fault(f"{said}: {name} a multiple of {divisor * step}")
        elif owner == arg.name and (text := range_fault(name, known, declared[name])):
            yield fault(f"{arg.place(axis)}: {text}")
    if value.numel() and not bare:
        yield from (fault(text) for text in _layout_faults(arg, value, written))


def _layout_faults(arg: TensorArg, value: Any, written: bool) -> Iterator[str]:
    size, inner = value.element_size(), arg.contiguous
    for axis, (extent, stride) in enumerate(zip(arg.extents(value), value.stride())):
        if axis == inner:
            if extent > 1 and stride != 1:
                yield f"stride({axis}) is {stride}, needs 1 ({arg.dims[axis]} contiguous): {_relayout(arg, written)}"
            if extent % arg.multiple:
                up = -(-extent // arg.multiple) * arg.multiple
                yield (
                    f"{arg.place(axis)} ({arg.dims[axis]}) is {extent}, needs a multiple of {arg.multiple} elements: "
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
