"""Pipeline states that move by more than one slot."""

from cutlass import Int32, pipeline


def skip(state, count: Int32):
    """`state` after `count` slots that another warpgroup consumes."""
    position = state.index + count
    turns = position // state.stages
    return pipeline.PipelineState(
        state.stages, state.count + count, position - turns * state.stages, state.phase ^ (turns & 1)
    )
