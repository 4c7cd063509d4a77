"""Warps, rings and named barriers of an sm_100a kernel."""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.arch.architecture import WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate, cluster_size
from cutegen.families.gemm.derived import ANSWER_BYTES, QUEUE_STAGES
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.lowering.sm100.tensor_memory import accumulators
from cutegen.families.gemm.pipelines import K_TILE, SUBTILE, tile_ring
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.tiling_numbers import Derived
from cutegen.families.gemm.warps import LOAD_WARP
from cutegen.model.kernel import Event, NamedBarrier, Pipeline, Role, Warps

MMA_WARP = Warps("MMA warp", 1)
TILE_LOAD_WARP = Warps("tile load warp", 2)
SCHEDULER_WARP = Warps("scheduler warp", 3)
EPILOGUE_WARPS = Warps("epilogue warps", WARPS_PER_WARPGROUP, WARPS_PER_WARPGROUP)
IDLE = "idle; present because a warp reads the lanes of tensor memory that its place in a warpgroup says"
CLAIM = "in CTA 0 of a cluster: asks for the launch of another cluster to be cancelled, whose tile is taken"
SHARED = "exchanged with other parts, then a share of the epilogue"
MULTIPLY = (
    Event("once", True, "ALLOCATED"),
    Event("", True, "acc empty"),
    Event(K_TILE, True, "ab full"),
    Event(K_TILE, False, "ab empty"),
    Event("", False, "acc full"),
)
READ_SUM = (Event("once", True, "ALLOCATED"), Event("", True, "acc full"))
FREE_SUM = Event("", False, "acc empty")
JOIN_SUMS = (
    Event("", True, "sum empty"),
    Event("", False, "sum full"),
    Event("", True, "sum full"),
    Event("", False, "sum empty"),
)
READ_TILES = (Event(SUBTILE, True, "load full"), Event(SUBTILE, False, "load empty"))
STORE = (
    Event(SUBTILE, True, "store empty"),
    Event(SUBTILE, True, "EPILOGUE"),
    Event(SUBTILE, False, "store full"),
)


def list_roles(problem: GemmProblem, c: Candidate) -> tuple[Role, ...]:
    *names, last = (problem.a.name, problem.b.name, *(s.name for s in problem.packed_scales))
    pair = c.mma_ctas == 2
    multiplies = f"{'copies scales to tensor memory, ' * bool(problem.packed_scales)}multiplies into tensor memory"
    tiles = problem.kernel_epilogue.tiles
    loads = f"loads epilogue tiles of {' and '.join(t.name for t in tiles)} by TMA"
    first, end = 2 + bool(tiles), SCHEDULER_WARP.first if c.dynamic else EPILOGUE_WARPS.first
    idle = Warps(f"idle warp{'s' * (end - first > 1)}", first, end - first)
    return (
        Role(LOAD_WARP, 0, f"loads tiles of {', '.join(names)} and {last} by TMA"),
        Role(MMA_WARP, 0, f"{'in the first CTA of a pair: ' * pair}{multiplies}", MULTIPLY),
        *([Role(TILE_LOAD_WARP, 0, loads)] if tiles else []),
        *([Role(idle, 0, IDLE)] if end > first else []),
        *([Role(SCHEDULER_WARP, 0, CLAIM)] if c.dynamic else []),
        Role(
            EPILOGUE_WARPS,
            0,
            "allocate tensor memory; of each tile: sums to registers, "
            + (SHARED if c.in_cluster else "then the epilogue"),
            (*READ_SUM, *(JOIN_SUMS if c.in_cluster else ()), FREE_SUM, *(READ_TILES if tiles else ()), *STORE),
        ),
    )


def list_pipelines(problem: GemmProblem, c: Candidate, d: Derived) -> Iterator[Pipeline]:
    pair = c.mma_ctas == 2
    full = f"1 arrival and {c.mma_ctas * d.stage_bytes} bytes by TMA{', to both CTAs, at the first one' * pair}"
    commits = c.multicast_a + c.multicast_b - 1
    empty = f"{commits} arrival{'s' * (commits > 1)} by tcgen05.commit{' at both CTAs' * pair}"
    yield Pipeline("ab", "TmaUmma", "load warp", "MMA warp", c.stages, d.stage_bytes, full, empty,
                   (LOAD_WARP,), (MMA_WARP,), each=K_TILE)  # fmt: skip
    tile_bytes = 4 * c.tile[0] * c.tile[1]
    yield Pipeline("acc", "UmmaAsync", "MMA warp", "epilogue warps", accumulators(problem, c), tile_bytes,
                   f"1 arrival by tcgen05.commit{' at both CTAs' * pair}",
                   f"{WARPS_PER_WARPGROUP * c.mma_ctas} warps{' of both CTAs' * pair} arrive",
                   (MMA_WARP,), (EPILOGUE_WARPS,))  # fmt: skip
    for feature in FEATURES:
        yield from feature.list_pipelines(problem, c, d.smem, "epilogue warps", (EPILOGUE_WARPS,))
    if problem.kernel_epilogue.tiles:
        yield tile_ring(problem, c, d, TILE_LOAD_WARP, "epilogue warps", (EPILOGUE_WARPS,))
    rows, columns = d.epilogue_tile
    size = sum(o.dtype.size(rows * columns) for o in problem.kernel_epilogue.outputs)
    yield Pipeline("store", "TmaStore", "epilogue warps", "TMA", c.store_stages, size,
                   "all epilogue threads at a named barrier", "the storing warp waits until TMA has read the slot",
                   (EPILOGUE_WARPS,), (), each=SUBTILE)  # fmt: skip

    if c.dynamic:
        peers, tiles = cluster_size(c), (TILE_LOAD_WARP,) if problem.kernel_epilogue.tiles else ()
        full = f"1 arrival and {ANSWER_BYTES} bytes by cluster launch control{', at every CTA' * (peers > 1)}"
        empty = f"{d.queue_readers * peers - peers // 2 * pair} warps{' of all CTAs arrive at CTA 0' * (peers > 1)}"
        yield Pipeline("queue", "LaunchControl", "scheduler warp", "all by tile", QUEUE_STAGES, ANSWER_BYTES, full,
                       empty + " arrive" * (peers == 1), (SCHEDULER_WARP,),
                       (LOAD_WARP, MMA_WARP, *tiles, EPILOGUE_WARPS), each="next tile")  # fmt: skip


def list_barriers() -> tuple[NamedBarrier, ...]:
    return (
        NamedBarrier(1, "EPILOGUE", (), (EPILOGUE_WARPS,), "a subtile is staged, or a slot is free", within="store"),
        NamedBarrier(2, "ALLOCATED", (), (MMA_WARP, EPILOGUE_WARPS), "tensor memory is allocated"),
    )
