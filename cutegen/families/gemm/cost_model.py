"""How long a candidate would take for a shape: integer arithmetic that ranks candidates, no promise of a time.

A persistent kernel runs in waves of as many CTAs as there are SMs. A wave takes as long as the slowest of what its CTAs
need: the tensor core, shared memory, L2 and device memory. Times are in clocks of the data sheet's rate, whatever the
clock is at the power limit. There the tensor core has its sustained rate, less what fetching from L2 costs; SMs that a
single wave leaves idle lend their power to the others, which those of the last of several waves were not seen to do.

Sources of the constants: SMEM_*, L2_*: DeepGEMM's heuristics for sm_90. START_CLOCKS, TILE_CLOCKS: fitted to the
measurements in docs/performance.md, where the model is scored. POWER_*: half of what issue 73 of DeepGEMM shows for
small tiles in fp8, as much as those measurements allow. MEMORY_BYTES_PER_CLOCK_SM, CLUSTER_CLOCKS, SPLIT_CLOCKS,
TRANSPOSED_PERCENT: guesses that decide between near equals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cutegen.epilogue import cost
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import MMA_ROWS
from cutegen.families.gemm.orientation import kernel_shape
from cutegen.families.gemm.problem import GemmProblem
from cutegen.hardware import Device

SMEM_BYTES_PER_CLOCK = 128  # of one SM, read and written
L2_BYTES_PER_CLOCK_SM = 64  # what one SM can take
L2_BYTES_PER_CLOCK = 6150  # what L2 gives to all SMs together (8 MB in 1300 clocks)
# What one SM gets out of device memory: half of what it can take from L2. Little's law asks for 4.3 TB/s x 1 us in
# flight; a ring holds 150 KB or more, so that not its depth but the number of SMs at work is what limits.
MEMORY_BYTES_PER_CLOCK_SM = 32
LANES = 128  # f32 operations an SM begins in a clock, for the epilogue
POWER_BYTES_PER_CLOCK = 640  # operands from L2 to one SM, for which the tensor core rests a clock at the power limit
START_CLOCKS = 5000  # to launch, to fill the first ring and to drain the last store: 2.7 us
TILE_CLOCKS = 100  # between a tile's last MMA and its epilogue
CLUSTER_CLOCKS = 200  # until the CTAs of a cluster have met
SPLIT_CLOCKS = 3000  # to hand a partial tile on: a fence, a counter and a poll in L2; an estimate, never measured
TRANSPOSED_PERCENT = 2  # that a transposed kernel's SM is slower: it has to be ahead by that much
ACCUMULATOR_BYTES = 4  # of a partial sum


class Shape(NamedTuple):
    m: int
    n: int
    k: int
    batch: int = 1

    def __str__(self) -> str:
        batch = f", batch={self.batch}" if self.batch > 1 else ""
        return f"m={self.m}, n={self.n}, k={self.k}{batch}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """tiles: CTA tiles, padded to whole clusters, times split_k. waves: rounds of `slots` CTAs, of which the last has
    `last`. busy: clocks that the SMs work, whatever memory allows. from_l2: bytes between L2 and one SM.

    clocks: of all of it; spent: by what they go to, "launch", "tensor core", "shared memory", "epilogue", "L2", "device
    memory", "partial sums"; bound: what most of them go to.
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


class _Grid(NamedTuple):
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
    """(FLOPs, bytes of device memory when every tensor moves once)."""
    extra = cost(problem.epilogue)
    moved = (shape.batch if problem.a.batched else 1) * shape.m * shape.k * problem.a.dtype.bytes
    moved += (shape.batch if problem.b.batched else 1) * shape.n * shape.k * problem.b.dtype.bytes
    for scale, rows in ((problem.a_scale, shape.m), (problem.b_scale, shape.n)):
        if scale:
            count = shape.batch if scale.batched else 1
            moved += count * -(-rows // scale.rows) * -(-shape.k // scale.depth) * scale.dtype.bytes
    moved += sum(t.total(shape.m, shape.n, shape.batch) for t in (*extra.reads, *extra.writes))
    products = 1 if problem.groups and problem.groups.flat else shape.batch
    flops = 2 * shape.k * shape.m * shape.n * products + extra.total_flops(shape.m, shape.n, products)
    return flops, moved


def spread_rows(problem: GemmProblem, shape: Shape) -> Shape:
    """The shape with m as the rows of one batch index: with groups, of each group, as if all had as many."""
    groups = problem.groups
    if groups is None:
        return shape
    equal = -(-shape.m // shape.batch) if groups.flat else shape.m
    return shape._replace(m=min(groups.expected_rows or equal, shape.m))


class Work(NamedTuple):
    """What a shape takes, whatever runs it. width: bytes of an operand's element. stored, loaded: bytes of tiles for
    each element of the output; flops: of the epilogue, for each as well; paired: accumulators that make one. moved:
    bytes of device memory when every tensor moves once; memory: the clocks that this takes, and no candidate is
    faster."""

    shape: Shape
    width: int
    stored: int
    loaded: int
    flops: int
    paired: int
    moved: int
    memory: int


def describe_work(problem: GemmProblem, shape: Shape, device: Device) -> Work:
    program, extra = problem.kernel_epilogue, cost(problem.epilogue)
    _, moved = traffic(problem, shape)
    return Work(
        spread_rows(problem, shape),
        problem.a.dtype.bytes,
        sum(o.dtype.bytes for o in program.outputs),
        sum(o.dtype.bytes for o in program.operands if o.kind == "tile"),
        extra.flops,
        2 if extra.paired else 1,
        moved,
        moved * device.clock_hz // device.sustained_bytes_per_s,
    )


def estimate(c: Candidate, work: Work, device: Device) -> Estimate:
    """The model for one candidate: schedule, tile, cluster, raster, split_k, swap_ab; every other knob is taken to be
    well chosen."""
    shape = kernel_shape(work.shape, c)
    grid = _Grid(*(-(-extent // (t * cl)) * cl for extent, t, cl in zip(shape[:2], c.tile, c.cluster)))
    size = c.cluster[0] * c.cluster[1]
    slots = device.sms // size * size or device.sms  # an illegal cluster is ranked before its rule refuses it
    tiles = grid.m * grid.n * shape.batch * c.split_k
    full, last = divmod(tiles, slots)
    start = START_CLOCKS + (CLUSTER_CLOCKS if size > 1 else 0)
    tile = _tile_costs(c, work, shape, min(tiles, device.sms), device)
    on_sm, on_sm_bound = _on_sm(c, tile)
    if c.swap_ab:
        on_sm += on_sm * TRANSPOSED_PERCENT // 100
    spent = {"launch": start}
    for count, ctas in ((full, slots), (1, last)):
        if count and ctas:
            clocks, bound = max(
                (on_sm, on_sm_bound),
                (ctas * tile.from_l2 // min(L2_BYTES_PER_CLOCK_SM * ctas, L2_BYTES_PER_CLOCK), "L2"),
                (_fresh_clocks(c, work, shape, grid, ctas, tiles, device), "device memory"),
            )
            spent[bound] = spent.get(bound, 0) + count * clocks
    if c.schedule == "pingpong":  # the last epilogue has no tile to hide behind
        spent["epilogue"] = spent.get("epilogue", 0) + tile.epilogue
    waves = full + bool(last)
    if tile.join:  # the parts of a tile end together, so that nothing is left to load or multiply meanwhile
        spent["partial sums"] = waves * tile.join
    if start + work.memory > sum(spent.values()):
        spent = {"launch": start, "device memory": work.memory}
    bound = max(spent, key=lambda name: spent[name])
    busy, from_l2 = waves * (on_sm + tile.join), waves * tile.from_l2
    return Estimate(tiles, slots, waves, last or slots, busy, from_l2, sum(spent.values()), bound, spent)


def _tile_costs(c: Candidate, work: Work, shape: Shape, active: int, device: Device) -> _Tile:
    """shape: in the kernel's frame. active: SMs that share the power."""
    (tile_m, tile_n, tile_k), (cluster_m, cluster_n) = c.tile, c.cluster
    area = tile_m * tile_n
    depth = -(-shape.k // (tile_k * c.split_k)) * tile_k
    row = depth * work.width
    # What TMA fetches ends where the tensor does.
    fetched = (min(tile_m, shape.m) // cluster_n + min(tile_n, shape.n) // cluster_m) * row
    # Operands of 8 bits are multiplied at twice the rate.
    flops, sm_clocks = 2 * area * depth * work.width // 2, device.sms * device.clock_hz
    at_power_limit = flops * sm_clocks // device.sustained_flops_16bit + fetched // POWER_BYTES_PER_CLOCK
    tensor = max(flops * sm_clocks // device.flops_16bit, at_power_limit * active // device.sms)
    # WGMMA reads A once and B once for each 64 rows; TMA writes both once, zeros for what is outside of a tensor.
    smem = (2 * tile_m + (-(-tile_m // MMA_ROWS) + 1) * tile_n) * row // SMEM_BYTES_PER_CLOCK
    made = area // work.paired
    moved = made * (work.stored + work.loaded)
    epilogue = TILE_CLOCKS + 2 * moved // SMEM_BYTES_PER_CLOCK + work.flops * made // LANES
    join, partials = _sum_costs(c, area * ACCUMULATOR_BYTES)
    bound = "tensor core" if tensor >= smem else "shared memory"
    return _Tile(max(tensor, smem), bound, epilogue, join, fetched + moved + partials)


def _sum_costs(c: Candidate, partial: int) -> tuple[int, int]:
    """(clocks, bytes through L2) that the CTA which finishes a tile waits for and moves, to make one sum of the parts,
    each having `partial` bytes."""
    if c.split_k == 1:
        return 0, 0
    if c.split_k_sum == "ordered_turnstile":  # one after the other
        return (c.split_k - 1) * (SPLIT_CLOCKS + 2 * partial // L2_BYTES_PER_CLOCK_SM), 0
    return SPLIT_CLOCKS, partial * (3 if c.split_k_sum == "unordered_atomic" else c.split_k)


def _on_sm(c: Candidate, tile: _Tile) -> tuple[int, str]:
    """Clocks of one tile on its SM, and what bounds them. A cooperative tile's epilogue follows its mainloop; in
    pingpong one warpgroup's epilogue runs beside the other's mainloop, and a tile takes the longer of its mainloop and
    half of both."""
    both = tile.core + tile.epilogue
    if c.schedule == "cooperative":
        return both, tile.core_bound if tile.core >= tile.epilogue else "epilogue"
    return max((tile.core, tile.core_bound), ((both + 1) // 2, "epilogue"))


def _fresh_clocks(c: Candidate, work: Work, shape: Shape, grid: _Grid, ctas: int, tiles: int, device: Device) -> int:
    """Clocks of device memory in a wave of `ctas` CTAs: their share of what moves once, and, of an operand too large to
    stay in L2, all the rows that their tiles touch."""
    fresh = work.moved * ctas // tiles
    region: tuple[int, int] | None = None
    for axis, extent in enumerate(shape[:2]):
        whole = extent * shape.k * work.width
        if whole > device.l2_bytes // 2:  # what streams through takes the other half
            region = region or _region(c, grid, -(-ctas // c.split_k))
            touched = min(region[axis] * c.tile[axis], extent) * shape.k * work.width
            fresh += max(0, touched - whole * ctas // tiles)
    all_sms = fresh * device.clock_hz // device.sustained_bytes_per_s
    return max(all_sms, fresh // (MEMORY_BYTES_PER_CLOCK_SM * ctas))


def _region(c: Candidate, grid: _Grid, ctas: int) -> tuple[int, int]:
    """Tiles along m and n that a wave covers: a band of the raster, and further bands where one is too short."""
    along, across = (grid.m, grid.n) if c.raster_order == "along_m" else (grid.n, grid.m)
    band = min(c.raster_group, along)
    length = -(-ctas // band)
    covered = min(band * -(-length // across), along), min(length, across)
    return covered if c.raster_order == "along_m" else (covered[1], covered[0])
