"""Signals of two CTAs whose products tcgen05 computes together, the first of them issuing all."""

import cutlass.cute as cute
from cutlass._mlir.dialects.nvvm import MemScopeKind
from cutlass.cute.nvgpu import tcgen05

FIRST, BOTH = 0, 0b11  # the CTA that issues products, and the mask of both


@cute.jit
def commit(barrier: cute.Pointer):
    """By a warp: an arrival at this barrier of both CTAs, when all products that it has issued are done."""
    with cute.arch.elect_one():
        tcgen05.commit(barrier, BOTH, tcgen05.CtaGroup.TWO)


@cute.jit
def arrive(barrier: cute.Pointer):
    """By a warp: its lanes' arrival, as one, at a barrier of this CTA."""
    cute.arch.sync_warp()
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive(barrier)


@cute.jit
def arrive_at_first(barrier: cute.Pointer):
    """The same at the barrier of the first CTA, whose products go on behind it. What the lanes have written is there
    for the pair, so the arrival is one of the cluster's scope."""
    cute.arch.sync_warp()
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive(barrier, FIRST, scope=MemScopeKind.CLUSTER)
