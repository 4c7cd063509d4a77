"""Sums over the lanes of a warp."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr


@cute.jit
def prefix_sums(x: cute.Tensor, lane: Int32):
    """Of the elements 32 * i + lane in x[i]: sums of all up to each, and of all. Sums of a warp side by side."""
    held = const_expr(cute.size(x))
    upto = cute.make_rmem_tensor(held, Int32)
    for i in cutlass.range_constexpr(held):
        upto[i] = x[i]
    for step in cutlass.range_constexpr(5):
        for i in cutlass.range_constexpr(held):
            below = cute.arch.shuffle_sync_up(upto[i], 1 << step)
            if lane >= (1 << step):
                upto[i] = upto[i] + below
    total = Int32(0)
    for i in cutlass.range_constexpr(held):
        row = cute.arch.shuffle_sync(upto[i], 31)
        upto[i] = upto[i] + total
        total = total + row
    return upto, total
