"""Pipeline states that move by more than one slot, and waits that the DSL's pipelines have no method for.

`sync_object_empty`, the empty barriers of a pipeline, is not a public member of the DSL's classes: it is used here
alone, as read in nvidia-cutlass-dsl 4.8.1 (`PipelineTmaAsync.producer_acquire`, which waits there and then expects
bytes).
"""

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


def wait_empty(ring: pipeline.PipelineTmaAsync, state) -> None:
    """Waits until the slot of a producer's state is empty. Unlike `producer_acquire`, announces no bytes."""
    ring.sync_object_empty.wait(state.index, state.phase)


def wait_released(ring: pipeline.PipelineTmaAsync, state) -> None:
    """Waits until the slot of a consumer's state is empty: all consumers have released what was there before."""
    ring.sync_object_empty.wait(state.index, state.phase ^ 1)
