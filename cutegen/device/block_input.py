"""Epilogue inputs with one value for a block of elements: what a thread needs of them for one subtile."""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Float32


@cute.jit
def fetch(
    values: cute.Tensor, block: cutlass.Constexpr, row, column, width: cutlass.Constexpr, aligned: cutlass.Constexpr
):
    """f32 (rows, columns): the values for a thread's elements of a subtile, from global memory.

    values: (m blocks, n blocks) of `block` (rows, columns) elements. row, column: of the thread's first element in the
    product. width: columns of the subtile. aligned: whether subtiles begin at multiples of their (rows, columns); then
    elements that certainly share a value share one of the result. What lies beyond the product gets the value of its
    edge.
    """
    rows = 1 if aligned[0] and block[0] % 16 == 0 else 2  # a thread's rows are 8 apart, in a band of 16
    shared = math.gcd(block[1], width) if aligned[1] else 1  # a multiple of 8, or 1
    columns = width // shared if shared > 1 else width // 4
    found = cute.make_rmem_tensor((rows, columns), Float32)
    for r in cutlass.range_constexpr(rows):
        at_m = cutlass.min((row + 8 * r) // block[0], values.shape[0] - 1)
        for c in cutlass.range_constexpr(columns):
            ahead = c * shared if shared > 1 else c // 2 * 8 + c % 2
            at_n = cutlass.min((column + ahead) // block[1], values.shape[1] - 1)
            found[r, c] = values[at_m, at_n].to(Float32)
    return found


def element(found, i: int, width: int):
    """The value for element i of a thread's fragment of a subtile with `width` columns, of what `fetch` found."""
    rows, columns = cute.size(found, mode=[0]), cute.size(found, mode=[1])
    at = i // 4 * 2 + i % 2 if columns > width // 8 else i // 4 * 8 * columns // width
    return found[i // 2 % 2 * (rows - 1), at]
