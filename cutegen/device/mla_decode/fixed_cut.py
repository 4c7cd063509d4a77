"""Requests cut by their own lengths alone, so that their bits depend on nothing else, and the pieces of a CTA.

A CTA takes a run of pieces, whole requests or not, as split_schedule.py has it: its result has the same fields.
tests/property/test_fixed_cut.py runs this file in plain Python.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr

from cutegen.device.mla_decode.request_lengths import FEW, HELD, count_requests, keep_lengths, load_lengths
from cutegen.device.mla_decode.split_schedule import (
    END,
    FIRST,
    FIRST_HI,
    FIRST_LO,
    LAST,
    LAST_HI,
    LENGTH,
    PAIR,
    START,
    take_nothing,
)
from cutegen.device.mla_decode.unit_sums import ceil_div, sum_costs, units_of


def cut_of(units: Int32, piece: cutlass.Constexpr, most_pieces: cutlass.Constexpr):
    """How a request of so many units is cut, whatever else is in the batch: pieces, and units of each, of which the
    last one may have fewer. As many pieces as `piece` units each would be, and no more than `most_pieces`."""
    pieces = cutlass.min(cutlass.max(ceil_div(units, Int32(piece)), Int32(1)), Int32(most_pieces))
    size = cutlass.max(ceil_div(units, pieces), Int32(1))
    return cutlass.max(ceil_div(units, size), Int32(1)), size


def _cost_of(
    length: Int32,
    unit: cutlass.Constexpr,
    overhead: cutlass.Constexpr,
    piece: cutlass.Constexpr,
    most_pieces: cutlass.Constexpr,
) -> Int32:
    """Of all pieces of a request, in units; `overhead` as well."""
    pieces, size = cut_of(units_of(length, unit), piece, most_pieces)
    return pieces * (size + overhead)


@cute.jit
def find_pieces(
    lengths: cute.Tensor,
    most: Int32,
    part: Int32,
    parts: Int32,
    unit: cutlass.Constexpr,
    overhead: cutlass.Constexpr,
    piece: cutlass.Constexpr,
    most_pieces: cutlass.Constexpr,
    found: cute.Tensor,
    kept: cutlass.Constexpr,
):
    """split_schedule.find_part where requests are cut as `cut_of` says, by `piece` units and `most_pieces`: START and
    END lie where pieces begin. A piece goes to the part in whose even share its middle lies; each costs as much as the
    first of its request, and `overhead` pairs. No share is shorter than a piece: every part up to the last one has a
    middle, so that none is missing among those that join a request. The other arguments are those of find_part."""
    batch = count_requests(lengths)
    given = (lengths, most, part, parts, unit, overhead, piece, most_pieces, found, kept)
    if batch <= 32 * FEW:
        _find_pieces(*given, FEW)
    else:
        _find_pieces(*given, HELD)


@cute.jit
def _find_pieces(
    lengths: cute.Tensor,
    most: Int32,
    part: Int32,
    parts: Int32,
    unit: cutlass.Constexpr,
    overhead: cutlass.Constexpr,
    piece: cutlass.Constexpr,
    most_pieces: cutlass.Constexpr,
    found: cute.Tensor,
    kept: cutlass.Constexpr,
    lane_lengths: cutlass.Constexpr,
):
    overhead = const_expr(overhead * (PAIR // unit))
    lane = cute.arch.lane_idx()
    batch = count_requests(lengths)
    total, longest = Int32(0), Int32(0)
    held = cute.make_rmem_tensor(lane_lengths, Int32)
    for base in cutlass.range(0, batch, 32 * lane_lengths, unroll=1):
        load_lengths(lengths, most, base, lane, held)
        keep_lengths(held, batch, lane, kept)
        for i in cutlass.range_constexpr(lane_lengths):
            pieces, size = cut_of(units_of(held[i], unit), piece, most_pieces)
            if base + 32 * i + lane < batch:
                total = total + pieces * (size + overhead)
                longest = cutlass.max(longest, size + overhead)
    even = ceil_div(cute.arch.warp_redux_sync(total, "add"), parts)
    even = cutlass.max(even, cute.arch.warp_redux_sync(longest, "max"))
    # Of the requests that a lane has looked at: the first that has pieces in this part or behind it, and the first that
    # has some behind it.
    first, first_start, first_lo, first_hi, first_length = Int32(batch), Int32(0), Int32(0), Int32(0), Int32(0)
    last, last_end, last_hi = Int32(batch), Int32(0), Int32(0)
    before = Int32(0)
    for base in cutlass.range(0, batch, 32 * lane_lengths, unroll=1):
        costs, upto, total = sum_costs(
            lengths, most, base, lane, held, lambda length: _cost_of(length, unit, overhead, piece, most_pieces)
        )
        for i in cutlass.range_constexpr(lane_lengths):
            request = base + 32 * i + lane
            _, size = cut_of(units_of(held[i], unit), piece, most_pieces)
            cost = size + overhead
            half = cost // 2
            origin = before + upto[i] - costs[i]
            hi = (origin + costs[i] - half - 1) // even  # the part that has its last piece
            if request < batch:
                if hi >= part and first == batch:
                    first, first_hi, first_length = request, hi, held[i]
                    first_lo = (origin + cost - half - 1) // even
                    first_start = size * (cutlass.max(part * even - origin + half, Int32(0)) // cost)
                if hi > part and last == batch:
                    last, last_hi = request, hi
                    last_end = size * (cutlass.max((part + 1) * even - origin + half, Int32(0)) // cost)
        before = before + total
    the_first = cute.arch.warp_redux_sync(first, "min")
    the_last = cute.arch.warp_redux_sync(last, "min")
    take_nothing(batch, lane, found)
    has_some = the_first < the_last or last_end > first_start  # else no piece's middle is in its share
    if first == the_first and first < batch and has_some:
        found[FIRST] = first
        found[START] = first_start
        found[FIRST_LO] = first_lo
        found[FIRST_HI] = first_hi
        found[LENGTH] = first_length
        found[LAST] = the_last
    cute.arch.sync_warp()
    if last == the_last and last < batch and found[FIRST] < batch:
        found[END] = last_end
        found[LAST_HI] = last_hi
