"""The numbers of a whole tiling, in exact integers."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch.architecture import WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import (
    accumulators,
    epilogue_tile,
    subtiles,
    threads,
    tma_bytes,
    warpgroups_per_tile,
)
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.shared_memory import smem_map
from cutegen.model.smem import SmemRegion


@dataclass(frozen=True, slots=True)
class Derived:
    """epilogue_groups: groups of threads that store on their own.

    subtiles: epilogue tiles of one group per CTA tile. accumulator_registers: per thread. stage_bytes, load_bytes:
    TMA bytes of one slot. empty_arrivals: warps, over all multicast peers, that free one A/B slot. queue_readers: warps
    of a CTA that read each tile index, 0 in a static schedule. covers: (m, n) elements of the product, in the spec's
    frame, of one cluster.
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
    smem: tuple[SmemRegion, ...]
    smem_bytes: int


def derive(problem: GemmProblem, c: Candidate) -> Derived:
    """All derived numbers; defined for illegal candidates too, as long as consumers >= 1."""
    tile_m, tile_n, _ = c.tile
    sharing = warpgroups_per_tile(c)
    sub_m, sub_n = epilogue_tile(problem, c)
    regions, smem_bytes = smem_map(problem, c)
    readers = 1 + bool(problem.kernel_epilogue.tiles) + WARPS_PER_WARPGROUP * c.consumers
    readers += problem.target.tensor_memory > 0  # a warp of its own multiplies
    readers += sum(feature.queue_readers(problem, c)[0] for feature in FEATURES)
    covers = (tile_m * c.cluster[0], tile_n * c.cluster[1])
    return Derived(
        epilogue_tile=(sub_m, sub_n),
        epilogue_groups=c.consumers // sharing,
        subtiles=subtiles(problem, c),
        threads=threads(c),
        accumulator_registers=accumulators(problem, c),
        stage_bytes=tma_bytes(problem, c),
        load_bytes=sum(sub_m * sub_n * o.dtype.bytes for o in problem.kernel_epilogue.tiles),
        empty_arrivals=lowering_of(problem).empty_arrivals(c)[0],
        queue_readers=readers if c.dynamic else 0,
        covers=(covers[1], covers[0]) if c.swap_ab else covers,
        smem=regions,
        smem_bytes=smem_bytes,
    )
