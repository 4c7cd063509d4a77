"""The arguments of a call as generated source declares them: to the plan, and to the compiler of the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cutegen.dtypes import DType
from cutegen.render.layout import bracketed
from cutegen.runtime.arguments import Argument, Extent, ScalarArg, TensorArg


@dataclass(frozen=True, slots=True)
class FakeText:
    """A symbolic argument for the compiler. text: what it stands for."""

    text: str
    value: str


def arguments_text(before: str, args: Iterable[Argument]) -> str:
    """A tuple of TensorArg and ScalarArg. before: what precedes it on its line."""
    items = tuple(map(_argument, args))
    if len(items) > 1:
        return "(\n" + "".join(f"        {item},\n" for item in items) + "    )"
    return bracketed("(", items, ")", indent=4, used=len(before), literal=True)


def _argument(arg: Argument) -> str:
    optional = ["optional=True"] * arg.optional
    if isinstance(arg, ScalarArg):
        return f"ScalarArg({', '.join((quoted(arg.name), *optional))})"
    parts = [quoted(arg.name), quoted(arg.dtype), tuple_text(map(quoted, arg.dims))]
    parts += [f"contiguous={arg.contiguous}", f"align={arg.align}"]
    if arg.multiple > 1:
        parts.append(f"multiple={arg.multiple}")
    if arg.axes:
        parts.append(f"axes={arg.axes}")
    if arg.padded:
        parts.append("padded=True")
    parts += optional
    if arg.steps:
        parts.append(f"steps={arg.steps}")
    return bracketed("TensorArg(", parts, ")", indent=8, used=1)


def dims_text(dims: Mapping[str, Extent]) -> str:
    """The `dims` of a plan."""
    return "{" + ", ".join(f"{quoted(name)}: {extent}" for name, extent in dims.items()) + "}"


def symbol_line(name: str, symbol: str, multiples: Iterable[int]) -> str:
    """A statement that makes an extent that the compiler does not know. symbol: for errors. multiples: what it is a
    multiple of."""
    most = max(multiples, default=1)
    return f"{name} = cute.sym_int(symbol={quoted(symbol)}{f', divisibility={most}' if most > 1 else ''})"


def symbol_lines(dims: Mapping[str, Extent], args: Sequence[TensorArg]) -> Iterator[str]:
    """One for each dim that is a symbol; its divisibility is what the most demanding of the tensors needs."""
    for dim, extent in dims.items():
        if _is_symbol(extent):
            yield symbol_line(
                dim, dim, (a.multiple for a in args if a.contiguous is not None and a.dims[a.contiguous] == dim)
            )


def _is_symbol(extent: Extent) -> bool:
    """Whether the compiler must not know it: of an extent of 1 it would drop the axis."""
    return extent == 1 or not isinstance(extent, int)


def fake_tensor(
    text: str, dtype: str, extents: Iterable[str], contiguous: int | None, align: int, multiple: int
) -> FakeText:
    """dtype: its name in cutlass. extents: symbols and numbers. multiple: elements that other strides are multiples
    of."""
    sizes = tuple(extents)
    step = f"divisibility={multiple}" if multiple > 1 else ""
    strides = tuple_text("1" if axis == contiguous else f"cute.sym_int64({step})" for axis in range(len(sizes)))
    parts = (dtype, tuple_text(sizes), strides, f"assumed_align={align}")
    return FakeText(text, bracketed("make_fake_tensor(", parts, ")", indent=8, used=1))


def fake_argument(text: str, dtype: DType, arg: TensorArg, dims: Mapping[str, Extent]) -> FakeText:
    """Of a tensor whose dims are whole."""
    extents = (d if _is_symbol(dims[d]) else str(dims[d]) for d in arg.dims)
    return fake_tensor(text, dtype.cutlass, extents, arg.contiguous, arg.align, arg.align // dtype.bytes)


def quoted(name: str) -> str:
    return f'"{name}"'


def tuple_text(items: Iterable[str]) -> str:
    items = tuple(items)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
