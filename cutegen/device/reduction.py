"""Reductions of an epilogue's values: over all columns, all rows or both, or over blocks of columns in a tile.

Of what more than one tile has there is one partial result per tile, in scratch. The group that finishes the last of
the tiles, whichever it is, joins them in their order: equal inputs, equal bits. Within a tile, a thread joins what it
holds; then the four threads of a row or the eight of a column do, and for columns the warps of the tile.
"""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

IDENTITY = {"sum": 0.0, "max": -math.inf, "max_abs": 0.0}
LOADS = 16  # partial results of a thread that are on their way at once: a trip to L2 takes longer than 16 loads


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
def store_value(value: Float32, out: cute.Tensor, row: Int32, column: Int32):
    """out[row, column], if there is such an element."""
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = value


@cute.jit
def publish_row(value: Float32, partials: cute.Tensor, line: Int32, row: Int32, rows: Int32):
    """As `publish_rows`, where a thread holds all columns of one row of the tile."""
    if row < rows:
        partials[line + row] = value


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


def clear(values, op: str):
    """Registers of `start`, as they were."""
    values.fill(IDENTITY[op])


def join_lanes(op: str, values, lane, distances=(16, 8, 4)):
    """What the lanes of a column, the eight at multiples of 4, hold of a thread's columns, joined: (result, index of
    its column, lanes that have it as well). As long as they hold more than one, lanes halve what they hold with each
    exchange."""
    count, index, spare = cute.size(values), Int32(0), 0
    for distance in distances:
        if count == 1:
            values[0] = join(op, values[0], cute.arch.shuffle_sync_bfly(values[0], distance))
            spare |= distance
            continue
        count //= 2
        upper = (lane & distance) != 0
        for i in range(count):
            mine = cutlass.select_(upper, values[count + i], values[i])
            theirs = cutlass.select_(upper, values[i], values[count + i])
            values[i] = join(op, mine, cute.arch.shuffle_sync_bfly(theirs, distance))
        index = index + cutlass.select_(upper, Int32(count), Int32(0))
    return values[0], index, spare


@cute.jit
def stage_columns(
    values: cute.Tensor,
    smem: cute.Tensor,
    first: cutlass.Constexpr,
    line: Int32,
    thread: Int32,
    op: cutlass.Constexpr,
):
    """Writes this warp's result of each column of a subtile to smem[first + column, line].

    values: a thread's columns of the subtile (`fragment_offset`), joined over its rows.
    """
    lane = thread % 32
    value, index, spare = join_lanes(op, values, lane)
    if (lane & spare) == 0:
        smem[first + index // 2 * 8 + lane % 4 * 2 + index % 2, line] = value


@cute.jit
def stage_rows_of_lanes(
    values: cute.Tensor,
    smem: cute.Tensor,
    first: cutlass.Constexpr,
    line: Int32,
    thread: Int32,
    op: cutlass.Constexpr,
):
    """As `stage_columns`, where each lane holds all columns of the subtile, of a row of its own."""
    lane = thread % 32
    value, index, spare = join_lanes(op, values, lane, (16, 8, 4, 2, 1))
    if (lane & spare) == 0:
        smem[first + index, line] = value


def join_slabs(op: str, smem, at, count: int):
    """smem[at] and the count - 1 values behind it along the second mode, joined in order."""
    column, first, *rest = at
    value = smem[(column, first, *rest)]
    for slab in range(1, count):
        value = join(op, value, smem[(column, first + slab, *rest)])
    return value


@cute.jit
def publish_columns(
    smem: cute.Tensor,
    partials: cute.Tensor,
    line: Int32,
    origin: Int32,
    columns: Int32,
    thread: Int32,
    threads: cutlass.Constexpr,
    op: cutlass.Constexpr,
):
    """Writes the tile's result of each column to partials[line + column of the output], its warps joined in order."""
    extent, warps = smem.shape
    for i in cutlass.range(thread, extent, threads, unroll=1):
        if origin + i < columns:
            total = smem[i, 0]
            for warp in cutlass.range_constexpr(1, warps):
                total = join(op, total, smem[i, warp])
            partials[line + origin + i] = total


def join_warp(op: str, value):
    """What the lanes of a warp hold, joined."""
    for distance in (16, 8, 4, 2, 1):
        value = join(op, value, cute.arch.shuffle_sync_bfly(value, distance))
    return value


@cute.jit
def join_group(
    value: Float32,
    smem: cute.Tensor,
    thread: Int32,
    barrier: Int32,
    threads: cutlass.Constexpr,
    op: cutlass.Constexpr,
):
    """What the threads of a group hold, joined; all of them get it. smem: (1, warps)."""
    value = join_warp(op, value)
    if thread % 32 == 0:
        smem[0, thread // 32] = value
    cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
    total = smem[0, 0]
    for warp in cutlass.range_constexpr(1, smem.shape[1]):
        total = join(op, total, smem[0, warp])
    cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
    return total


@cute.jit
def publish_tile(
    values: cute.Tensor,
    smem: cute.Tensor,
    partials: cute.Tensor,
    index: Int32,
    thread: Int32,
    barrier: Int32,
    threads: cutlass.Constexpr,
    op: cutlass.Constexpr,
):
    """Writes the result of the whole tile to partials[index]."""
    total = join_group(values[0], smem, thread, barrier, threads, op)
    if thread == 0:
        partials[index] = total


@cute.jit
def join_line(
    partials: cute.Tensor,
    first: Int32,
    step: Int32,
    count: Int32,
    op: cutlass.Constexpr,
):
    """The `count` partial results at first, first + step, ..., joined in this order."""
    total = Float32(IDENTITY[op])
    for done in cutlass.range(0, count, LOADS, unroll=1):
        values = cute.make_rmem_tensor(LOADS, Float32)
        for i in cutlass.range_constexpr(LOADS):
            values[i] = partials[first + cutlass.min(done + i, count - 1) * step]
        for i in cutlass.range_constexpr(LOADS):
            total = join(op, total, cutlass.select_(done + i < count, values[i], Float32(IDENTITY[op])))
    return total


@cute.jit
def join_tiles(
    partials: cute.Tensor,
    out: cute.Tensor,
    index: Int32,
    first: Int32,
    tiles: Int32,
    smem: cute.Tensor,
    thread: Int32,
    barrier: Int32,
    threads: cutlass.Constexpr,
    op: cutlass.Constexpr,
):
    """out[index]: the results of `tiles` tiles from `first` on, a share of them in order by each thread."""
    share = (tiles - thread + threads - 1) // threads
    total = join_line(partials, first + thread, Int32(threads), share, op)
    total = join_group(total, smem, thread, barrier, threads, op)
    if thread == 0:
        out[index] = total


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
    """out[origin : origin + extent]: the results of `tiles` tiles, at first + tile * rows + row, in their order. Rows
    of the product, or its columns."""
    for i in cutlass.range(thread, extent, threads, unroll=1):
        if origin + i < out.shape[0]:
            out[origin + i] = join_line(partials, first + origin + i, rows, tiles, op)
