"""Tiles handed out at run time: a counter in global memory, and a ring in shared memory that tells a CTA its next tile.

The first tile of a cluster is its position in the grid, as in a static schedule. Each further one is claimed by the
scheduler warp, whose index goes to every CTA of the cluster. An index beyond the last tile ends the loop of each reader
and is the last one sent.

Counters: [0] is the next claim, [1] counts clusters that are done; the last of them leaves both zero.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr, pipeline

from cutegen.device.gemm.tile_ring import TileRing, cut_barriers

COUNTERS = 2
INDEX_BYTES = 4


@dataclass(frozen=True)
class TileQueue(TileRing):
    """indices: (stages,) in shared memory. counters: global memory."""

    indices: cute.Tensor
    counters: cute.Pointer

    @cute.jit
    def read(self, turn: pipeline.PipelineState) -> Int32:
        """The index of this turn. One whole warp calls it; all readers read all turns until an index ends the loop."""
        cute.arch.mbarrier_wait(self.full + turn.index, turn.phase)
        index = self.indices[turn.index]
        if const_expr(self.ctas > 1):
            cute.arch.fence_proxy("async.shared", space="cta")  # the slot is next written by an asynchronous store
        self.free(turn)
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
                self.await_turn(turn, begun)
                begun = begun ^ 1
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
            self.await_readers(turn)

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
def make_queue(
    barriers: cute.Pointer,
    indices: cute.Tensor,
    counters: cute.Pointer,
    stages: cutlass.Constexpr,
    ctas: cutlass.Constexpr,
    readers: cutlass.Constexpr,
) -> TileQueue:
    """barriers: 2 * stages + 1 mbarriers, which become visible with the next synchronisation of the cluster. readers:
    warps of a CTA that read each index."""
    queue = TileQueue(*cut_barriers(barriers, stages), stages, ctas, indices, counters)
    queue.init_barriers(readers * ctas)
    return queue
