"""Where the arguments of a launch say what it has to know: computed once, read on the hot path by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any

from cutegen.runtime.apart import make_apart_check
from cutegen.runtime.arguments import Argument, Extent, TensorArg, divided, lacks_memory, slack, torch_dtype
from cutegen.runtime.base import Table
from cutegen.runtime.overlap import lies_apart

# Layouts of outputs that a plan remembers.
MOST_LAYOUTS = 1024
# Sets of addresses that are remembered of calls whose tensors have the same shapes.
MOST_PLACES = 64
ADDRESS = methodcaller("data_ptr")
Places = set[tuple[int | None, ...]]  # addresses of the tensors of calls, None of those left out


def _required(args: Sequence[Argument]) -> Iterator[tuple[int, TensorArg]]:
    return ((i, arg) for i, arg in enumerate(args) if isinstance(arg, TensorArg) and not arg.optional)


def find_dims(dims: Mapping[str, Extent], args: Sequence[Argument]) -> tuple[tuple[str, int, int, int], ...]:
    """(dim, argument, axis, elements in one of torch's) where the extent of each dim that is not constant can be
    read."""
    found: dict[str, tuple[str, int, int, int]] = {}
    for i, arg in _required(args):
        for axis, dim in arg.named:
            if not isinstance(dims[divided(dim)[0]], int) and divided(dim)[1] == 1:
                found.setdefault(dim, (dim, i, axis, arg.packing(axis)))
    return tuple(found.values())


def find_constants(dims: Mapping[str, Extent], args: Sequence[Argument]) -> tuple[tuple[int, int, int], ...]:
    """(argument, axis, extent) of each dim that is constant, or a part of one: the compiled kernel is not told those
    that fit in a tile, and takes any."""
    found: dict[str, tuple[int, int, int]] = {}
    for i, arg in _required(args):
        for axis, dim in arg.named:
            name, divisor = divided(dim)
            if isinstance(value := dims[name], int):
                found.setdefault(dim, (i, axis, (value + slack(dim)) // divisor // arg.packing(axis)))
    return tuple(found.values())


def find_bounds(dims: Mapping[str, Extent], args: Sequence[Argument]) -> tuple[tuple[int, int, int, int], ...]:
    """(argument, axis, low, high) of each dim with a promised range that ends, and of what find_constants finds."""
    ranges = {d: extent for d, extent in dims.items() if not isinstance(extent, int)}
    slots = ((i, axis, packing, *ranges[d]) for d, i, axis, packing in find_dims(dims, args))
    bounded = [(i, axis, -(-low // each), high // each) for i, axis, each, low, high in slots if high is not None]
    return (*bounded, *((i, axis, extent, extent) for i, axis, extent in find_constants(dims, args)))


def find_parts(
    args: Sequence[Argument], slots: Sequence[tuple[str, int, int, int]]
) -> tuple[tuple[int, int, int, int, int, int, int], ...]:
    """(argument, axis, divisor of what torch has as elements, slack; of the whole: argument, axis, elements in one of
    torch's) of each extent such as n/2: the compiled kernel checks that equal dims are equal, not that one is a part of
    another."""
    wholes = {dim: (i, axis, each) for dim, i, axis, each in slots}
    return tuple(
        (i, axis, divisor * arg.packing(axis), slack(arg.dims[axis]), *wholes[name])
        for i, arg in enumerate(args)
        if isinstance(arg, TensorArg)
        for axis, (name, divisor) in enumerate(map(divided, arg.dims))
        if divisor > 1 and name in wholes
    )


def make_storage_check(
    args: Sequence[Argument],
    outputs: Sequence[str],
    aliases: Mapping[str, str],
    scratch: Sequence[TensorArg] = (),
    check_memory: Callable[[Sequence[Any]], None] | None = None,
) -> Callable[..., None]:
    """`check(values, places=None)` of the storage of a call's tensors, which raises a ValueError: each has memory; no
    output has several elements at one address, is passed as another argument or, with the same dims, begins where one
    does, unless it may lie there and has its strides; and no two of outputs and scratch, which may follow args,
    overlap. Empty tensors lie nowhere: PyTorch says 0. check_memory: make_memory_check's, or a caller's part of it.

    places: what the check remembers of calls with as many elements in each output and scratch tensor, at first
    nothing. Where tensors lie that passed, and outputs are contiguous, only types and addresses are looked at again.
    Tensors of other dtypes than the declared ones are not remembered, as the compiled call refuses them.
    """
    check_memory = check_memory or make_memory_check()
    positions = {arg.name: i for i, arg in enumerate(args)}
    written = [positions[name] for name in outputs]
    together = [(positions[output], positions[name]) for output, name in aliases.items()]
    dims = {i: set(arg.dims) for i, arg in enumerate(args) if isinstance(arg, TensorArg)}
    apart = [(i, j) for i in written for j in dims if j != i and (i, j) not in together and (j not in written or j > i)]
    alike = [(i, j) for i, j in apart if dims[i] == dims[j]]
    check_layouts, check_apart = make_layout_check(args, outputs), make_apart_check(written, len(args))
    several, end, located = len(written) > 1, len(args), tuple(dims)
    tensors = len(dims) == len(args) and not any(a.optional for a in args)
    typed = [(positions[a.name], a.dtype) for a in args if isinstance(a, TensorArg) and a.name in outputs]
    typed += [(end + i, a.dtype) for i, a in enumerate(scratch)]

    def look(values: Sequence[Any], places: Places | None = None) -> None:
        check_memory(values)
        check_layouts(values)
        if several or len(values) > end:
            for value in values[end:]:
                if value.dim() != 1:
                    raise ValueError("scratch")
            check_apart(values)
        for i, j in apart:
            if values[i] is values[j]:
                raise ValueError(f"arguments {i} and {j}")  # named by who looks for faults
        for i, j in alike:
            if (other := values[j]) is not None and values[i].data_ptr() == other.data_ptr() != 0:
                raise ValueError(f"arguments {i} and {j}")
        for i, j in together:
            if (other := values[j]) is None or not values[i].data_ptr() == other.data_ptr() != 0:
                continue
            if values[i].stride() != other.stride():
                raise ValueError(f"arguments {i} and {j}")

    def check(values: Sequence[Any], places: Places | None = None) -> None:
        if places is None:
            look(values)
            return
        check_memory(values)
        for i in written:
            if not values[i].is_contiguous():
                look(values)
                return
        if tensors:
            where = tuple(map(ADDRESS, values))
        else:
            passed = [*[values[i] for i in located], *values[end:]]
            where = tuple([None if value is None else value.data_ptr() for value in passed])
        if where in places:
            return
        look(values)
        known = [address for address in where if address is not None]
        fit = all(values[i].dtype == torch_dtype(dtype) for i, dtype in typed if i < len(values))
        if fit and len(set(known)) == len(known):  # else two may be one argument the next time
            if len(places) >= MOST_PLACES:
                places.clear()
            places.add(where)

    return check if several or alike or together or scratch else look


def make_layout_check(args: Sequence[Argument], outputs: Sequence[str]) -> Callable[[Sequence[Any]], None]:
    """A check that no output of a call has several elements at one address, which raises a ValueError. The compiled
    kernel takes any strides that are aligned, 0 among them."""
    written = [i for i, a in enumerate(args) if isinstance(a, TensorArg) and a.name in outputs and len(a.dims) > 1]
    apart = Table(lambda layout: lies_apart(*layout), MOST_LAYOUTS)

    def check(values: Sequence[Any]) -> None:
        for i in written:
            value = values[i]
            if not (value.is_contiguous() or apart[value.shape, value.stride()]):
                raise ValueError(f"argument {i}")  # named by who looks for faults

    return check


def make_memory_check() -> Callable[[Sequence[Any]], None]:
    """A check that the tensors of a call have memory, which raises a ValueError. Plain tensors are taken to, and only
    their type is looked at: one whose storage was resized to nothing passes. Of others every call looks at the address.
    """
    plain: set[type] = {float, int, type(None)}

    def check(values: Sequence[Any]) -> None:
        if plain.issuperset(map(type, values)):
            return
        from torch import Tensor
        from torch.nn import Parameter

        plain.update((Tensor, Parameter))
        for value in values:
            if type(value) not in plain and isinstance(value, Tensor) and lacks_memory(value):
                raise ValueError("a tensor without memory")

    return check
