"""The ring through which the CTAs of a cluster learn of their next tiles, one turn after another.

The scheduler warp of the cluster's CTA 0 fills a slot of every CTA when the load warps of all of them have begun the
tile before, so that the next tile is known one tile ahead of the loads. Whoever works by tile reads each turn in its
own CTA, and frees the slot at CTA 0.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr, pipeline


@dataclass(frozen=True)
class TileRing:
    """full, empty: mbarriers (stages,), at CTA 0 of the cluster for `empty`. begun: one mbarrier, at CTA 0. ctas: CTAs
    of the cluster."""

    full: cute.Pointer
    empty: cute.Pointer
    begun: cute.Pointer
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
    def free(self, turn: pipeline.PipelineState):
        """Says that the warp, which is whole, has read this turn."""
        cute.arch.sync_warp()
        if cute.arch.lane_idx() == 0:
            self._arrive_at_first(self.empty + turn.index)

    @cute.jit
    def await_turn(self, turn: pipeline.PipelineState, begun: Int32):
        """The scheduler warp waits until the tile before is begun, and the slot of this turn is free."""
        cute.arch.mbarrier_wait(self.begun, begun)
        cute.arch.mbarrier_wait(self.empty + turn.index, turn.phase)

    @cute.jit
    def await_readers(self, turn: pipeline.PipelineState):
        """Of all slots: CTA 0 may not exit while a peer can still signal its barriers."""
        for _ in cutlass.range_constexpr(self.stages):
            cute.arch.mbarrier_wait(self.empty + turn.index, turn.phase)
            turn.advance()

    @cute.jit
    def init_barriers(self, readers: cutlass.Constexpr):
        """readers: warps of the cluster that read each turn. The barriers become visible with the next synchronisation
        of the cluster."""
        thread, _, _ = cute.arch.thread_idx()
        if thread == 0:
            for i in cutlass.range_constexpr(self.stages):
                cute.arch.mbarrier_init(self.full + i, 1)
                cute.arch.mbarrier_init(self.empty + i, readers)
            cute.arch.mbarrier_init(self.begun, self.ctas)

    @cute.jit
    def _arrive_at_first(self, barrier):
        if const_expr(self.ctas > 1):
            cute.arch.mbarrier_arrive(barrier, 0)
        else:
            cute.arch.mbarrier_arrive(barrier)


def cut_barriers(barriers: cute.Pointer, stages: int):
    """full, empty and begun of 2 * stages + 1 mbarriers."""
    return barriers, barriers + stages, barriers + 2 * stages
