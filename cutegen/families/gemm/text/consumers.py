"""The MMA warpgroups in the kernel module: which threads share a tile, and which part of shared memory is theirs."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.problem import GemmProblem


@dataclass(frozen=True, slots=True)
class ConsumersText:
    """What the templates read as k.consumers. A group is the warpgroups that share a tile: all of them (cooperative),
    or each for itself (pingpong)."""

    pingpong: bool


def reads_batch(problem: GemmProblem, stored: bool) -> bool:
    """Whether MMA warpgroups need the batch index of a tile; stored: whether its epilogue does."""
    scale = problem.block_scale[0] if problem.block_scale else None
    vectors = [o for o in problem.kernel_epilogue.operands if o.kind in ("row_vector", "column_vector")]
    ragged = problem.groups is not None and problem.groups.form == "offsets"
    return stored or ragged or bool(scale and scale.batched) or any(o.batched for o in vectors)
