"""Scales by which tcgen05.mma multiplies: from memory, where those of 128 rows and 4 blocks of k are a chunk of 512
bytes, through a ring in shared memory to tensor memory."""

from typing import NamedTuple

import cutlass.cute as cute
import cutlass.utils.blockscaled_layout as layouts
from cutlass import Int32, const_expr
from cutlass.cute.nvgpu import cpasync, tcgen05

from cutegen.device import tma

ROWS, BLOCKS = 128, 4  # of a chunk
WORDS = ROWS * BLOCKS // 4  # of 32 bits, as TMA moves them: a box has at most 256 elements along a dim
COLUMN_WORDS = 32  # of tensor memory


class Scales(NamedTuple):
    """Of A or B for one MMA warp. copy, source ((..), stages), target: to tensor memory; fragment (MMA, 1, MMAs of a k
    tile): what tcgen05.mma is given."""

    copy: cute.TiledCopy
    source: cute.Tensor
    target: cute.Tensor
    fragment: cute.Tensor


def ring_layout(rows, blocks, stages, pairs=False):
    """Of `stages` slots of (words, chunks k, chunks of rows), dense: (.., stages). pairs: chunks of first rows of
    pairs, then of second ones, as a mode of two."""
    chunks = rows // ROWS
    return cute.make_layout((WORDS, blocks // BLOCKS, (chunks // 2, 2) if pairs else chunks, stages))


def load_atom(scales, ring, mma_ctas=1):
    """(atom, coordinates (words, chunks k, chunks of rows[, batch])) that loads a slot of `ring` of packed scales
    ([batch,] chunks of rows, chunks k, 512). Where the ring has pairs, second rows are half of all rows behind first
    ones."""
    words = cute.recast_tensor(scales, Int32)
    axes = (2, 1, 0) if cute.rank(words) == 3 else (3, 2, 1, 0)
    words = cute.make_tensor(words.iterator, cute.select(words.layout, mode=axes))
    if const_expr(cute.rank(ring.shape[2]) == 2):
        half, pitch = words.shape[2] // 2, words.stride[2]
        shape, stride = [*words.shape], [*words.stride]
        shape[2], stride[2] = (half, 2), (pitch, half * pitch)
        words = cute.make_tensor(words.iterator, cute.make_layout(tuple(shape), stride=tuple(stride)))
    slot = cute.slice_(ring, (None, None, None, 0))
    return cpasync.make_tiled_tma_atom(tma.load_op(1, mma_ctas), words, slot, slot.shape)


def partition(atom, ring, words):
    """Views ((TMA, stages), (TMA, 1, k tiles, tiles of rows[, batch])) for the CTA alone."""
    boxes = cute.zipped_divide(words, ring.shape[:3])
    return cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(ring, 0, 3), boxes)


def columns(ring):
    """Of tensor memory that a slot of a ring takes."""
    return cute.size(ring.shape[:3]) // COLUMN_WORDS


def place(mma, side, ring, dtype, address, tile, block):
    """Scales of A or B, the `side`, with `block` elements of k each, which are copied to `address` in tensor memory.
    tile: (m, n, k) of one product."""
    shared, placed = (
        (layouts.make_smem_layout_sfa, layouts.make_tmem_layout_sfa)
        if side == "A"
        else (layouts.make_smem_layout_sfb, layouts.make_tmem_layout_sfb)
    )
    staged = shared(mma, tile, block, ring.shape[3])
    source = cute.filter_zeros(cute.make_tensor(cute.recast_ptr(ring.iterator, dtype=dtype), staged))
    layout = placed(mma, tile, block, cute.slice_(staged, (None, None, None, 0)))
    fragment = cute.make_tensor(cute.recast_ptr(address, dtype=dtype), layout)
    target = cute.filter_zeros(fragment)
    copy = tcgen05.make_s2t_copy(cute.make_copy_atom(tcgen05.Cp4x32x128bOp(mma.op.cta_group), dtype), target)
    thread = copy.get_slice(0)
    described = tcgen05.get_s2t_smem_desc_tensor(copy, thread.partition_S(source))
    return Scales(copy, described, thread.partition_D(target), fragment)
