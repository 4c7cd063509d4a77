"""Tiles of an operand that reach past the last row of its tensor: which rows TMA loads of them.

TMA takes longer to write zeros for rows outside of a tensor than to load rows (docs/lab/2026-11-tuned-gemm.md, "Ragged
rows"). So such a tile comes in pieces of some rows, the last of them as a half where that is enough, and pieces without
a row of the tensor are left out. Their place in shared memory keeps what it held; only rows of the product that do not
exist are made of it.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, const_expr
from cutlass.cute.nvgpu import cpasync

from cutegen.device import pipeline_state, tma
from cutegen.runtime.gemm import pieces


def piece_rows(tile, dtype, multicast: int = 1) -> int:
    """Rows of a piece of what one of `multicast` CTAs loads of a tile (rows, k)."""
    return pieces.piece_rows(tile[0], tile[1] * dtype.width // 8, multicast)


def half_rows(tile, dtype, multicast: int = 1) -> int:
    """Rows of half a piece; of a piece where there are no pieces, or no halves of them."""
    return pieces.half_rows(tile[0], tile[1] * dtype.width // 8, multicast)


def piece_atom(tensor, staged_layout, tile, multicast=1):
    """The atom that loads a piece of `tile`, (rows, columns) of `tensor`, for `multicast` CTAs of the cluster; None
    where tiles are not cut into pieces. staged_layout: of the ring."""
    rows = piece_rows(tile, tensor.element_type, multicast)
    return _atom(tensor, staged_layout, (rows, tile[1]), multicast) if rows < tile[0] // multicast else None


def half_atom(tensor, staged_layout, tile, multicast=1):
    """The same of half a piece; None where there are no halves."""
    rows = half_rows(tile, tensor.element_type, multicast)
    whole = piece_rows(tile, tensor.element_type, multicast)
    return _atom(tensor, staged_layout, (rows, tile[1]), multicast) if rows < whole else None


def _atom(tensor, staged_layout, size, multicast):
    boxes = cute.flat_divide(staged_layout.outer, size)  # (rows, columns, boxes, 1, stages)
    slot = cute.make_composed_layout(staged_layout.inner, 0, cute.slice_(boxes, (None, None, 0, 0, 0)))
    atom, _ = cpasync.make_tiled_tma_atom(tma.load_op(multicast), tensor, slot, size)
    return atom


def partition(atom, smem, tile, gmem, multicast=1, rows=piece_rows):
    """Views ((TMA, pieces, 1, stages), (TMA, pieces, 1, tiles...)) of a ring and of a tensor cut into tiles. rows: of a
    piece, or `half_rows`."""
    if atom is None:
        return None, None
    size = (rows(tile, smem.element_type, multicast), tile[1])
    return tma.partition(atom, cute.flat_divide(smem, size), cute.flat_divide(gmem, size))


@dataclass(frozen=True)
class Pieces:
    """What this CTA loads of a tile. whole: all of its share; else the pieces first up to end, of which there may be
    none, and half of the next one if `half`. absent_bytes: of the tile, that no CTA loads."""

    whole: Boolean
    first: Int32
    end: Int32
    half: Boolean
    absent_bytes: Int32


def find_pieces(smem, tile, extent, number, cta, multicast: int) -> Pieces:
    """Of tile `number` of a tensor with `extent` rows. smem: the ring; cta: number of this one along the dim of the
    cluster whose CTAs share tiles, if `multicast` of them do: with 1 each loads all of its tile."""
    cta = cta if const_expr(multicast > 1) else 0
    rows, columns = tile
    size, unit = (find(tile, smem.element_type, multicast) for find in (piece_rows, half_rows))
    count, share, of_piece = rows // unit, rows // multicast // unit, size // unit  # units
    if share == of_piece:
        return Pieces(True, 0, 0, False, 0)
    present = cutlass.min((extent - number * rows + unit - 1) // unit, Int32(count))
    present = cutlass.max(present, Int32(0))  # a cluster may have more CTAs than there are tiles
    first = cta * share
    own = cutlass.max(cutlass.min(present - first, Int32(share)), Int32(0))
    whole = own == share
    begin = cta * (share // of_piece)
    end = cutlass.select_(whole, begin, begin + own // of_piece)
    absent_bytes = (count - present) * (unit * columns * smem.element_type.width // 8)
    return Pieces(whole, begin, end, own % of_piece != 0, absent_bytes)


def acquire(ring, state, tx_bytes):
    """Waits for a free slot, which `tx_bytes` will fill: `producer_acquire` of a ring whose slots get different
    amounts."""
    pipeline_state.wait_empty(ring, state)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(ring.producer_get_barrier(state), tx_bytes)
