"""How long a GEMM kernel takes for a shape, by a formula in integers: it ranks kernels and promises no time.

`auto`, `tune` and `explain` rank candidates by it, and a plan with a portfolio picks the kernel of a shape that it sees
for the first time. Everything that it reads is plain data, and `cutegen bundle` translates the functions to C
(build/c_translation.py has the subset of Python that they keep to), so that C makes the same picks:
tests/golden/picks.json holds 10,000 of them.

A persistent kernel runs in waves of as many CTAs as there are SMs. Its SMs take, tile after tile, the slowest of what a
k tile needs: the tensor core, which may rest while sums are promoted, what TMA writes into shared memory, the way of a
stage around the ring. Meanwhile memory delivers. The kernel takes the longer of the two and a part of the other, which
overlap and yet disturb each other. Times are in clocks of the data sheet's rate, whatever the clock is.

Division is integer division of numbers that are not negative: it rounds down. `ceil` is written -(-a // b).

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

from typing import NamedTuple

from cutegen.runtime.device_rates import Rates
from cutegen.runtime.gemm.pieces import half_rows

MMA_ROWS = 64  # of a WGMMA
PARTIAL_BYTES = 4  # of a partial sum
# Indices of what `spend` returns, and what clocks go to.
SPENT = ("launch", "tensor core", "shared memory", "TMA", "ring", "epilogue", "device memory", "L2", "halves of L2",
         "partial sums", "copy of rows")  # fmt: skip


class Constants(NamedTuple):
    """Clocks, bytes a clock and percents of Hopper, fitted to measured times (docs/performance/cost-model.md scores the
    fit); `smem_bytes_per_clock` is the hardware's."""

    smem_bytes_per_clock: int = 128  # of one SM, read and written
    fill_bytes_per_clock: int = 88  # that TMA writes into shared memory
    zero_bytes_per_clock: int = 21  # the same of rows outside of a tensor: TMA is slow at writing their zeros
    edge_percent: int = 27  # of the rows outside of the last tile, that count in a kernel of one wave
    # Of the bytes that clusters read of the same rows, those that L2 has to give: of few readers' all, of many about as
    # much as `readers` read, and this share of all the rest.
    readers: int = 16
    readers_percent: int = 20
    gathered_bytes_per_clock: int = 16  # of rows that threads copy into shared memory, without multicast
    ring_clocks: int = 1800  # from asking for a stage to its data, besides writing them
    ring_mma_percent: int = 166  # of a k tile's MMAs, until a stage is free again
    k_tile_clocks: int = 12  # of barriers
    shared_percent: int = 2  # of the lesser of tensor core and TMA, which add to the greater
    overlap_percent: int = 28  # of the lesser of the SMs' time and memory's, which add to the greater
    long_percent: int = 6  # more of memory's time with a tile side of 192 than with 128, and as much again with 256
    lanes: int = 128  # f32 operations an SM begins in a clock, for the epilogue
    epilogue_trips: int = 8  # times that an epilogue's bytes pass shared memory, with what waiting adds
    narrow_percent: int = 11  # more of an epilogue whose subtiles have 16 columns and not 32, twice as much with 8
    flat_percent: int = 17  # more of the SMs' time in pingpong with tiles of 64 rows
    lone_percent: int = 6  # more of it where one warpgroup has a tile of more than 64 rows
    power_bytes_per_clock: int = 410  # operands from L2 to one SM, for which the tensor core rests a clock
    lent_percent: int = 76  # of the power of SMs without a tile, which the others take
    promotion_clocks: int = 60  # from the end of a part's MMAs to the next ones of its warpgroup, besides adding
    # The same of a part whose rows have scales; a factor of each column of a transposed tile; what is left of both
    # where warpgroups share a tile; and until a stage is free again, as `ring_mma_percent`.
    scaled_clocks: int = 160
    factor_clocks: int = 2
    joint_percent: int = 50
    scaled_ring_percent: int = 100
    start_clocks: int = 3210  # to launch, to fill the first ring and to drain the last store
    early_start_clocks: int = 1690  # the same with programmatic launch, in launches back to back
    load_ahead_clocks: int = 2000  # less where an operand is loaded ahead, times its share of a stage
    copy_clocks: int = 6000  # of the launch that copies gathered rows
    tile_clocks: int = 1660  # between a tile's last MMA and its epilogue
    reduction_clocks: int = 3900  # of a tile whose reductions go on in others
    cluster_clocks: int = 50  # until the CTAs of a cluster have met
    split_clocks: int = 4480  # to hand a partial tile on: a fence, a counter and a poll in L2
    partial_bytes_per_clock: int = 42  # of partial sums, written or read by a CTA
    exchange_clocks: int = 370  # to hand it to CTAs of the cluster
    exchanged_bytes_per_clock: int = 36  # of partial sums, to and from a CTA
    clustered_sms_percent: int = 90  # SMs that clusters of more than two CTAs reach: GPCs hold no whole number of them
    quad_sms_percent: int = 91  # that clusters of four reach: 30 of them, and not 29, run on 132 SMs at once


CONSTANTS = Constants()
# By version. A lock names the version that its portfolio was chosen by, and plans pick by the same one: a version that
# has been released stays as it is.
MODEL = 1
MODELS = {MODEL: CONSTANTS}


class Instance(NamedTuple):
    """The knobs of one kernel that count, see `Candidate` in families/gemm. promote_every: 0 for never. split_k_sum:
    "none", or how the parts of a split k become one sum. gather: "none", or how gathered rows come to the ring."""

    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    stages: int
    consumers: int
    raster_along_m: bool = True
    raster_group: int = 1
    split_k: int = 1
    pingpong: bool = False
    swap_ab: bool = False
    split_k_sum: str = "none"
    promote_every: int = 0
    gather: str = "none"
    pdl_wait: bool = True
    load_ahead_a: bool = False
    load_ahead_b: bool = False


class Form(NamedTuple):
    """What a product takes, whatever its extents. width: bytes of an operand's element. stored, loaded: bytes of tiles
    for each element of the output; flops: of the epilogue, for each as well; paired: accumulators that make one.
    mma_k: elements of k in one MMA. row_scaled: whether each row and block of k has a scale. reduces: whether
    reductions join the results of several tiles. gathered: whether an index names rows. in_pieces: whether of tiles
    past the last row of m only pieces that have rows are loaded. groups: "", "rows" (m are those of all groups) or
    "each" (of each group); expected_rows: of a group, 0 where the spec does not say.

    moved: the tensors, each (bytes of an element, rows of m to one, columns of n, elements of k, how often): 0 where it
    has no such dim; once, for each "batch", or for each "matrix", which are those of groups that have rows.
    """

    width: int
    stored: int
    loaded: int
    flops: int
    paired: int
    mma_k: int
    moved: tuple[tuple[int, int, int, int, str], ...]
    row_scaled: bool = False
    reduces: bool = False
    gathered: bool = False
    in_pieces: bool = False
    groups: str = ""
    expected_rows: int = 0


class Work(NamedTuple):
    """One problem, whatever runs it. m, n, k, batch: with groups, of one matrix as if all that have rows had as many.
    moved: bytes of device memory when every tensor moves once; memory: the clocks that this takes, and no kernel is
    faster. gathered: bytes of rows that an index names."""

    m: int
    n: int
    k: int
    batch: int
    moved: int
    memory: int
    gathered: int


class Spent(NamedTuple):
    """tiles: CTA tiles, padded to whole clusters, times split_k. waves: rounds of `slots` CTAs, of which the last has
    `last`. busy: clocks that the SMs work, whatever memory allows. from_l2: bytes between L2 and one SM. clocks: of all
    of it; parts: by index in SPENT."""

    clocks: int
    from_l2: int
    busy: int
    tiles: int
    slots: int
    waves: int
    last: int
    parts: tuple[tuple[int, int], ...]


def spread_rows(form: Form, m: int, batch: int) -> tuple[int, int]:
    """(rows, matrices) of the groups that have rows, as if all had as many. Of rows that lie together, no more groups
    have any than there are rows."""
    if not form.groups:
        return m, batch
    flat = form.groups == "rows"
    equal = -(-m // max(batch, 1)) if flat else m
    filled = min(batch, m) if flat else batch
    return min(form.expected_rows or equal, m), filled


def count_bytes(form: Form, m: int, n: int, k: int, batch: int) -> int:
    """Of device memory when every tensor moves once."""
    matrices = spread_rows(form, m, batch)[1]
    total = 0
    for size, rows, columns, depth, each in form.moved:
        size *= batch if each == "batch" else matrices if each == "matrix" else 1
        if rows:
            size *= -(-m // rows)
        if columns:
            size *= -(-n // columns)
        if depth:
            size *= -(-k // depth)
        total += size
    return total


def describe_work(form: Form, rates: Rates, m: int, n: int, k: int, batch: int = 1) -> Work:
    rows, matrices = spread_rows(form, m, batch)
    moved = count_bytes(form, m, n, k, batch)
    gathered = m * k * form.width if form.gathered else 0
    return Work(rows, n, k, matrices, moved, moved * rates.clock_hz // rates.hbm_bytes_per_s, gathered)


def count_tiles(i: Instance, work: Work, rates: Rates, c: Constants = CONSTANTS) -> tuple[int, int, int, int]:
    """(grid along m, along n, tiles, CTAs that run at the same time); the grid in the kernel's frame, clusters being
    whole."""
    m, n = (work.n, work.m) if i.swap_ab else (work.m, work.n)
    grid_m = -(-m // (i.tile[0] * i.cluster[0])) * i.cluster[0]
    grid_n = -(-n // (i.tile[1] * i.cluster[1])) * i.cluster[1]
    size = i.cluster[0] * i.cluster[1] * (i.split_k if i.split_k_sum == "ordered_cluster" else 1)
    slots = reach(rates.sms, size, c) or rates.sms  # an illegal cluster is ranked before its rule refuses it
    return grid_m, grid_n, grid_m * grid_n * work.batch * i.split_k, slots


def reach(sms: int, size: int, c: Constants = CONSTANTS) -> int:
    """SMs that clusters of `size` CTAs, each on an SM of its own, take at the same time."""
    percent = 100 if size <= 2 else c.quad_sms_percent if size == 4 else c.clustered_sms_percent
    return sms * percent // 100 // size * size


def spend(i: Instance, form: Form, work: Work, rates: Rates, c: Constants = CONSTANTS) -> Spent:
    """The formula for one kernel and problem."""
    (tile_m, tile_n, tile_k), (cluster_m, cluster_n), split = i.tile, i.cluster, i.split_k
    m, n = (work.n, work.m) if i.swap_ab else (work.m, work.n)
    grid_m, grid_n, tiles, slots = count_tiles(i, work, rates, c)
    full, last = divmod(tiles, slots)
    waves = full + (last > 0)
    # One tile.
    area, row = tile_m * tile_n, tile_k * form.width
    k_tiles = -(-work.k // (tile_k * split))
    inside_m, inside_n = min(tile_m, m), min(tile_n, n)
    fetched = (inside_m // cluster_n + inside_n // cluster_m) * row
    flops, sm_clocks = area * tile_k * form.width, rates.sms * rates.clock_hz
    kept_up = flops * sm_clocks // rates.sustained_flops_16bit + fetched // c.power_bytes_per_clock
    kept_up -= kept_up * (rates.sms - min(tiles, slots)) * c.lent_percent // (100 * rates.sms)
    mma, bound = max(flops * sm_clocks // rates.flops_16bit, kept_up), 1
    # WGMMA reads A once and B once for each 64 rows.
    operands = (tile_m + -(-tile_m // MMA_ROWS) * tile_n) * row // c.smem_bytes_per_clock
    if operands > mma:
        mma, bound = operands, 2
    if i.promote_every:
        mma += _promote_scaled(i, form, c) if form.row_scaled else _promote(i, form, mma, c)
    fill = (inside_m + inside_n) * row
    if form.in_pieces:
        rows, tile, peers = (inside_n, tile_n, cluster_m) if i.swap_ab else (inside_m, tile_m, cluster_n)
        unit = max(1, half_rows(tile, row, peers))  # an illegal cluster is ranked before it is refused
        side, extent, across = (tile_m, m, grid_m) if i.swap_ab else (tile_n, n, grid_n)
        past = side - min(side, extent)
        outside = past + min(-(-rows // unit) * unit, tile) - rows
        outside += (min(side, across * side - extent) - past) * c.edge_percent // (100 * waves) if waves else 0
    else:
        outside = tile_m - inside_m + tile_n - inside_n
    if i.gather == "cp_async":
        gathered = (inside_n if i.swap_ab else inside_m) * row
        fill = (fill - gathered) // c.fill_bytes_per_clock + gathered // c.gathered_bytes_per_clock
    else:
        fill //= c.fill_bytes_per_clock
    fill += outside * row // c.zero_bytes_per_clock
    core = max(mma, fill) + min(mma, fill) * c.shared_percent // 100
    if fill > mma:
        bound = 3
    held = c.scaled_ring_percent if form.row_scaled else c.ring_mma_percent
    ring = (c.ring_clocks + fill + held * mma // 100) // max(i.stages, 1)
    if ring > core:
        core, bound = ring, 4
    core = k_tiles * (core + c.k_tile_clocks)
    made = area // form.paired
    moved = made * (form.stored + form.loaded)
    epilogue = c.tile_clocks + c.epilogue_trips * moved // c.smem_bytes_per_clock + form.flops * made // c.lanes
    if tile_n % 32:
        epilogue += epilogue * c.narrow_percent * (2 if tile_n % 16 else 1) // 100
    if form.reduces:
        epilogue += c.reduction_clocks
    from_l2 = k_tiles * fetched + moved
    # All SMs: a cooperative tile's epilogue follows its mainloop; in pingpong one warpgroup's overlaps the other's
    # mainloop, a tile takes the longer of its mainloop and half of both, and the last epilogue hides behind nothing.
    on_sms = waves * core
    if tile_m == MMA_ROWS:
        on_sms += on_sms * c.flat_percent // 100 if i.pingpong else 0
    elif i.consumers == 1:
        on_sms += on_sms * c.lone_percent // 100
    ends = waves * max(0, epilogue - core) // 2 + epilogue if i.pingpong else waves * epilogue
    busy = on_sms + ends
    memory, kind = _device_memory(i, form, work, rates, c, m, n, grid_m, grid_n, full, slots, last, tiles), 6
    # Clusters that read each row of m, of n. L2 joins reads of a line that come together: more readers cost less.
    readers_m, readers_n = -(-grid_n // cluster_n), -(-grid_m // cluster_m)
    stored = m * n // form.paired * form.stored
    passed = m * readers_m * (1 + c.readers) // (readers_m + c.readers)
    passed += n * readers_n * (1 + c.readers) // (readers_n + c.readers)
    passed += (m * readers_m + n * readers_n) * c.readers_percent // 100
    other = work.batch * (passed * work.k * form.width + stored) // rates.l2_bytes_per_clock
    if other > memory:
        memory, kind = other, 7
    twice = (m * min(readers_m, 2) + n * min(readers_n, 2)) * work.k * form.width
    twice = work.batch * (twice + stored) // rates.halves_bytes_per_clock
    if twice > memory:
        memory, kind = twice, 8
    if busy >= memory:
        memory = memory * c.overlap_percent // 100
    else:
        on_sms, ends = on_sms * c.overlap_percent // 100, ends * c.overlap_percent // 100
    # The parts of a tile end together, so that nothing is left to load or multiply meanwhile.
    join = waves * _join(i, area * PARTIAL_BYTES, c) if split > 1 else 0
    copy = c.copy_clocks + 2 * work.gathered * rates.clock_hz // rates.hbm_bytes_per_s if i.gather == "copy" else 0
    start = _launch(i, c)
    return Spent(
        start + on_sms + ends + memory + join + copy, waves * from_l2, busy + join, tiles, slots, waves, last or slots,
        ((0, start), (bound, on_sms), (5, ends), (kind, memory), (9, join), (10, copy)),
    )  # fmt: skip


def order(s: Spent) -> tuple[int, int, int]:
    """What kernels are compared by: the least is the fastest."""
    return s.clocks, s.from_l2, s.busy


def _promote(i: Instance, form: Form, mma: int, c: Constants) -> int:
    """Clocks of a k tile in which the tensor core rests while sums are promoted: a warpgroup's next MMAs wait for that,
    those of others on the same tile do not. mma: clocks of all MMAs of the k tile."""
    waves, parts = i.tile[0] // MMA_ROWS, max(1, i.tile[2] // (form.mma_k * i.promote_every))
    sharing = 1 if i.pingpong else i.consumers
    add = c.promotion_clocks + MMA_ROWS * i.tile[1] // c.lanes
    return max(0, add - (sharing - 1) * mma // (waves * parts)) * parts * waves // sharing


def _promote_scaled(i: Instance, form: Form, c: Constants) -> int:
    """The same where each row and block of k has a scale: a factor is read and multiplied with each sum before it is
    added, of which MMAs of other warpgroups hide half at most. Columns of a tile that are rows have a factor each."""
    waves, parts = i.tile[0] // MMA_ROWS, max(1, i.tile[2] // (form.mma_k * i.promote_every))
    sharing = 1 if i.pingpong else i.consumers
    add = c.scaled_clocks + MMA_ROWS * i.tile[1] // c.lanes + (c.factor_clocks * i.tile[1] if i.swap_ab else 0)
    return (add if sharing == 1 else add * c.joint_percent // 100) * parts * waves


def _join(i: Instance, partial: int, c: Constants) -> int:
    """Clocks that the CTA which finishes a tile waits, to make one sum of the parts, each having `partial` bytes."""
    if i.split_k_sum == "ordered_cluster":
        return c.exchange_clocks + partial * (i.split_k - 1) // (i.split_k * c.exchanged_bytes_per_clock)
    if i.split_k_sum == "ordered_turnstile":  # one after the other
        return (i.split_k - 1) * (c.split_clocks + 2 * partial // c.partial_bytes_per_clock)
    passed = 3 if i.split_k_sum == "unordered_atomic" else i.split_k
    return c.split_clocks + passed * partial // c.partial_bytes_per_clock


def _launch(i: Instance, c: Constants) -> int:
    """Clocks of the start and the end."""
    start = c.early_start_clocks if i.pdl_wait else c.start_clocks
    m, n = i.tile[0], i.tile[1]
    if i.load_ahead_a:
        start -= c.load_ahead_clocks * (n if i.swap_ab else m) // (m + n)
    if i.load_ahead_b:
        start -= c.load_ahead_clocks * (m if i.swap_ab else n) // (m + n)
    return start + (c.cluster_clocks if i.cluster[0] * i.cluster[1] > 1 else 0)


def _device_memory(
    i: Instance, form: Form, work: Work, rates: Rates, c: Constants, m: int, n: int, grid_m: int, grid_n: int,
    full: int, slots: int, last: int, tiles: int,
) -> int:  # fmt: skip
    """Clocks of device memory. A wave has its share of what moves once, and, of an operand too large to stay in L2, all
    the rows that its tiles touch."""
    fresh = work.moved
    for axis, extent in enumerate((m, n)):
        whole = extent * work.k * form.width
        if whole <= rates.l2_bytes // 2:  # what streams through takes the other half
            continue
        for count, ctas in ((full, slots), (1, last)):
            if count and ctas:
                covered = _cover(i, grid_m, grid_n, -(-ctas // i.split_k))[axis]
                touched = min(covered * i.tile[axis], extent) * work.k * form.width
                fresh += count * max(0, touched - whole * ctas // tiles)
    percent = 100 + c.long_percent * max(0, max(i.tile[0], i.tile[1]) - 128) // 64
    return fresh * rates.clock_hz // rates.hbm_bytes_per_s * percent // 100


def _cover(i: Instance, grid_m: int, grid_n: int, ctas: int) -> tuple[int, int]:
    """Tiles along m and n that a wave covers: a band of the raster, and further bands where one is too short."""
    along, across = (grid_m, grid_n) if i.raster_along_m else (grid_n, grid_m)
    band = min(i.raster_group, along)
    length = -(-ctas // band)
    covered, other = min(band * -(-length // across), along), min(length, across)
    return (covered, other) if i.raster_along_m else (other, covered)
