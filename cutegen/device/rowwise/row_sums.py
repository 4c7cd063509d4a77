"""Reductions over rows: every thread joins what it has of its columns, then the CTAs join their partial results.

A line is a partial result of all columns. When all lines are written, each CTA joins a share of the columns, over all
lines in an order that depends on their number alone: equal calls on as many SMs, equal bits. The CTA of a launch with
few rows stores what it has.

A CTA waits for the others only where all of them have started, so that each has an SM and will publish its lines. One
that finds others not started, because other kernels hold SMs, leaves when it has published; then the last to publish
joins all columns. The last to start finds that all have.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, const_expr

from cutegen.device.reduction import IDENTITY, join
from cutegen.device.rowwise.row_values import JOINED, store
from cutegen.runtime.rowwise.plan import ALONE, COUNTERS, PIECE_LOADS, PIECE_WIDTH, WARP

# Counters of CTAs that have started, that have published, and that wait no more.
STARTED, PUBLISHED, OUT = range(COUNTERS)
LEFT = 16  # shift of those that have published and do not wait, in the word of those that have published
NONE, SHARE, ALL = range(3)  # columns that a CTA joins
LOOKS = 32  # times that a CTA looks whether others have started: round trips to L2 of some 0.65 us
LOADS = 16  # of lines that a thread has on their way at once


def count_ctas(rows, at_once: int, most):
    """As `row_ctas` of the plan says."""
    return Int32(cutlass.select_(rows <= ALONE * at_once, Int32(1), cutlass.min(cute.ceil_div(rows, at_once), most)))


def are_several(ctas, own_lines: int):
    """Whether there are more lines than one, each CTA having so many."""
    return ctas > 1 if own_lines == 1 else True


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
def store_totals(totals: cute.Tensor, out: cute.Tensor, first: Int32, threads: cutlass.Constexpr):
    """What a thread has of its columns, rounded to the dtype of the result, as no other CTA has more."""
    vector, vectors = totals.shape
    for i in cutlass.range_constexpr(vectors):
        if first + i * threads < cute.size(out) // vector:
            store(totals[None, i], out, first + i * threads)


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
def enter(counters: cute.Tensor, thread: Int32):
    """Counts this CTA as started. thread: of the CTA."""
    if thread == 0:
        cute.arch.atomic_add(counters.iterator + STARTED, Int32(1), sem="relaxed", scope="gpu")


@cute.jit
def look(counters: cute.Tensor, thread: Int32) -> Int32:
    """CTAs that have started so far, for the CTA's first thread."""
    started = Int32(0)
    if thread == 0:
        started = cute.arch.load(counters.iterator + STARTED, Int32, sem="relaxed", scope="gpu")
    return started


@cute.jit
def meet(
    counters: cute.Tensor,
    ctas: Int32,
    started: Int32,
    ticket: cute.Tensor,
    thread: Int32,
    threads: cutlass.Constexpr,
) -> Int32:
    """Publishes the lines of this CTA. Returns what it joins: NONE, a SHARE, or ALL columns; lines of all CTAs can be
    read then (PTX ISA, causality order: barrier, release, acquire, barrier). started: CTAs that have, as far as it
    knows. ticket: (2) of shared memory."""
    waits = Int32(0)
    if thread == 0:
        looks = Int32(0)
        while looks < LOOKS and started < ctas:
            started = cute.arch.load(counters.iterator + STARTED, Int32, sem="relaxed", scope="gpu")
            looks = looks + 1
        waits = Int32(1) if started == ctas else Int32(0)
    cute.arch.barrier(barrier_id=JOINED, number_of_threads=threads)
    if thread == 0:
        own = Int32(1) + ((Int32(1) - waits) << LEFT)
        seen = cute.arch.atomic_add(counters.iterator + PUBLISHED, own, sem="acq_rel", scope="gpu") + own
        completes = _published(seen) == ctas
        if waits == 1:
            while _published(seen) < ctas:
                seen = cute.arch.load(counters.iterator + PUBLISHED, Int32, sem="acquire", scope="gpu")
        left = seen >> LEFT
        joins = Int32(ALL) if completes else Int32(NONE)
        ticket[0] = Int32(SHARE) if left == 0 else joins
        ticket[1] = (ctas - left) * waits
    cute.arch.barrier(barrier_id=JOINED, number_of_threads=threads)
    return ticket[0]


@cute.jit
def leave(counters: cute.Tensor, ticket: cute.Tensor, thread: Int32, threads: cutlass.Constexpr):
    """Counts this CTA out if it has waited; the last one clears the counters for the next launch. The warp that does so
    is the one that joins least."""
    if thread == threads - WARP and ticket[1] > 0:
        before = cute.arch.atomic_add(counters.iterator + OUT, Int32(1), sem="acq_rel", scope="gpu")
        if before == ticket[1] - 1:
            for i in cutlass.range_constexpr(COUNTERS):
                counters[i] = Int32(0)


def _published(word):
    return word & ((1 << LEFT) - 1)


@cute.jit
def join_lines(
    lines: cute.Tensor,
    out: cute.Tensor,
    parts: cute.Tensor,
    number: cutlass.Constexpr,
    sums: cutlass.Constexpr,
    count: Int32,
    share: Int32,
    shares: Int32,
    ctas: Int32,
    thread: Int32,
    threads: cutlass.Constexpr,
    vector: cutlass.Constexpr,
    op: cutlass.Constexpr,
):
    """out: reduction `number` of `sums`, share `share` of `shares` of its columns: `count` lines joined and rounded to
    its dtype. Pieces are of as many loads of a line as leave one to each warp, and where these are few, a team of warps
    takes a piece; neighbours go to different shares, and reductions begin where the one before ends. The order of a
    piece depends on count, ctas, columns and threads: not on who joins it. parts: (warps, piece_of(vector)) of shared
    memory."""
    width, warps = const_expr(min(vector, PIECE_WIDTH)), const_expr(threads // WARP)
    loads, team = Int32(PIECE_LOADS), Int32(1)
    while loads < WARP and loads * width * ctas * warps < sums * cute.size(out):
        loads = 2 * loads
    ways, pieces = WARP // loads, cute.ceil_div(cute.size(out), loads * width)
    if loads == PIECE_LOADS:
        while ways * LOADS * team < count and 2 * team <= warps and 2 * team * pieces * sums <= ctas * warps:
            team = 2 * team
    warp, lane = thread // WARP, thread % WARP
    teams = (warps // team) * shares
    begin = (warp // team) * shares + share - number * pieces % teams
    if begin < 0:
        begin = begin + teams
    if warp // team >= warps // team:  # of no team
        begin = pieces
    first, stores = warp % team * ways + lane // loads, lane < loads and warp % team == 0
    for piece in cutlass.range(0, pieces, teams, unroll=1):
        at = (begin + piece) * loads + lane % loads
        end = count if at < cute.size(out) // width else Int32(0)
        total = start(width, 1, op)
        for done in cutlass.range(first, end, team * ways * LOADS, unroll=1):
            values = start(width, LOADS, op)
            for i in cutlass.range_constexpr(LOADS):
                line = done + i * team * ways
                if line < end:
                    own = cute.flat_divide(lines[line * sums + number, None], (width,))[None, at]
                    cute.autovec_copy(own, values[None, i])
            for i in cutlass.range_constexpr(LOADS):
                add(total, values[None, i], 0, op)
        for j in cutlass.range_constexpr(width):
            for step in cutlass.range_constexpr(PIECE_LOADS.bit_length() - 1, WARP.bit_length() - 1):
                both = join(op, total[j, 0], cute.arch.shuffle_sync_bfly(total[j, 0], 1 << step))
                total[j, 0] = cutlass.select_(loads <= 1 << step, both, total[j, 0])
        if team > 1:
            if lane < PIECE_LOADS:
                for j in cutlass.range_constexpr(width):
                    parts[warp, lane * width + j] = total[j, 0]
            cute.arch.barrier(barrier_id=JOINED, number_of_threads=threads)
            if stores and end > 0:
                for other in cutlass.range(1, team, unroll=1):
                    for j in cutlass.range_constexpr(width):
                        total[j, 0] = join(op, total[j, 0], parts[warp + other, lane * width + j])
            cute.arch.barrier(barrier_id=JOINED, number_of_threads=threads)
        if stores and end > 0:
            store(total[None, 0], out, at)
