"""TMA atoms, what multicast needs, and which boxes L2 should keep."""

import cutlass.cute as cute
from cutlass import Boolean, Int64
from cutlass.cute.nvgpu import cpasync, tcgen05

# L2 policies (PTX ISA, createpolicy).
EVICT_FIRST, EVICT_NORMAL = 0x12F0000000000000, 0x1000000000000000


@cute.jit
def l2_policy(streamed: Boolean) -> Int64:
    """The `cache_policy` of a load. streamed: nobody reads these boxes again, so they are the first to leave L2, before
    what other CTAs share and results, which would be written to memory in the midst of the loads."""
    return Int64(EVICT_FIRST) if streamed else Int64(EVICT_NORMAL)


def load_op(multicast=1, mma_ctas=1):
    """What loads boxes, each for `multicast` CTAs of the cluster. mma_ctas: of one product, the first of which counts
    the bytes."""
    group = tcgen05.CtaGroup.TWO if mma_ctas == 2 else tcgen05.CtaGroup.ONE
    if multicast == 1:
        return cpasync.CopyBulkTensorTileG2SOp(group)
    return cpasync.CopyBulkTensorTileG2SMulticastOp(group)


def load_atom(tensor, staged_layout, tile, multicast=1, mma_ctas=1):
    """(atom, coordinate tensor) that loads `tile` of `tensor`, shared by `multicast` CTAs of the cluster; see
    `load_op`."""
    op = load_op(multicast, mma_ctas)
    return cpasync.make_tiled_tma_atom(op, tensor, _slot(staged_layout), tile, num_multicast=multicast)


def store_atom(tensor, staged_layout, tile):
    """(atom, coordinate tensor) that stores `tile` of `tensor`."""
    return cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), tensor, _slot(staged_layout), tile)


def _slot(staged_layout):
    """The layout of one slot of a ring. Slots need not be a multiple of the swizzle's period apart, which cutting them
    out of the composed layout would ask for."""
    if not isinstance(staged_layout, cute.ComposedLayout):
        return cute.slice_(staged_layout, (None, None, 0))
    return cute.make_composed_layout(staged_layout.inner, 0, cute.slice_(staged_layout.outer, (None, None, 0)))


def add_atom(tensor, staged_layout, tile):
    """(atom, coordinate tensor) that adds to `tile` of `tensor`, element by element, in the L2 cache."""
    slot = cute.slice_(staged_layout, (None, None, 0))
    return cpasync.make_tiled_tma_atom(cpasync.CopyReduceBulkTensorTileS2GOp(), tensor, slot, tile)


def partition(atom, smem, gmem, cta=0, multicast=1):
    """Views ((TMA, stages), (TMA, rest...)) for CTA `cta` of the `multicast` CTAs that share an operand's loads."""
    return cpasync.tma_partition(
        atom, cta, cute.make_layout(multicast), cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    )


def peers(cluster, multicast):
    """What a pipeline whose loads of (A, B) feed `multicast` CTAs each is created with: the layout of the CTAs by
    (v, m, n, k), and which operands they share."""
    shared = tuple(int(count > 1) for count in multicast)
    if not any(shared):
        return {"cta_layout_vmnk": cute.make_layout((1, 1, 1, 1)), "mcast_mode_mn": (1, 1)}
    return {"cta_layout_vmnk": cute.make_layout((1, *cluster, 1)), "mcast_mode_mn": shared}


def multicast_mask(cluster, mode, multicast, mma_ctas=1):
    """Bit mask of the CTAs in this CTA's row (mode 1) or column (mode 0) of the cluster, which one load feeds; None
    when a load feeds one CTA. mma_ctas: of one product, which load different parts: of those of a column one in so many
    is fed."""
    if multicast == 1:
        return None
    layout = cute.make_layout((mma_ctas, cluster[0] // mma_ctas, cluster[1]))
    cta_m, cta_n, _ = cute.arch.block_in_cluster_idx()
    return cute.make_layout_image_mask(layout, (cta_m % mma_ctas, cta_m // mma_ctas, cta_n), mode=1 + mode)
