"""Where the arguments of a launch say what it has to know: computed once, read on the hot path by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cutegen.runtime.arguments import Argument, Extent, TensorArg, divided, slack


def find_dims(dims: Mapping[str, Extent], args: Sequence[Argument]) -> tuple[tuple[str, int, int], ...]:
    """(dim, argument, axis) where the extent of each dim that is not constant can be read."""
    found: dict[str, tuple[str, int, int]] = {}
    for i, arg in enumerate(args):
        for axis, dim in enumerate(arg.dims if isinstance(arg, TensorArg) and not arg.optional else ()):
            if not isinstance(dims[divided(dim)[0]], int) and divided(dim)[1] == 1:
                found.setdefault(dim, (dim, i, axis))
    return tuple(found.values())


def find_constants(dims: Mapping[str, Extent], args: Sequence[Argument]) -> tuple[tuple[int, int, int], ...]:
    """(argument, axis, extent) of each dim that is constant, or a part of one: the compiled kernel is not told those
    that fit in a tile, and takes any."""
    found: dict[str, tuple[int, int, int]] = {}
    for i, arg in enumerate(args):
        for axis, dim in enumerate(arg.dims if isinstance(arg, TensorArg) and not arg.optional else ()):
            name, divisor = divided(dim)
            if isinstance(value := dims[name], int):
                found.setdefault(dim, (i, axis, (value + slack(dim)) // divisor))
    return tuple(found.values())


def find_parts(
    args: Sequence[Argument], slots: Sequence[tuple[str, int, int]]
) -> tuple[tuple[int, int, int, int, int, int], ...]:
    """(argument, axis, divisor, slack, argument and axis of the whole) of each extent such as n/2: the compiled kernel
    checks that equal dims are equal, not that one is a part of another."""
    wholes = {dim: (i, axis) for dim, i, axis in slots}
    return tuple(
        (i, axis, divisor, slack(arg.dims[axis]), *wholes[name])
        for i, arg in enumerate(args)
        if isinstance(arg, TensorArg)
        for axis, (name, divisor) in enumerate(map(divided, arg.dims))
        if divisor > 1 and name in wholes
    )


def find_storage(
    args: Sequence[Argument], outputs: Sequence[str], aliases: Mapping[str, str]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
    """(output, argument) of each pair of tensors that may not overlap; those of them with the same dims, whose
    addresses are worth a look; and the pairs that may be one storage."""
    positions = {arg.name: i for i, arg in enumerate(args)}
    written = [positions[name] for name in outputs]
    together = [(positions[output], positions[name]) for output, name in aliases.items()]
    dims = {i: set(arg.dims) for i, arg in enumerate(args) if isinstance(arg, TensorArg)}
    apart = [(i, j) for i in written for j in dims if j != i and (i, j) not in together and (j not in written or j > i)]
    return apart, [(i, j) for i, j in apart if dims[i] == dims[j]], together
