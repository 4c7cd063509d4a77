"""How long a candidate would take for a shape: integer arithmetic that ranks candidates, no promise of a time.

A persistent kernel runs in waves of as many CTAs as there are SMs. Its SMs take, tile after tile, the slowest of what a
k tile needs: the tensor core, which may rest while sums are promoted, what TMA writes into shared memory, the way of a
stage around the ring. Meanwhile memory delivers. The kernel takes the longer of the two and a part of the other, which
overlap and yet disturb each other.

Times are in clocks of the data sheet's rate, whatever the clock is. The tensor core has the rate that it keeps up
among other work, less what fetching from L2 costs; SMs that a single wave leaves idle lend power to the others.

The constants were fitted to times measured on an H200 (docs/performance/cost-model.md scores the model), with these
exceptions. Of the hardware: SMEM_BYTES_PER_CLOCK. By hand: CLUSTERED_SMS_PERCENT, COPY_CLOCKS, EARLY_START_CLOCKS,
EPILOGUE_TRIPS, EXCHANGE_CLOCKS, EXCHANGED_BYTES_PER_CLOCK, GATHERED_BYTES_PER_CLOCK, LANES, LENT_PERCENT,
LOAD_AHEAD_CLOCKS, LONG_PERCENT, PARTIAL_BYTES_PER_CLOCK, PROMOTION_CLOCKS, REDUCTION_CLOCKS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cutegen.epilogue import cost
from cutegen.families.gemm.candidate import BY_THREADS, COPIED, NEVER, Candidate, Core, cluster_size
from cutegen.families.gemm.derived import PARTIAL_BYTES
from cutegen.families.gemm.mma import MMA_ROWS
from cutegen.families.gemm.orientation import kernel_shape
from cutegen.families.gemm.problem import GemmProblem
from cutegen.hardware import ARCHS, Device
from cutegen.runtime.pieces import half_rows

SMEM_BYTES_PER_CLOCK = 128  # of one SM, read and written
FILL_BYTES_PER_CLOCK = 96  # that TMA writes into shared memory
# The same of rows outside of a tensor: TMA is slow at writing their zeros.
ZERO_BYTES_PER_CLOCK = 21
GATHERED_BYTES_PER_CLOCK = 16  # of rows that threads copy into shared memory, without multicast
RING_CLOCKS = 600  # from asking for a stage to its data, besides writing them
RING_MMAS = 3  # k tiles that the tensor core works on before a stage is free: its own, the one before, a hand-over
K_TILE_CLOCKS = 10  # of barriers
SHARED_PERCENT = 10  # of the lesser of tensor core and TMA, which add to the greater: both use shared memory
L2_BYTES_PER_CLOCK = 10_000  # what L2 gives to all SMs together
# L2 has two halves, and a line that SMs of both read goes from one to the other: an operand that several CTAs read each
# for itself passes twice. A cluster's multicast reads it once.
HALVES_BYTES_PER_CLOCK = 4_000
OVERLAP_PERCENT = 30  # of the lesser of the SMs' time and memory's, which add to the greater
LONG_PERCENT = 4  # more of memory's time with a tile of 192 rows or columns than with 128, and as much again with 256
LANES = 128  # f32 operations an SM begins in a clock, for the epilogue
EPILOGUE_TRIPS = 3  # times that an epilogue's bytes pass shared memory, with what waiting adds
POWER_BYTES_PER_CLOCK = 1280  # operands from L2 to one SM, for which the tensor core rests a clock
LENT_PERCENT = 50  # of the power of SMs without a tile, which the others take
PROMOTION_CLOCKS = 60  # from the end of a part's MMAs to the next ones of its warpgroup, besides adding the part
START_CLOCKS = 6300  # to launch, to fill the first ring and to drain the last store: 3.4 us
EARLY_START_CLOCKS = 4800  # the same with PDL, in launches back to back
# Less where an operand is loaded while the kernel before ends, times its share of a stage: with up to 32 rows 1.5 us
# less, with 64 rows 0.6, with 128 and more 0.2 to 0.5 (medians of 266 pairs).
LOAD_AHEAD_CLOCKS = 2000
COPY_CLOCKS = 6000  # of the launch that copies gathered rows
TILE_CLOCKS = 300  # between a tile's last MMA and its epilogue
REDUCTION_CLOCKS = 3900  # of a tile whose reductions go on in others: to publish, count and hear whether it is the last
CLUSTER_CLOCKS = 50  # until the CTAs of a cluster have met
SPLIT_CLOCKS = 3100  # to hand a partial tile on: a fence, a counter and a poll in L2
PARTIAL_BYTES_PER_CLOCK = 35  # of partial sums, written or read by a CTA
EXCHANGE_CLOCKS = 300  # to hand it to CTAs of the cluster
EXCHANGED_BYTES_PER_CLOCK = 32  # of partial sums, to and from a CTA
# SMs that clusters of more than two CTAs reach: GPCs do not hold whole numbers of them (docs/split-k.md has counts).
CLUSTERED_SMS_PERCENT = 90


class Shape(NamedTuple):
    m: int
    n: int
    k: int
    batch: int = 1

    def name(self, problem: GemmProblem) -> str:
        """`m=4096, n=4096, k=4096`, dims called what the spec calls them."""
        dims = (problem.m, problem.n, problem.k, *([problem.batch] if problem.batch else []))
        return ", ".join(f"{dim.name}={extent}" for dim, extent in zip(dims, self))


@dataclass(frozen=True, slots=True)
class Estimate:
    """tiles: CTA tiles, padded to whole clusters, times split_k. waves: rounds of `slots` CTAs, of which the last has
    `last`. busy: clocks that the SMs work, whatever memory allows. from_l2: bytes between L2 and one SM.

    clocks: of all of it; spent: by what they go to: "launch", "tensor core", "shared memory" (operands of the tensor
    core), "TMA", "ring" (too few stages), "epilogue", "L2", "halves of L2", "device memory", "partial sums", "copy of
    rows"; bound: what most of them go to.
    """

    tiles: int
    slots: int
    waves: int
    last: int
    busy: int
    from_l2: int
    clocks: int
    bound: str
    spent: Mapping[str, int]


class Grid(NamedTuple):
    """CTA tiles of the kernel along m and n, clusters being whole."""

    m: int
    n: int


class _Tile(NamedTuple):
    """What one tile takes. core: clocks of the mainloop on its SM, and what they go to. epilogue: clocks, without
    those of joining the parts of a split k, join. from_l2: bytes loaded and stored."""

    core: int
    core_bound: str
    epilogue: int
    join: int
    from_l2: int


def traffic(problem: GemmProblem, shape: Shape) -> tuple[int, int]:
    """(FLOPs, bytes of device memory when every tensor moves once, of the matrices of groups those that have rows)."""
    extra = cost(problem.epilogue)
    matrices = spread_rows(problem, shape).batch
    moved = (matrices if problem.a.batched else 1) * shape.m * shape.k * problem.a.dtype.bytes
    moved += (matrices if problem.b.batched else 1) * shape.n * shape.k * problem.b.dtype.bytes
    for scale, rows in ((problem.a_scale, shape.m), (problem.b_scale, shape.n)):
        if scale:
            count = matrices if scale.batched else 1
            moved += count * -(-rows // scale.rows) * -(-shape.k // scale.depth) * scale.dtype.bytes
    moved += sum(t.total(shape.m, shape.n, shape.batch) for t in (*extra.reads, *extra.writes))
    products = 1 if problem.groups and problem.groups.flat else shape.batch
    flops = 2 * shape.k * shape.m * shape.n * products + extra.total_flops(shape.m, shape.n, products)
    return flops, moved


def spread_rows(problem: GemmProblem, shape: Shape) -> Shape:
    """The shape with m as the rows of one batch index: with groups, of each group, as if all had as many. Of rows that
    lie together, no more groups have any than there are rows."""
    groups = problem.groups
    if groups is None:
        return shape
    equal = -(-shape.m // shape.batch) if groups.flat else shape.m
    filled = min(shape.batch, shape.m) if groups.flat else shape.batch
    return shape._replace(m=min(groups.expected_rows or equal, shape.m), batch=filled)


class Work(NamedTuple):
    """What a shape takes, whatever runs it. width: bytes of an operand's element. stored, loaded: bytes of tiles for
    each element of the output; flops: of the epilogue, for each as well; paired: accumulators that make one. moved:
    bytes of device memory when every tensor moves once; memory: the clocks that this takes, and no candidate is
    faster. mma_k: elements of k in one MMA. row_scaled: whether each row and block of k has a scale. reduces: whether
    reductions join the results of several tiles. gathered: bytes of rows that an index names. in_pieces: whether of
    tiles past the last row of m only pieces that have rows are loaded."""

    shape: Shape
    width: int
    stored: int
    loaded: int
    flops: int
    paired: int
    moved: int
    memory: int
    mma_k: int
    row_scaled: bool
    reduces: bool
    gathered: int
    in_pieces: bool


def describe_work(problem: GemmProblem, shape: Shape, device: Device) -> Work:
    program, extra = problem.kernel_epilogue, cost(problem.epilogue)
    _, moved = traffic(problem, shape)
    return Work(
        spread_rows(problem, shape),
        problem.a.dtype.bytes,
        sum(o.dtype.bytes for o in program.outputs),
        sum(o.dtype.bytes for o in program.tiles),
        extra.flops,
        2 if extra.paired else 1,
        moved,
        moved * device.clock_hz // device.hbm_bytes_per_s,
        ARCHS[device.arch].mma_k(problem.a.dtype),
        problem.row_scale is not None,
        bool(program.reductions),
        shape.m * shape.k * problem.a.dtype.bytes if problem.gather else 0,
        problem.ragged is not None,
    )


def estimate(c: Candidate, work: Work, device: Device) -> Estimate:
    """The model for one candidate: schedule, tile, cluster, stages, raster, split_k, swap_ab; every other knob is taken
    to be well chosen."""
    shape, size = kernel_shape(work.shape, c), cluster_size(c)
    grid, tiles, slots = count_tiles(c, work, device)
    full, last = divmod(tiles, slots)
    waves = full + bool(last)
    tile = _tile_costs(c, work, shape, min(tiles, slots), device)
    sms = _on_sms(c, tile, waves)
    memory, name = max(
        (_device_memory(c, work, shape, grid, [(full, slots), (1, last)], tiles, device), "device memory"),
        (tiles * tile.from_l2 // L2_BYTES_PER_CLOCK, "L2"),
        (_through_halves(c, work, shape, grid) // HALVES_BYTES_PER_CLOCK, "halves of L2"),
    )
    busy = sum(sms.values())
    if busy >= memory:
        memory = memory * OVERLAP_PERCENT // 100
    else:
        sms = {key: clocks * OVERLAP_PERCENT // 100 for key, clocks in sms.items()}
    spent = {"launch": _launch(c, size), **sms, name: memory}
    if tile.join:  # the parts of a tile end together, so that nothing is left to load or multiply meanwhile
        spent["partial sums"] = waves * tile.join
    if c.gather == COPIED:
        spent["copy of rows"] = COPY_CLOCKS + 2 * work.gathered * device.clock_hz // device.hbm_bytes_per_s
    bound = max(spent, key=lambda key: spent[key])
    total, from_l2 = sum(spent.values()), waves * tile.from_l2
    return Estimate(tiles, slots, waves, last or slots, busy + waves * tile.join, from_l2, total, bound, spent)


def count_tiles(c: Candidate | Core, work: Work, device: Device) -> tuple[Grid, int, int]:
    """The grid, all tiles of it (see Estimate), and how many CTAs run at the same time."""
    shape, size = kernel_shape(work.shape, c), cluster_size(c)
    grid = Grid(*(-(-extent // (t * cl)) * cl for extent, t, cl in zip(shape[:2], c.tile, c.cluster)))
    if isinstance(c, Candidate) and c.in_cluster:
        size *= c.split_k
    sms = device.sms if size <= 2 else device.sms * CLUSTERED_SMS_PERCENT // 100
    slots = sms // size * size or sms  # an illegal cluster is ranked before its rule refuses it
    return grid, grid.m * grid.n * shape.batch * c.split_k, slots


def _tile_costs(c: Candidate, work: Work, shape: Shape, active: int, device: Device) -> _Tile:
    """shape: in the kernel's frame. active: SMs that share the power."""
    (tile_m, tile_n, tile_k), (cluster_m, cluster_n) = c.tile, c.cluster
    area, row = tile_m * tile_n, tile_k * work.width
    k_tiles = -(-shape.k // (tile_k * c.split_k))
    inside = min(tile_m, shape.m), min(tile_n, shape.n)
    fetched = (inside[0] // cluster_n + inside[1] // cluster_m) * row
    # Operands of 8 bits are multiplied at twice the rate.
    flops, sm_clocks = area * tile_k * work.width, device.sms * device.clock_hz
    kept_up = flops * sm_clocks // device.sustained_flops_16bit + fetched // POWER_BYTES_PER_CLOCK
    # WGMMA reads A once and B once for each 64 rows.
    operands = (tile_m + -(-tile_m // MMA_ROWS) * tile_n) * row // SMEM_BYTES_PER_CLOCK
    kept_up -= kept_up * (device.sms - active) * LENT_PERCENT // (100 * device.sms)
    mma, bound = max(
        (max(flops * sm_clocks // device.flops_16bit, kept_up), "tensor core"),
        (operands, "shared memory"),
    )
    mma += _promotion(c, work, mma)
    outside = (sum(_loaded_rows(c, work, inside, row)) - sum(inside)) * row
    gathered = inside[1 if c.swap_ab else 0] * row if c.gather == BY_THREADS else 0
    fill = (sum(inside) * row - gathered) // FILL_BYTES_PER_CLOCK + outside // ZERO_BYTES_PER_CLOCK
    fill += gathered // GATHERED_BYTES_PER_CLOCK
    both = max(mma, fill) + min(mma, fill) * SHARED_PERCENT // 100
    ring = (RING_CLOCKS + fill + RING_MMAS * mma) // max(c.stages, 1)
    core, bound = max((both, bound if mma >= fill else "TMA"), (ring, "ring"))
    made = area // work.paired
    moved = made * (work.stored + work.loaded)
    epilogue = TILE_CLOCKS + EPILOGUE_TRIPS * moved // SMEM_BYTES_PER_CLOCK + work.flops * made // LANES
    epilogue += REDUCTION_CLOCKS if work.reduces else 0
    join = _sum_costs(c, area * PARTIAL_BYTES)
    return _Tile(k_tiles * (core + K_TILE_CLOCKS), bound, epilogue, join, k_tiles * fetched + moved)


def _launch(c: Candidate, size: int) -> int:
    """Clocks of the start and the end. size: CTAs of a cluster."""
    start = EARLY_START_CLOCKS if c.pdl_wait else START_CLOCKS
    m, n = c.tile[:2]
    for ahead, rows in ((c.load_ahead_a, n if c.swap_ab else m), (c.load_ahead_b, m if c.swap_ab else n)):
        start -= LOAD_AHEAD_CLOCKS * rows // (m + n) if ahead else 0
    return start + (CLUSTER_CLOCKS if size > 1 else 0)


def _loaded_rows(c: Candidate, work: Work, inside: tuple[int, int], row: int) -> list[int]:
    """Rows of a tile of either operand that TMA writes, those outside of the tensor among them. inside: rows of the
    tensor; row: bytes."""
    loaded = list(c.tile[:2])
    if work.in_pieces:
        m = 1 if c.swap_ab else 0
        unit = max(1, half_rows(loaded[m], row, c.cluster[1 - m]))  # an illegal cluster is ranked before it is refused
        loaded[m] = min(-(-inside[m] // unit) * unit, loaded[m])
    return loaded


def _promotion(c: Candidate, work: Work, mma: int) -> int:
    """Clocks of a k tile in which the tensor core rests while sums are promoted: a warpgroup's next MMAs wait for that,
    those of others on the same tile do not. mma: clocks of all MMAs of the k tile."""
    if c.promote_every == NEVER:
        return 0
    waves, parts = c.tile[0] // MMA_ROWS, max(1, c.tile[2] // (work.mma_k * int(c.promote_every)))
    sharing = c.consumers if c.schedule == "cooperative" else 1
    add = PROMOTION_CLOCKS + MMA_ROWS * c.tile[1] // LANES
    if work.row_scaled and c.swap_ab:
        add *= 2  # rows are columns of the tile: a thread reads and multiplies a factor for each of its own
    return max(0, add - (sharing - 1) * mma // (waves * parts)) * parts * waves // sharing


def _sum_costs(c: Candidate, partial: int) -> int:
    """Clocks that the CTA which finishes a tile waits, to make one sum of the parts, each having `partial` bytes."""
    if c.split_k == 1:
        return 0
    if c.in_cluster:
        return EXCHANGE_CLOCKS + partial * (c.split_k - 1) // (c.split_k * EXCHANGED_BYTES_PER_CLOCK)
    if c.split_k_sum == "ordered_turnstile":  # one after the other
        return (c.split_k - 1) * (SPLIT_CLOCKS + 2 * partial // PARTIAL_BYTES_PER_CLOCK)
    passed = 3 if c.split_k_sum == "unordered_atomic" else c.split_k
    return SPLIT_CLOCKS + passed * partial // PARTIAL_BYTES_PER_CLOCK


def _on_sms(c: Candidate, tile: _Tile, waves: int) -> dict[str, int]:
    """Clocks by what they go to. A cooperative tile's epilogue follows its mainloop; in pingpong one warpgroup's
    epilogue runs beside the other's mainloop, and a tile takes the longer of its mainloop and half of both; the last
    epilogue has no tile to hide behind."""
    if c.schedule == "cooperative":
        return {tile.core_bound: waves * tile.core, "epilogue": waves * tile.epilogue}
    exposed = max(0, tile.epilogue - tile.core) // 2
    return {tile.core_bound: waves * tile.core, "epilogue": waves * exposed + tile.epilogue}


def _through_halves(c: Candidate, work: Work, shape: Shape, grid: Grid) -> int:
    """Bytes that pass L2's halves, of operands that several CTAs read twice."""
    readers = -(-grid.n // c.cluster[1]), -(-grid.m // c.cluster[0])
    operands = sum(x * min(count, 2) for x, count in zip(shape[:2], readers)) * shape.k * work.width
    return shape.batch * (operands + shape.m * shape.n // work.paired * work.stored)


def _device_memory(
    c: Candidate,
    work: Work,
    shape: Shape,
    grid: Grid,
    waves: Sequence[tuple[int, int]],
    tiles: int,
    device: Device,
) -> int:
    """Clocks of device memory. waves: (how many, CTAs of each). A wave has its share of what moves once, and, of an
    operand too large to stay in L2, all the rows that its tiles touch."""
    fresh = work.moved
    region: tuple[int, int] | None = None
    for axis, extent in enumerate(shape[:2]):
        whole = extent * shape.k * work.width
        if whole <= device.l2_bytes // 2:  # what streams through takes the other half
            continue
        for count, ctas in waves:
            if count and ctas:
                region = _region(c, grid, -(-ctas // c.split_k))
                touched = min(region[axis] * c.tile[axis], extent) * shape.k * work.width
                fresh += count * max(0, touched - whole * ctas // tiles)
    percent = 100 + LONG_PERCENT * max(0, max(c.tile[:2]) - 128) // 64
    return fresh * device.clock_hz // device.hbm_bytes_per_s * percent // 100


def _region(c: Candidate, grid: Grid, ctas: int) -> tuple[int, int]:
    """Tiles along m and n that a wave covers: a band of the raster, and further bands where one is too short."""
    along, across = (grid.m, grid.n) if c.raster_order == "along_m" else (grid.n, grid.m)
    band = min(c.raster_group, along)
    length = -(-ctas // band)
    covered = min(band * -(-length // across), along), min(length, across)
    return covered if c.raster_order == "along_m" else (covered[1], covered[0])
