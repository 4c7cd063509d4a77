"""What the two CTAs of a cluster have to be at one about before they act together."""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from cutegen.device.cluster_sum import await_turn

WORDS = 32  # a lane each
TURNS = 2  # questions that a kernel may ask


@cute.jit
def init(barriers: cute.Pointer):
    """By one thread, before the cluster meets."""
    for i in cutlass.range_constexpr(TURNS):
        cute.arch.mbarrier_init(barriers + i, 1)


@cute.jit
def agree(value: Int32, given: cute.Tensor, barriers: cute.Pointer, turn: cutlass.Constexpr[int]) -> Boolean:
    """Whether the same warp of the other CTA has the same values, lane for lane. When it returns, the other has called
    it.

    given: (WORDS, TURNS) in shared memory; barriers: an mbarrier for each turn, `init` by then. turn: another for
    every call, as one CTA may be a call ahead of the other, and what it gives may arrive in any order.
    """
    lane, other = cute.arch.lane_idx(), cute.arch.block_idx_in_cluster() ^ 1
    if lane == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(barriers + turn, 4 * WORDS)
    cute.arch.store_async_dsmem(given[None, turn].iterator + lane, value, barriers + turn, other)
    await_turn(barriers + turn, Int32(0))
    return cute.arch.vote_all_sync(given[lane, turn] == value)
