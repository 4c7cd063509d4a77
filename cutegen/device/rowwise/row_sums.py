"""Reductions over rows: every thread joins what it has of its columns, then the CTAs join their partial results.

A line is a partial result of all columns. The last of FAN CTAs to arrive, whichever it is, joins their lines in the
order of the CTAs, and the last of all groups those of the groups: equal calls on as many SMs, equal bits.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, const_expr

from cutegen.device.reduction import IDENTITY, join
from cutegen.device.rowwise.row_values import WARP, store

LOADS, WIDTH = 8, 4  # of lines, on their way at once, and elements of each


def as_lines(partials: cute.Tensor, columns: Int32, vector: int):
    """(lines, columns) of scratch."""
    pitch = cute.assume(Int64(columns), divby=vector)
    return cute.make_tensor(partials.iterator, cute.make_layout((Int32(1 << 30), columns), stride=(pitch, 1)))


def start(vector: int, vectors: int, op: str):
    """Registers for what a thread has of its columns."""
    values = cute.make_rmem_tensor((vector, vectors), Float32)
    values.fill(IDENTITY[op])
    return values


def add(totals: cute.Tensor, values: cute.Tensor, index: int, op: str):
    """Joins the elements of one row's vector to vector `index`."""
    for j in range(cute.size(values)):
        totals[j, index] = join(op, totals[j, index], values[j])


@cute.jit
def clear(
    line: cute.Tensor,
    thread: Int32,
    threads: cutlass.Constexpr,
    vector: cutlass.Constexpr,
    op: cutlass.Constexpr,
):
    """A line of nothing, by the threads of a row: each its own vectors."""
    for at in cutlass.range(thread, cute.size(line) // vector, threads, unroll=1):
        cute.autovec_copy(start(vector, 1, op)[None, 0], cute.flat_divide(line, (vector,))[None, at])


@cute.jit
def add_to(line: cute.Tensor, values: cute.Tensor, at: Int32, op: cutlass.Constexpr):
    """Joins the elements of one row's vector to vector `at` of a line, which no other thread reads or writes."""
    vector = cute.size(values)
    own = cute.flat_divide(line, (vector,))[None, at]
    total = cute.make_rmem_tensor((vector, 1), Float32)
    cute.autovec_copy(own, total[None, 0])
    add(total, values, 0, op)
    cute.autovec_copy(total[None, 0], own)


@cute.jit
def publish(
    totals: cute.Tensor,
    line: cute.Tensor,
    first: Int32,
    thread: Int32,
    threads: cutlass.Constexpr,
    op: cutlass.Constexpr,
):
    """Writes what a thread has of its columns to a line of its CTA. Rows of a warp are joined before, and the first of
    them is written. thread: of the CTA."""
    vector, vectors = totals.shape
    parts = cute.flat_divide(line, (vector,))
    for i in cutlass.range_constexpr(vectors):
        for j in cutlass.range_constexpr(vector):
            for step in cutlass.range_constexpr(threads.bit_length() - 1, WARP.bit_length() - 1):
                totals[j, i] = join(op, totals[j, i], cute.arch.shuffle_sync_bfly(totals[j, i], 1 << step))
        if thread % WARP < threads and first + i * threads < cute.size(line) // vector:
            cute.autovec_copy(totals[None, i], parts[None, first + i * threads])


@cute.jit
def join_lines(
    lines: cute.Tensor,
    out: cute.Tensor,
    first: Int32,
    step: cutlass.Constexpr,
    count: Int32,
    thread: Int32,
    threads: cutlass.Constexpr,
    vector: cutlass.Constexpr,
    op: cutlass.Constexpr,
):
    """out: `count` lines at first, first + step, ..., joined in this order and rounded to its dtype."""
    width = const_expr(min(vector, WIDTH))
    for at in cutlass.range(thread, cute.size(out) // width, threads, unroll=1):
        total = start(width, 1, op)
        for done in cutlass.range(0, count, LOADS, unroll=1):
            values = cute.make_rmem_tensor((width, LOADS), Float32)
            for i in cutlass.range_constexpr(LOADS):
                line = lines[first + cutlass.min(done + i, count - 1) * step, None]
                cute.autovec_copy(cute.flat_divide(line, (width,))[None, at], values[None, i])
            for i in cutlass.range_constexpr(LOADS):
                for j in cutlass.range_constexpr(width):
                    own = cutlass.select_(done + i < count, values[j, i], Float32(IDENTITY[op]))
                    total[j, 0] = join(op, total[j, 0], own)
        store(total[None, 0], out, at)
