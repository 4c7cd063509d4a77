"""Stores of an epilogue subtile by threads, for outputs whose rows TMA cannot address."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr


@cute.jit
def store_subtile(
    smem: cute.Tensor,
    gmem: cute.Tensor,
    row: Int32,
    column: Int32,
    thread: Int32,
    threads: cutlass.Constexpr,
    n_major: cutlass.Constexpr,
):
    """smem (eM, eN), written and published, to gmem (m, n) at (row, column); what lies outside is left out.

    Neighbouring threads store neighbouring elements, whatever the alignment of a row. Four at a time: with the
    addresses of all its rows at once a thread spills.
    """
    fast, slow = (1, 0) if const_expr(n_major) else (0, 1)
    width, length = cute.size(smem, mode=[fast]), cute.size(smem, mode=[slow])
    for at in cutlass.range(thread, width * length, threads, unroll=4):
        m = at // width if const_expr(n_major) else at % width
        n = at % width if const_expr(n_major) else at // width
        if row + m < gmem.shape[0] and column + n < gmem.shape[1]:
            gmem[row + m, column + n] = smem[m, n]
