"""The arguments of a kernel as the compiler is told of them; `_shared/fake_arguments.py.jinja` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cutegen.dtypes import DType
from cutegen.runtime.arguments import Extent, TensorArg


@dataclass(frozen=True, slots=True)
class Symbol:
    """An extent that the compiler does not know. name: in generated source, "" of one that occurs once. dim: for
    errors. multiple: what it is a multiple of."""

    name: str
    dim: str
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class FakeArgument:
    """A symbolic argument for the compiler. says: what it stands for. dtype: its name in cutlass. extents: names of
    symbols, numbers, and symbols of its own; None of a host scalar. contiguous: the axis of stride 1. align: of the
    address, in bytes; multiple: of other strides, in elements."""

    says: str
    dtype: str
    extents: tuple[str | int | Symbol, ...] | None
    contiguous: int | None = 0
    align: int = 4
    multiple: int = 1


def list_symbols(dims: Mapping[str, Extent], args: Sequence[TensorArg]) -> Iterator[Symbol]:
    """One for each dim that is a symbol; its divisibility is what the most demanding of the tensors needs."""
    for dim, extent in dims.items():
        if known_extent(dim, extent) == dim:
            multiples = (a.multiple for a in args if a.contiguous is not None and a.dims[a.contiguous] == dim)
            yield Symbol(dim, dim, max(multiples, default=1))


def known_extent(dim: str, extent: Extent) -> str | int:
    """The name of a symbol where the compiler must not know it: of an extent of 1 it would drop the axis."""
    return extent if isinstance(extent, int) and extent != 1 else dim


def fake_argument(says: str, dtype: DType, arg: TensorArg, dims: Mapping[str, Extent]) -> FakeArgument:
    """Of a tensor whose dims are whole."""
    extents = tuple(known_extent(d, dims[d]) for d in arg.dims)
    return FakeArgument(says, dtype.cutlass, extents, arg.contiguous, arg.align, dtype.fit(arg.align))
