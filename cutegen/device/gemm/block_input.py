"""Epilogue inputs with one value for a block of elements: what a thread needs of them for one subtile."""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Float32


def widen(values: cute.Tensor, mode: int):
    """The tensor with a mode of extent 1 put before mode `mode`."""
    shape, stride = list(values.shape), list(values.stride)
    shape.insert(mode, 1)
    stride.insert(mode, 0)
    return cute.make_tensor(values.iterator, cute.make_layout(tuple(shape), stride=tuple(stride)))


def _shared(block: tuple[int, int], width: int, aligned: tuple[bool, bool]) -> tuple[int, int]:
    """Values that a thread needs for its two rows of a subtile, and columns that share one: a multiple of 8, or 1."""
    # The two rows are 8 apart, in a band of 16.
    rows = 1 if block[0] == 0 or (aligned[0] and block[0] % 16 == 0) else 2
    if block[1] == 0:
        return rows, width
    return rows, math.gcd(block[1], width) if aligned[1] else 1


@cute.jit
def fetch(
    values: cute.Tensor, block: cutlass.Constexpr, row, column, width: cutlass.Constexpr, aligned: cutlass.Constexpr
):
    """f32 (rows, columns): the values for a thread's elements of a subtile, from global memory.

    values: (m blocks, n blocks) of `block` (rows, columns) elements, 0 for all of them. row, column: of the thread's
    first element in the product. width: columns of the subtile. aligned: whether subtiles begin at multiples of their
    (rows, columns); then elements that certainly share a value share one of the result. What lies beyond the product
    gets the value of its edge.
    """
    rows, shared = _shared(block, width, aligned)
    columns = width // shared if shared > 1 else width // 4
    found = cute.make_rmem_tensor((rows, columns), Float32)
    for r in cutlass.range_constexpr(rows):
        at_m = cutlass.min((row + 8 * r) // max(block[0], 1), values.shape[0] - 1)
        for c in cutlass.range_constexpr(columns):
            ahead = c * shared if shared > 1 else c // 2 * 8 + c % 2
            at_n = cutlass.min((column + ahead) // max(block[1], 1), values.shape[1] - 1)
            found[r, c] = values[at_m, at_n].to(Float32)
    return found


def element(found, i: int, width: int):
    """The value for element i of a thread's fragment of a subtile with `width` columns, of what `fetch` found."""
    rows, columns = cute.size(found, mode=[0]), cute.size(found, mode=[1])
    at = i // 4 * 2 + i % 2 if columns > width // 8 else i // 4 * 8 * columns // width
    return found[i // 2 % 2 * (rows - 1), at]
