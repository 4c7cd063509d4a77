"""Rows of a matrix, named by an index, on their way to a swizzled tile in shared memory: threads copy 16 bytes each.
And scales of those rows, one f32 a thread."""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32, const_expr
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

from cutegen.device.async_copy import CHUNK, SWIZZLE_ROW, copy_chunk, swizzled

SCALE = 4  # bytes of one that copies an f32
LANES = 8  # threads next to each other that copy one row, at most: 128 bytes, a swizzled row and a line of L2


def lanes(row_bytes: int) -> int:
    """Threads that copy one row of a tile: they divide its chunks evenly."""
    return math.gcd(LANES, row_bytes // CHUNK)


@cute.jit
def find_rows(
    index: cute.Tensor,
    matrix: cute.Tensor,
    first: Int32,
    tile: cutlass.Constexpr,
    thread: Int32,
    threads: cutlass.Constexpr,
):
    """Which rows of `matrix` (rows, k) this thread copies for rows first, first + 1, ... of the product, all k tiles
    alike; -1 for a row past the last, and for one that the index names but the matrix has not.

    index: i32 (rows of the product). tile: (rows, k) of a tile.
    """
    across = const_expr(lanes(tile[1] * matrix.element_type.width // 8))
    step = const_expr(threads // across)
    return _look_up(index, matrix.shape[0], first + thread // across, step, tile[0] // step)


@cute.jit
def find_scales(
    index: cute.Tensor,
    scales: cute.Tensor,
    first: Int32,
    count: cutlass.Constexpr,
    thread: Int32,
    threads: cutlass.Constexpr,
):
    """Which rows of `scales` (rows, k blocks) this thread copies for rows first, first + 1, ... of the product, of
    which a tile has `count`; -1 as `find_rows` has it."""
    return _look_up(index, scales.shape[0], first + thread, threads, cute.ceil_div(count, threads))


@cute.jit
def _look_up(index: cute.Tensor, extent: Int32, first: Int32, step: cutlass.Constexpr, count: cutlass.Constexpr):
    """What `index` has at first, first + step, ...; -1 past its end, and for what is `extent` or more."""
    rows = cute.make_rmem_tensor(count, Int32)
    last = index.shape[0] - 1
    for i in cutlass.range_constexpr(count):
        rows[i] = index[cutlass.min(first + i * step, last)]
    for i in cutlass.range_constexpr(count):
        row = rows[i]
        if first + i * step > last or row >= extent:
            row = Int32(-1)
        rows[i] = row
    return rows


@cute.jit
def copy_rows(
    matrix: cute.Tensor,
    rows: cute.Tensor,
    column: Int32,
    ring: cute.Tensor,
    slot: Int32,
    tile: cutlass.Constexpr,
    swizzle: cutlass.Constexpr,
    thread: Int32,
    threads: cutlass.Constexpr,
):
    """Begins the copies of columns `column`, `column` + 1, ... of `rows` to a slot of `ring` (rows, k, slots), which is
    swizzled in rows of `swizzle` bytes; what is not there becomes zeros."""
    size = const_expr(matrix.element_type.width // 8)
    across = const_expr(lanes(tile[1] * size))
    step = const_expr(threads // across)
    width = const_expr(CHUNK // size)
    # Rows `period` steps apart are swizzled alike, so that their places differ by a constant.
    period = const_expr(max(1, SWIZZLE_ROW * (swizzle // CHUNK) // (step * swizzle)))
    slot_at = ring.iterator.toint() + cute.crd2idx((0, 0, slot), ring.layout) * size
    for j in cutlass.range_constexpr(tile[1] // (across * width)):
        # Not hoisted, each address is one multiplication by 32 bits; hoisted out of the loop over slots, or over the
        # columns of one, each row would take two more registers.
        pitch = Int64(_unhoisted(Uint32(matrix.stride[0] * size)))
        at = (thread % across + j * across) * width
        source = matrix.iterator.toint() + Int64(column + at) * size
        inside = column + at < matrix.shape[1]
        starts = [
            slot_at + swizzled(cute.crd2idx((thread // across + p * step, at, 0), ring.layout) * size, swizzle)
            for p in range(period)
        ]
        for i in cutlass.range_constexpr(tile[0] // step):
            bytes = Int32(0)
            if inside and rows[i] >= 0:
                bytes = Int32(CHUNK)
            further = const_expr(cute.crd2idx((i // period * period * step, 0, 0), ring.layout) * size)
            copy_chunk(starts[i % period] + further, source + Int64(Uint32(rows[i])) * pitch, bytes)


@cute.jit
def copy_scales(
    scales: cute.Tensor,
    rows: cute.Tensor,
    block: Int32,
    ring: cute.Tensor,
    slot: Int32,
    thread: Int32,
    threads: cutlass.Constexpr,
):
    """Begins the copies of blocks `block`, `block` + 1, ... of `rows` to a slot of `ring` (rows, k blocks, slots); what
    is not there becomes zeros."""
    count, blocks, _ = ring.shape
    for j in cutlass.range_constexpr(blocks):
        column = scales.iterator.toint() + Int64(block + j) * scales.stride[1] * SCALE
        for i in cutlass.range_constexpr(cute.size(rows)):
            bytes = Int32(0)
            if block + j < scales.shape[1] and rows[i] >= 0:
                bytes = Int32(SCALE)
            at = thread + i * threads
            whole = const_expr((i + 1) * threads <= count)
            target = ring.iterator.toint() + cute.crd2idx((at, j, slot), ring.layout) * SCALE
            source = column + Int64(rows[i]) * scales.stride[0] * SCALE
            if whole or at < count:
                copy_chunk(target, source, bytes, SCALE)


def _unhoisted(value):
    """The same u32, computed where this stands."""
    result = llvm.inline_asm(T.i32(), [value.ir_value()], "mov.b32 $0, $1;", "=r,r", has_side_effects=True)
    return Uint32(result)
