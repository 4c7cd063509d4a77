"""Reductions over the columns of an epilogue's values: all of them, or blocks that a tile holds whole.

Of all columns there is one partial result per row and tile, joined in order of tiles. A thread joins what it holds of a
row, four threads join a row of the tile, and the tile's results go to scratch. The group that finishes the last tile of
a row of tiles, whichever it is, joins them by tile: equal inputs, equal bits.
"""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

IDENTITY = {"sum": 0.0, "max": -math.inf, "max_abs": 0.0}


def join(op: str, x, y):
    """NaN stays NaN. Values of `max_abs` are absolute already."""
    return x + y if op == "sum" else cute.arch.fmax(x, y, nan=True)


def start(count: int, op: str):
    """Registers for `count` rows of a thread."""
    values = cute.make_rmem_tensor(count, Float32)
    for i in range(count):
        values[i] = Float32(IDENTITY[op])
    return values


def add(values, index: int, value, inside, op: str):
    """Joins a value to row `index`, unless its column lies outside of the output."""
    values[index] = join(op, values[index], cutlass.select_(inside, Float32(value), Float32(IDENTITY[op])))


def join_row(op: str, value):
    """What the four threads of a row hold, joined; they are neighbours."""
    for distance in (1, 2):
        value = join(op, value, cute.arch.shuffle_sync_bfly(value, distance))
    return value


@cute.jit
def store_blocks(
    values: cute.Tensor,
    out: cute.Tensor,
    origin: Int32,
    block: Int32,
    thread: Int32,
    row: Int32,
    epilogue_m: cutlass.Constexpr,
):
    """out[row of the output, block]: one value for each row of the tile, as they are held in `publish_rows`."""
    for i in cutlass.range_constexpr(cute.size(values)):
        at = origin + i // 2 * epilogue_m + i % 2 * 8 + row
        if thread % 4 == 0 and at < out.shape[0] and block < out.shape[1]:
            out[at, block] = values[i]


@cute.jit
def publish_rows(
    values: cute.Tensor,
    partials: cute.Tensor,
    line: Int32,
    origin: Int32,
    rows: Int32,
    thread: Int32,
    row: Int32,
    op: cutlass.Constexpr,
    epilogue_m: cutlass.Constexpr,
):
    """Writes the tile's result of each row to partials[line + row of the output].

    values: two rows (8 apart) of each subtile along m. origin: first row of the tile. row: the thread's, in a subtile.
    """
    for i in cutlass.range_constexpr(cute.size(values)):
        value = join_row(op, values[i])
        at = origin + i // 2 * epilogue_m + i % 2 * 8 + row
        if thread % 4 == 0 and at < rows:
            partials[line + at] = value


@cute.jit
def arrive(
    arrivals: cute.Tensor,
    index: Int32,
    expected: Int32,
    ticket: cute.Tensor,
    thread: Int32,
    barrier: Int32,
    threads: cutlass.Constexpr,
):
    """Whether this tile is the last of `expected` ones that counter `index` waits for, for all threads of the group.

    The counter is zero again then. What the others have published can be read (PTX ISA, causality order: barrier,
    release, acquire, barrier). ticket: shared memory of the group.
    """
    cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
    if thread == 0:
        before = cute.arch.atomic_add(arrivals.iterator + index, Int32(1), sem="acq_rel", scope="gpu")
        if before == expected - 1:
            arrivals[index] = Int32(0)
        ticket[0] = before
    cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
    return ticket[0] == expected - 1


@cute.jit
def join_rows(
    partials: cute.Tensor,
    out: cute.Tensor,
    first: Int32,
    tiles: Int32,
    origin: Int32,
    extent: cutlass.Constexpr,
    rows: Int32,
    thread: Int32,
    threads: cutlass.Constexpr,
    op: cutlass.Constexpr,
):
    """out[origin : origin + extent]: the results of `tiles` tiles, at first + tile * rows + row, in their order."""
    for i in cutlass.range(thread, extent, threads, unroll=1):
        if origin + i < rows:
            total = Float32(IDENTITY[op])
            for tile in cutlass.range(tiles, unroll=1):
                total = join(op, total, partials[first + tile * rows + origin + i])
            out[origin + i] = total
