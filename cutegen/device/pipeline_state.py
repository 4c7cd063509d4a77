"""Pipeline states that move by more than one slot, or ask without waiting."""

import cutlass.cute as cute
from cutlass import Boolean, Int32, pipeline


def skip(state, count: Int32):
    """`state` after `count` slots that another warpgroup consumes."""
    position = state.index + count
    turns = position // state.stages
    return pipeline.PipelineState(
        state.stages, state.count + count, position - turns * state.stages, state.phase ^ (turns & 1)
    )


def is_full(ring: pipeline.PipelineTmaAsync, state) -> Boolean:
    """Whether the slot that a consumer comes to next is full. Never suspends the thread, as `consumer_try_wait` may do
    for microseconds where nothing fills the slot any more."""
    return cute.arch.mbarrier_test_wait(ring.producer_get_barrier(state), state.phase)
