"""The numbers that follow from a problem and a candidate, in exact integers; every other module reads them here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from cutegen.arch.architecture import (
    ACCESS_BYTES,
    BOX_ALIGN,
    TENSOR_ALIGN,
    WARP_THREADS,
    WARPGROUP_THREADS,
    WARPS_PER_WARPGROUP,
    Arch,
)
from cutegen.dtypes import DType
from cutegen.families.gemm.candidate import IN_CLUSTER, Candidate, cluster_size
from cutegen.families.gemm.orientation import block_passes
from cutegen.families.gemm.problem import GemmProblem, RowGroups, once_each
from cutegen.model.smem import F32, I32, MBARRIER, Element, SmemField, SmemRegion, lay_out, place_fields
from cutegen.runtime.pieces import SWIZZLE_ROWS

SLAB_ROWS = 16  # of a warp's accumulators in one wave
INDEX_BYTES = 4  # of an i32
EPILOGUE_COLUMNS = (32, 16, 8)  # of an epilogue tile, the widest first
# Accumulators of a thread beyond which an epilogue that reduces rows, or reduces anything beside tiles of f32, has no
# registers for 32 columns at once: of 70 kernels with reductions and tiles of 128 x 160 and 128 x 192 for one warpgroup
# 14 spilled, up to 260 bytes; with 16 columns 6, up to 44. With three reductions 128 were too many as well.
CROWDED_ACCUMULATORS, CROWDED_BY_THREE = 128, 64
QUEUE_STAGES = 4  # of tile indices: readers may be that many tiles apart
QUEUE_COUNTERS = 2  # the next claim, and the clusters that are done
GATHER_LANES = 8  # threads that copy one row, at most: 128 bytes
GATHER_WARPS = 2  # that copy rows, where as many have nothing else to do


@dataclass(frozen=True, slots=True)
class Derived:
    """epilogue_groups: groups of threads that store on their own.

    subtiles: epilogue tiles of one group per CTA tile. accumulator_registers: per thread. stage_bytes, load_bytes:
    TMA bytes of one slot. empty_arrivals: warps, over all multicast peers, that free one A/B slot. queue_readers: warps
    of a CTA that read each tile index, 0 in a static schedule. covers: (m, n) elements of the product, in the spec's
    frame, of one cluster. partials: f32 elements of partial sums that a cluster tile keeps in global memory.
    """

    epilogue_tile: tuple[int, int]
    epilogue_groups: int
    subtiles: int
    threads: int
    accumulator_registers: int
    stage_bytes: int
    load_bytes: int
    empty_arrivals: int
    queue_readers: int
    covers: tuple[int, int]
    partials: int
    smem: tuple[SmemRegion, ...]
    smem_bytes: int


def warpgroups_per_tile(c: Candidate) -> int:
    """Consumer warpgroups that share one tile; in pingpong each works on a tile of its own."""
    return c.consumers if c.schedule == "cooperative" else 1


def partial_tiles(c: Candidate) -> int:
    """Tiles of partial sums that an output tile keeps in global memory."""
    return {"none": 0, "ordered_parallel": c.split_k - 1, IN_CLUSTER: 0}.get(c.split_k_sum, 1)


def threads(c: Candidate) -> int:
    """Threads of a CTA: the consumers and one producer warpgroup."""
    return WARPGROUP_THREADS * (1 + c.consumers)


def accumulators(problem: GemmProblem, c: Candidate) -> int:
    """Accumulator registers of a consumer thread, those of the part that is being promoted among them."""
    return c.tile[0] * c.tile[1] // (WARPGROUP_THREADS * warpgroups_per_tile(c)) + part_registers(problem, c)


def promoted_k(problem: GemmProblem, c: Candidate, arch: Arch) -> int:
    """Products that the tensor core sums before f32 registers take the sum; 0: all of them."""
    return c.promote_every * arch.mma_k(problem.a.dtype) if isinstance(c.promote_every, int) else 0


def part_registers(problem: GemmProblem, c: Candidate) -> int:
    """Registers of a thread for the sum that the tensor core hands to f32 registers next: one wave of 64 rows, not the
    whole tile, because a warpgroup promotes wave after wave; 0 without promotion."""
    return c.tile[1] * problem.target.mma_m // WARPGROUP_THREADS if c.promotes else 0


def sharing_ctas(c: Candidate, side: str) -> tuple[int, str]:
    """CTAs of a cluster that need the same tile of A ("a") or B ("b"), and the dim that they lie along."""
    return (c.cluster[1], "n") if side == "a" else (c.cluster[0], "m")


def contiguous_extent(problem: GemmProblem, c: Candidate, side: str) -> int:
    """Elements of A ("a") or B ("b") that lie side by side in a tile: of one half, where they are rows that come in
    pairs."""
    rows, columns = output_tile(problem, c)
    operand, extent = (problem.a, rows) if side == "a" else (problem.b, columns)
    return c.tile[2] if operand.major == "k" else extent


def output_tile(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """Rows and columns that a CTA tile has in the epilogue: those of the tile, or pairs of them."""
    rows, columns, _ = c.tile
    paired = problem.paired_dim
    return rows // 2 if paired == "m" else rows, columns // 2 if paired == "n" else columns


def epilogue_tile(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """Elements (m, n) that one group stores at once: 64 rows a warpgroup, and as many columns as divide the tile's."""
    _, columns = output_tile(problem, c)
    widths = epilogue_widths(problem, c)
    return (problem.target.mma_m * warpgroups_per_tile(c), next((w for w in widths if columns % w == 0), 8))


def epilogue_widths(problem: GemmProblem, c: Candidate) -> tuple[int, ...]:
    """Those of EPILOGUE_COLUMNS that leave an epilogue its registers: see CROWDED_ACCUMULATORS."""
    program = problem.kernel_epilogue
    beside_f32 = bool(program.reductions) and any(o.dtype.bytes == 4 for o in program.tiles)
    limit = CROWDED_ACCUMULATORS if len(program.reductions) < 3 else CROWDED_BY_THREE
    crowded = accumulators(problem, c) > limit and (_reduces_rows(problem) or beside_f32)
    return EPILOGUE_COLUMNS[1:] if crowded else EPILOGUE_COLUMNS


def may_spill(problem: GemmProblem, c: Candidate) -> bool:
    """Whether narrow epilogue tiles are no sure remedy: of 16 kernels that had spilled 7 still did, all of them with
    two reductions or more."""
    several = len(problem.kernel_epilogue.reductions) > 1
    return accumulators(problem, c) > CROWDED_ACCUMULATORS and several and _reduces_rows(problem)


@once_each
def _reduces_rows(problem: GemmProblem) -> bool:
    return any(r.kept != "m" for r in problem.kernel_epilogue.reductions)


def subtiles(problem: GemmProblem, c: Candidate) -> int:
    """Epilogue tiles of one group per CTA tile."""
    (rows, columns), (sub_m, sub_n) = output_tile(problem, c), epilogue_tile(problem, c)
    return (rows // sub_m) * (columns // sub_n)


def given_subtiles(problem: GemmProblem, c: Candidate) -> int:
    """Subtiles of sums that other CTAs of the cluster give a CTA, as device/cluster_sum.py has them: two for each of
    the output where pairs of sums make an element."""
    return -(-subtiles(problem, c) // c.split_k) * (c.split_k - 1) * (2 if problem.paired else 1)


def block_values(problem: GemmProblem, c: Candidate) -> int:
    """Values that a thread fetches of inputs with blocks for one subtile, as device/block_input.py does: one or two
    rows, and one for each group of columns that share a value."""
    width, total = epilogue_tile(problem, c)[1], 0
    anywhere = problem.groups.along if problem.groups and problem.groups.form == "offsets" else ""
    for o in problem.kernel_epilogue.operands:
        if o.kind == "block_input":
            rows, columns = o.block
            shared = width if o.missing == "n" else 1 if anywhere == "n" else math.gcd(columns, width)
            one_row = o.missing == "m" or (rows % 16 == 0 and anywhere != "m")
            total += (1 if one_row else 2) * (width // shared if shared > 1 else width // 4)
    return total


def repeated_values(problem: GemmProblem, c: Candidate) -> int:
    """Values that a thread computes in both passes over the columns that are reduced at once: a block, or those of a
    transposed tile. The compiler keeps them from the first pass for the second."""
    if not problem.kernel_epilogue.block:
        return 0
    rows, columns = output_tile(problem, c)
    width = columns if problem.transposed else problem.kernel_epilogue.block
    return block_passes(problem).repeated * rows * width // (WARPGROUP_THREADS * warpgroups_per_tile(c))


def group_table(problem: GemmProblem) -> tuple[int, int]:
    """(entries, columns) of the table of groups: whole warps of entries, and the columns that the form needs."""
    assert problem.groups
    assert problem.batch
    most = problem.batch.value or problem.batch.hi or 0
    return -(-most // WARP_THREADS) * WARP_THREADS, 3 if problem.groups.flat else 1


def group_step(c: Candidate, groups: RowGroups) -> int:
    """Rows of a cluster's tiles."""
    axis = 0 if groups.along == "m" else 1
    return c.tile[axis] * c.cluster[axis]


def gather_warps(problem: GemmProblem, c: Candidate) -> int:
    """Warps of the producer warpgroup that copy gathered rows, the last ones; 0 without a gather."""
    others = 1 + bool(problem.kernel_epilogue.tiles) + c.dynamic
    return min(GATHER_WARPS, WARPS_PER_WARPGROUP - others) if problem.gather else 0


def gather_lanes(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """Threads that copy one row of a tile, and the 16 bytes of it that each of them copies."""
    assert problem.gathered
    chunks = c.tile[2] * problem.gathered.dtype.bytes // ACCESS_BYTES
    lanes = math.gcd(GATHER_LANES, chunks)
    return lanes, chunks // lanes


def gather_step(problem: GemmProblem, c: Candidate) -> int:
    """Rows that the gather warps copy at once."""
    return WARP_THREADS * gather_warps(problem, c) // gather_lanes(problem, c)[0]


def gather_places(problem: GemmProblem, c: Candidate) -> int:
    """Swizzled places in a slot from which all others of a gather thread differ by constants, as device/row_gather.py
    has them."""
    return gather_lanes(problem, c)[1] * max(1, SWIZZLE_ROWS // gather_step(problem, c))


def gathered_rows(problem: GemmProblem, c: Candidate) -> int:
    """Rows of a tile that are gathered."""
    return c.tile["mn".index(problem.gather.along)] if problem.gather else 0


def gathered_bytes(problem: GemmProblem, c: Candidate) -> int:
    """Bytes of one slot that threads copy, scales among them."""
    if problem.gathered is None:
        return 0
    rows = gathered_rows(problem, c) * c.tile[2] * problem.gathered.dtype.bytes
    return rows + (scale_bytes(problem, c) if problem.gathers_row_scale else 0)


def slot_bytes(problem: GemmProblem, c: Candidate) -> int:
    """Bytes of one slot of the ring of A and B, and of its scales."""
    tile_m, tile_n, tile_k = c.tile
    operands = tile_m * problem.a.dtype.bytes + tile_n * problem.b.dtype.bytes
    return operands * tile_k + scale_bytes(problem, c)


def scale_box(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """(rows, blocks of k) that have a scale each in one slot of the ring of A and B; (0, 0) without such a scale."""
    if problem.row_scale is None:
        return 0, 0
    scale, side = problem.row_scale
    return c.tile["mn".index(side)], c.tile[2] // scale.depth


def scale_bytes(problem: GemmProblem, c: Candidate) -> int:
    """Bytes of scales in one slot of the ring of A and B, an f32 each."""
    rows, blocks = scale_box(problem, c)
    return rows * blocks * F32.bytes


def smem_map(problem: GemmProblem, c: Candidate) -> tuple[tuple[SmemRegion, ...], int]:
    """Fields of the kernel's SharedStorage in order, and its size in bytes, as CuTe lays out a struct."""
    return lay_out(_smem_fields(problem, c))


def smem_size(problem: GemmProblem, c: Candidate, stages: int | None = None) -> int:
    """Bytes of the kernel's SharedStorage. stages: of the A/B ring, others than the candidate has."""
    stages = c.stages if stages is None else stages
    sizes, knobs = _smem_sizes(problem), (stages, c.split_k if c.in_cluster else 1, *_smem_knobs(c))
    if (size := sizes.get(knobs)) is None:
        size = sizes[knobs] = place_fields(_smem_fields(problem, c.vary(stages=stages)))[1]
    return size


SMEM_KNOBS = (
    "tile", "schedule", "consumers", "store_stages", "load_stages", "scheduler", "promote_every", "split_k_sum",
)  # fmt: skip
"""What the size depends on, besides `stages`, and `split_k` in a cluster."""
_smem_knobs = attrgetter(*SMEM_KNOBS)


@once_each
def _smem_sizes(problem: GemmProblem) -> dict[tuple[object, ...], int]:
    """Of the candidates that were asked about: many differ in other knobs alone."""
    return {}


def _smem_fields(problem: GemmProblem, c: Candidate) -> list[SmemField]:
    (tile_m, tile_n, tile_k), (sub_m, sub_n) = c.tile, epilogue_tile(problem, c)
    (rows, columns), program = output_tile(problem, c), problem.kernel_epilogue
    rows_source, columns_source = (f"t.tile[{i}]{' // 2' * (problem.paired_dim == dim)}" for i, dim in enumerate("mn"))
    groups = 1 if c.schedule == "cooperative" else c.consumers
    per_group = f" x {groups} groups" if groups > 1 else ""

    def of_groups(name: str, element: Element, extents: Mapping[str, int], holds: str, align: int = 0) -> SmemField:
        """Of which each group of threads that store on their own has one. extents: by their source."""
        factors = [*(x for x in extents if x != "1"), *(["t.consumers"] if groups > 1 else [])] or ["1"]
        source = " * ".join(f"({x})" if "//" in x and len(factors) > 1 else x for x in factors)
        return SmemField(name, element, math.prod(extents.values()) * groups, source, holds + per_group, align)

    fields = [
        SmemField(
            "ab_barriers", MBARRIER, 2 * c.stages, "2 * t.stages", f"full and empty mbarriers of {c.stages} stages"
        )
    ]
    if c.in_cluster:
        fields.append(SmemField("sum_barriers", MBARRIER, 2, "2", "mbarriers of sums: given and taken"))
    if program.tiles:
        holds = f"full and empty mbarriers of {c.load_stages} stages"
        fields.append(SmemField("load_barriers", MBARRIER, 2 * c.load_stages, "2 * t.load_stages", holds))
    if problem.groups:
        entries, facts = group_table(problem)
        holds = f"i32 ({entries}, {facts}), where each group lies"
        fields.append(SmemField("group_table", I32, entries * facts, f"GROUPS * {facts}", holds, ACCESS_BYTES))
    if c.dynamic:
        holds = f"full and empty mbarriers of {QUEUE_STAGES} stages, and one for tiles begun"
        count = 2 * QUEUE_STAGES + 1
        fields.append(SmemField("queue_barriers", MBARRIER, count, "2 * t.queue_stages + 1", holds))
        fields.append(SmemField("queue_indices", I32, QUEUE_STAGES, "t.queue_stages", f"i32 x {QUEUE_STAGES} stages"))
    for o in program.operands:
        if o.kind in ("row_vector", "column_vector"):
            source, extent = (columns_source, columns) if o.kind == "row_vector" else (rows_source, rows)
            fields.append(of_groups(f"s_{o.name}", F32, {source: extent}, f"f32 ({extent},)", ACCESS_BYTES))
    if program.reductions:
        fields.append(of_groups("s_ticket", I32, {}, "i32"))
    warps = WARPS_PER_WARPGROUP * warpgroups_per_tile(c)
    warps_source = f"{WARPS_PER_WARPGROUP}{' * t.consumers' * (groups == 1)}"
    for r in program.reductions:
        if r.kept != "m":
            kept = {columns_source: columns} if r.kept else {"1": 1}
            holds = f"f32 ({columns if r.kept else 1}, {warps} warps)"
            fields.append(of_groups(f"s_{r.name}", F32, {**kept, warps_source: warps}, holds))
    if problem.transposed and program.block:
        passes, whole = block_passes(problem), f"({rows_source})" if "//" in rows_source else rows_source
        shared = [(f"j_{r.name}", SLAB_ROWS, "slabs of 16 rows") for r in passes.reduced]
        for name, each, what in (*shared, *((f"b_{name}", program.block, "blocks") for name in passes.held)):
            extents = {columns_source: columns, f"{whole} // {each}": rows // each}
            fields.append(of_groups(name, F32, extents, f"f32 ({columns}, {rows // each} {what})"))
    if problem.row_scale:
        fields.append(_scale_field(problem, c, f"s_{problem.row_scale[0].name}"))

    def ring(name: str, dtype: DType, extents: tuple[int, int], stages: int, groups: int = 1) -> SmemField:
        holds = f"{dtype} {extents} x {stages} stages{per_group * (groups > 1)}"
        count = extents[0] * extents[1] * stages * groups
        return SmemField(name, Element.of(dtype), count, f"cute.cosize({name}_layout)", holds, TENSOR_ALIGN)

    fields += [
        ring("sA", problem.a.dtype, (tile_m, tile_k), c.stages),
        ring("sB", problem.b.dtype, (tile_n, tile_k), c.stages),
        *(ring(f"s_{out.name}", out.dtype, (sub_m, sub_n), c.store_stages, groups) for out in program.outputs),
        *(ring(f"s_{o.name}", o.dtype, (sub_m, sub_n), c.load_stages) for o in program.tiles),
    ]
    if c.in_cluster:
        fields.append(_given_field(problem, c))
    return fields


def _scale_field(problem: GemmProblem, c: Candidate, name: str) -> SmemField:
    """The ring of scales, whose slots begin at a multiple of what TMA writes to."""
    slot = scale_bytes(problem, c)
    pitch = -(-slot // BOX_ALIGN) * BOX_ALIGN
    padded = f", {pitch} B apart" if pitch > slot else ""
    holds = f"f32 {scale_box(problem, c)} x {c.stages} stages{padded}"
    count = (pitch * (c.stages - 1) + slot) // F32.bytes
    return SmemField(name, F32, count, f"cute.cosize({name}_layout)", holds, BOX_ALIGN)


def _given_field(problem: GemmProblem, c: Candidate) -> SmemField:
    """Sums that the other parts of a product store in this CTA."""
    (sub_m, sub_n), count, accumulator = epilogue_tile(problem, c), given_subtiles(problem, c), problem.mma.accumulator
    halves = [" // 2" * (problem.paired_dim == dim) for dim in "mn"]
    m, n = (f"(t.tile[{i}]{half} // t.epilogue_tile[{i}])" for i, half in enumerate(halves))
    pair = ", 2" * bool(problem.paired_dim)
    source = f"cluster_sum.elements(t.epilogue_tile, {m} * {n}, t.split_k{pair})"
    holds = f"{accumulator} ({sub_m}, {sub_n}) x {count} sums of other parts"
    return SmemField("sum_given", Element.of(accumulator), sub_m * sub_n * count, source, holds, ACCESS_BYTES)


def derive(problem: GemmProblem, c: Candidate) -> Derived:
    """All derived numbers; defined for illegal candidates too, as long as consumers >= 1."""
    tile_m, tile_n, _ = c.tile
    sharing = warpgroups_per_tile(c)
    sub_m, sub_n = epilogue_tile(problem, c)
    regions, smem_bytes = smem_map(problem, c)
    loads = bool(problem.kernel_epilogue.tiles)
    covers = (tile_m * c.cluster[0], tile_n * c.cluster[1])
    return Derived(
        epilogue_tile=(sub_m, sub_n),
        epilogue_groups=c.consumers // sharing,
        subtiles=subtiles(problem, c),
        threads=threads(c),
        accumulator_registers=accumulators(problem, c),
        stage_bytes=slot_bytes(problem, c) - gathered_bytes(problem, c),
        load_bytes=sum(sub_m * sub_n * o.dtype.bytes for o in problem.kernel_epilogue.tiles),
        empty_arrivals=(c.multicast_a + c.multicast_b - 1) * WARPS_PER_WARPGROUP * sharing,
        queue_readers=1 + loads + gather_warps(problem, c) + WARPS_PER_WARPGROUP * c.consumers if c.dynamic else 0,
        covers=(covers[1], covers[0]) if c.swap_ab else covers,
        partials=tile_m * tile_n * cluster_size(c) * partial_tiles(c),
        smem=regions,
        smem_bytes=smem_bytes,
    )
