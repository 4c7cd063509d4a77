"""Tiles handed out at run time: a counter in global memory, and a ring in shared memory that tells a CTA its next tile.

The first tile of a cluster is its position in the grid, as in a static schedule. Each further one is claimed by the
scheduler warp of the cluster's CTA 0 when the load warps of all its CTAs have begun the tile before, so that a claim
stays one tile ahead of the loads. The index goes to every CTA of the cluster; whoever works by tile reads it there.
An index beyond the last tile ends the loop of each reader and is the last one sent.

Counters: [0] is the next claim, [1] counts clusters that are done; the last of them leaves both zero.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr, pipeline

COUNTERS = 2
INDEX_BYTES = 4


@dataclass(frozen=True)
class TileQueue:
    """full, empty: mbarriers (stages,), at CTA 0 of the cluster for `empty`. begun: one mbarrier, at CTA 0.

    indices: (stages,) in shared memory. counters: global memory. ctas: CTAs of the cluster. readers: warps of a CTA
    that read each index.
    """

    full: cute.Pointer
    empty: cute.Pointer
    begun: cute.Pointer
    indices: cute.Tensor
    counters: cute.Pointer
    stages: cutlass.Constexpr[int]
    ctas: cutlass.Constexpr[int]

    def first_turn(self):
        return pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)

    @cute.jit
    def begin(self):
        """Says that the load warp begins a tile. One whole warp calls it."""
        if cute.arch.lane_idx() == 0:
            self._arrive_at_first(self.begun)

    @cute.jit
    def read(self, turn: pipeline.PipelineState) -> Int32:
        """The index of this turn. One whole warp calls it; all readers read all turns until an index ends the loop."""
        cute.arch.mbarrier_wait(self.full + turn.index, turn.phase)
        index = self.indices[turn.index]
        if const_expr(self.ctas > 1):
            cute.arch.fence_proxy("async.shared", space="cta")  # the slot is next written by an asynchronous store
        cute.arch.sync_warp()
        if cute.arch.lane_idx() == 0:
            self._arrive_at_first(self.empty + turn.index)
        return index

    @cute.jit
    def serve(self, count: Int32):
        """The scheduler warp: claims indices up to the first that is not below `count`, then waits for all readers."""
        if cute.arch.block_idx_in_cluster() == 0:
            lane = cute.arch.lane_idx()
            _, _, clusters = cute.arch.grid_dim()
            turn = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
            begun = Int32(0)
            _, _, index = cute.arch.block_idx()
            while index < count:
                cute.arch.mbarrier_wait(self.begun, begun)
                begun = begun ^ 1
                cute.arch.mbarrier_wait(self.empty + turn.index, turn.phase)
                if lane == 0:
                    index = clusters + cute.arch.atomic_add(self.counters, Int32(1), sem="relaxed", scope="gpu")
                index = cute.arch.shuffle_sync(index, 0)
                self._send(index, turn.index, lane)
                turn.advance()
            if lane == 0:
                done = cute.arch.atomic_add(self.counters + 1, Int32(1), sem="acq_rel", scope="gpu")
                if done == clusters - 1:  # every cluster has made its last claim
                    cute.arch.store(self.counters, Int32(0))
                    cute.arch.store(self.counters + 1, Int32(0))
            # CTA 0 may not exit while a peer can still signal its barriers.
            for _ in cutlass.range_constexpr(self.stages):
                cute.arch.mbarrier_wait(self.empty + turn.index, turn.phase)
                turn.advance()

    @cute.jit
    def _send(self, index: Int32, slot: Int32, lane: Int32):
        """To all CTAs of the cluster, a lane each."""
        if lane < self.ctas:
            if const_expr(self.ctas > 1):
                cute.arch.mbarrier_arrive_and_expect_tx(self.full + slot, INDEX_BYTES, lane)
                cute.arch.store_async_dsmem(self.indices.iterator + slot, index, self.full + slot, lane)
            else:
                self.indices[slot] = index
                cute.arch.mbarrier_arrive(self.full + slot)

    @cute.jit
    def _arrive_at_first(self, barrier):
        if const_expr(self.ctas > 1):
            cute.arch.mbarrier_arrive(barrier, 0)
        else:
            cute.arch.mbarrier_arrive(barrier)


@cute.jit
def make_queue(
    barriers: cute.Pointer,
    indices: cute.Tensor,
    counters: cute.Pointer,
    stages: cutlass.Constexpr,
    ctas: cutlass.Constexpr,
    readers: cutlass.Constexpr,
) -> TileQueue:
    """barriers: 2 * stages + 1 mbarriers, which become visible with the next synchronisation of the cluster."""
    queue = TileQueue(barriers, barriers + stages, barriers + 2 * stages, indices, counters, stages, ctas)
    thread, _, _ = cute.arch.thread_idx()
    if thread == 0:
        for i in cutlass.range_constexpr(stages):
            cute.arch.mbarrier_init(queue.full + i, 1)
            cute.arch.mbarrier_init(queue.empty + i, readers * ctas)
        cute.arch.mbarrier_init(queue.begun, ctas)
    return queue
