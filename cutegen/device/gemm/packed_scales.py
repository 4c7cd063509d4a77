"""Scales by which tcgen05.mma multiplies: from memory, where those of 128 rows and 4 blocks of k are a chunk of 512
bytes, through a ring in shared memory to tensor memory; and such as an epilogue stores."""

from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import cutlass.utils.blockscaled_layout as layouts
from cutlass import Float8E8M0FNU, Float32, Int32, const_expr
from cutlass.cute.nvgpu import cpasync, tcgen05

from cutegen.device import tma

ROWS, BLOCKS = 128, 4  # of a chunk
LANES = 32  # of tensor memory, of which each has the scales of rows so many apart
MANTISSA = 23  # bits of an f32
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
    chunks = cute.ceil_div(rows, ROWS)
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


def partition(atom, ring, words, rows=ROWS):
    """Views ((TMA, stages), (TMA, 1, k tiles, tiles of rows[, batch])) for the CTA alone. rows: of a tile, a multiple
    of half a chunk; where it is an odd one, every second tile begins in the middle of its first chunk."""
    if const_expr(rows % ROWS != 0):
        halves, chunks = rows // (ROWS // 2), ring.shape[2]
        shape, stride = [*words.shape], [*words.stride]
        step = stride[2]
        second = step * (halves // 2) if halves > 1 else 0
        shape[2] = (chunks, (2, cute.ceil_div(shape[2], halves)))
        stride[2] = (step, (second, step * halves))
        words = cute.make_tensor(words.iterator, cute.make_layout(tuple(shape), stride=tuple(stride)))
    boxes = cute.zipped_divide(words, ring.shape[:3])
    return cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(ring, 0, 3), boxes)


def columns(ring):
    """Of tensor memory that a slot of a ring takes."""
    return cute.size(ring.shape[:3]) // COLUMN_WORDS


def of_tile(scales, address, tile, rows):
    """What tcgen05.mma is given for tile number `tile` of so many rows, of scales that lie at `address`: of every
    second tile of an odd number of half chunks what is behind the first half."""
    first = tile % 2 * (ROWS // 2 // LANES) if const_expr(rows % ROWS != 0) else 0
    pointer = cute.recast_ptr(address + first, dtype=scales.fragment.element_type)
    return cute.make_tensor(pointer, scales.fragment.layout)


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


@cute.jit
def store(
    scales: cute.Tensor,
    out: cute.Tensor,
    chunk: Int32,
    first: Int32,
    row: Int32,
    rows: Int32,
    blocks: Int32,
):
    """Stores what a row of a tile has, f32 of consecutive blocks, as 8-bit scales: to words of its row in chunks
    (chunks of rows, chunks of blocks, 512). chunk: of rows. first: block, of which chunks begin; row: in the chunk.
    Zero where there is no row or block: there are `rows` and `blocks`."""
    words = cute.recast_tensor(out, Int32)
    for i in cutlass.range_constexpr(cute.size(scales) // BLOCKS):
        four = cute.make_rmem_tensor(BLOCKS, Float32)
        for j in cutlass.range_constexpr(BLOCKS):
            inside = (chunk * ROWS + row < rows) & (first + i * BLOCKS + j < blocks)
            four[j] = cutlass.select_(inside, scales[i * BLOCKS + j], Float32(0.0))
        at = first // BLOCKS + i
        if chunk < out.shape[0] and at < out.shape[1]:
            words[chunk, at, row % LANES * (ROWS // LANES) + row // LANES] = _word(four, out.element_type)


def _word(four, dtype):
    """Four f32 values as 8-bit ones, the first in the lowest byte. Of e8m0 they are powers of two: their exponents."""
    if const_expr(dtype is Float8E8M0FNU):
        exponents, word = cute.recast_tensor(four, Int32), Int32(0)
        for j in range(BLOCKS):
            word = word | exponents[j] >> MANTISSA << (8 * j)
        return word
    narrow = cute.make_rmem_tensor(BLOCKS, dtype)
    narrow.store(four.load().to(dtype))
    return cute.recast_tensor(narrow, Int32)[0]
