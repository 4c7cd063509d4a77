"""Tiles handed out by cluster launch control (PTX ISA, "clusterlaunchcontrol"): a cluster that is ready for a tile
takes the place of one that has not been launched yet.

The grid has a cluster for each tile. The scheduler warp asks for the launch of another one to be cancelled, so that
clusters take no more than they can work on. The answer, 16 bytes, comes to every CTA. A refusal ends the loop of each
reader: it is the last answer that is asked for, as none may be asked for after it. It need not mean that nothing is
left, as the hardware may refuse what it launches then itself; so nobody else's tile depends on it. The scheduler warp
waits for each answer, so that no query is on its way when a CTA exits.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr, pipeline

from cutegen.device.gemm.tile_ring import TileRing, cut_barriers

ANSWER_BYTES = 16
END = 0x7FFFFFFF  # behind the last tile


@dataclass(frozen=True)
class LaunchQueue(TileRing):
    """answers: (stages,) of ANSWER_BYTES in shared memory."""

    answers: cute.Pointer

    @cute.jit
    def read(self, turn: pipeline.PipelineState) -> Int32:
        """The tile of this turn. One whole warp calls it; all readers read all turns until END ends the loop."""
        index = self._answer(turn)
        self.free(turn)
        return index

    @cute.jit
    def serve(self):
        """The scheduler warp: asks up to the first refusal, then waits for all readers."""
        if cute.arch.block_idx_in_cluster() == 0:
            lane = cute.arch.lane_idx()
            turn = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
            heard = self.first_turn()
            begun = Int32(0)
            _, _, index = cute.arch.block_idx()
            while index < END:
                self.await_turn(turn, begun)
                begun = begun ^ 1
                if lane < self.ctas:
                    if const_expr(self.ctas > 1):
                        cute.arch.mbarrier_arrive_and_expect_tx(self.full + turn.index, ANSWER_BYTES, lane)
                    else:
                        cute.arch.mbarrier_arrive_and_expect_tx(self.full + turn.index, ANSWER_BYTES)
                cute.arch.sync_warp()
                if lane == 0:
                    slot = self.answers + turn.index
                    cute.arch.issue_clc_query(self.full + turn.index, slot, multicast=self.ctas > 1)
                index = self._answer(heard)
                turn.advance()
                heard.advance()
            self.await_readers(turn)

    @cute.jit
    def _answer(self, turn: pipeline.PipelineState) -> Int32:
        cute.arch.mbarrier_wait(self.full + turn.index, turn.phase)
        _, _, index, valid = cute.arch.clc_response(self.answers + turn.index)
        cute.arch.fence_proxy("async.shared", space="cta")  # the slot is next written by an answer
        return cutlass.select_(valid != 0, index, Int32(END))


@cute.jit
def make_queue(
    barriers: cute.Pointer,
    answers: cute.Pointer,
    stages: cutlass.Constexpr,
    ctas: cutlass.Constexpr,
    readers: cutlass.Constexpr,
) -> LaunchQueue:
    """answers: 16-byte aligned. barriers: 2 * stages + 1 mbarriers, which become visible with the next synchronisation
    of the cluster. readers: warps of the cluster that read each answer."""
    answers = cute.recast_ptr(answers, dtype=cutlass.Int128)
    queue = LaunchQueue(*cut_barriers(barriers, stages), stages, ctas, answers)
    queue.init_barriers(readers)
    return queue
