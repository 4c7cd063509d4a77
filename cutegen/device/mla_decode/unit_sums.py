"""Units that keys are counted in when they are shared out, and sums of costs over the lengths that a warp holds."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint32, const_expr

from cutegen.device.mla_decode.request_lengths import count_requests, load_lengths


def units_of(length: Int32, unit: cutlass.Constexpr) -> Int32:
    """Units that keys take. A shift, as a division would also round down what is negative; unit is a power of two."""
    return (length + unit - 1) >> (unit.bit_length() - 1)


def ceil_div(x: Int32, y: Int32) -> Int32:
    """x / y rounded up, x not negative and y positive: an unsigned division has no sign to look at."""
    return Int32((Uint32(x) + Uint32(y) - 1) // Uint32(y))


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


@cute.jit
def sum_costs(
    lengths: cute.Tensor,
    most: Int32,
    base: Int32,
    lane: Int32,
    held: cute.Tensor,
    cost: cutlass.Constexpr,
):
    """Of requests base + 32 * i + lane: costs, 0 past the batch, sums of all up to each, and of all. held: gets their
    lengths, but for a batch of which it has all. cost: a function of a length."""
    batch = count_requests(lengths)
    if batch > 32 * cute.size(held):
        load_lengths(lengths, most, base, lane, held)
    costs = cute.make_rmem_tensor(cute.size(held), Int32)
    for i in cutlass.range_constexpr(cute.size(held)):
        of_length = cost(held[i])
        costs[i] = of_length if base + 32 * i + lane < batch else Int32(0)
    upto, total = prefix_sums(costs, lane)
    return costs, upto, total
