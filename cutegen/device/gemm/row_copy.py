"""Rows of a matrix, named by an index, copied to scratch in the order of the index; and scales of those rows.

A CTA copies `count` of them, from `first` on, a warp each.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr

CHUNK = 16  # bytes of one load
LOADS = 8  # of a thread, on their way at once


@cute.jit
def find_row(index: cute.Tensor, i: Int32, extent: Int32):
    """(row that the index names for row i of the product, whether there is such a row); row 0 where there is none."""
    row = index[i]
    inside = row >= 0 and row < extent
    return cutlass.select_(inside, row, Int32(0)), inside


@cute.jit
def copy_matrix(matrix: cute.Tensor, index: cute.Tensor, copy: cute.Tensor, first: Int32, count: cutlass.Constexpr):
    """copy[i, :] = matrix[index[i], :] for the rows i of this CTA; zeros for a row that there is not.

    matrix, copy: (rows, k), k contiguous and a multiple of 16 bytes.
    """
    thread, _, _ = cute.arch.thread_idx()
    lane, i = thread % 32, first + thread // 32
    width = const_expr(CHUNK * 8 // matrix.element_type.width)
    chunks = copy.shape[1] // width
    if i < copy.shape[0]:
        row, inside = find_row(index, i, matrix.shape[0])
        source = cute.flat_divide(matrix[row, None], (width,))  # (width, chunks)
        target = cute.flat_divide(copy[i, None], (width,))
        for chunk in cutlass.range(lane, chunks, 32 * LOADS, unroll=1):
            values = cute.make_rmem_tensor((width, LOADS), matrix.element_type)
            values.fill(matrix.element_type(0))
            for j in cutlass.range_constexpr(LOADS):
                if inside and chunk + 32 * j < chunks:
                    cute.autovec_copy(source[None, chunk + 32 * j], values[None, j])
            for j in cutlass.range_constexpr(LOADS):
                if chunk + 32 * j < chunks:
                    cute.autovec_copy(values[None, j], target[None, chunk + 32 * j])


@cute.jit
def copy_scales(scales: cute.Tensor, index: cute.Tensor, copy: cute.Tensor, first: Int32, count: cutlass.Constexpr):
    """The same for scales along k: (rows, k blocks), in any layout."""
    thread, _, _ = cute.arch.thread_idx()
    i = first + thread % count
    if i < copy.shape[0]:
        row, inside = find_row(index, i, scales.shape[0])
        for block in cutlass.range(thread // count, copy.shape[1], 32, unroll=4):
            value = scales.element_type(0)
            if inside:
                value = scales[row, block]
            copy[i, block] = value


@cute.jit
def copy_vector(vector: cute.Tensor, index: cute.Tensor, copy: cute.Tensor, first: Int32, count: cutlass.Constexpr):
    """The same for one value of each row."""
    thread, _, _ = cute.arch.thread_idx()
    i = first + thread
    if thread < count and i < copy.shape[0]:
        row, inside = find_row(index, i, vector.shape[0])
        value = vector.element_type(0)
        if inside:
            value = vector[row]
        copy[i] = value
