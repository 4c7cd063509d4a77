"""Rows of a block table on their way to L2 before it is known which of them a CTA needs."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32

LINE = 32  # entries of the block table in 128 bytes
LINES = 128  # of a row of the block table that are prefetched: 4096 pages


@cute.jit
def prefetch_rows(table: cute.Tensor, part: Int32, parts: Int32):
    """Asks L2 for the rows of the block table that `part` reads if all requests are equally long. One warp calls it
    while another finds the part: where the guess is right, the first pages wait for one trip to memory less."""
    batch, pages = cute.size(table, mode=[0]), cute.size(table, mode=[1])
    each = (batch + parts - 1) // parts
    first = part * each
    if batch <= parts:
        first = cutlass.min(part // (parts // batch), batch - 1)
    for request in cutlass.range(first, cutlass.min(first + each, batch), unroll=1):
        row = table[request, None]
        lines = cutlass.min(pages // LINE + cutlass.min(pages, 1), LINES)  # a row may begin within a line
        for line in cutlass.range(cute.arch.lane_idx(), lines, 32, unroll=1):
            at = cutlass.min(line * LINE, pages - 1)
            cute.arch.prefetch((row.iterator + at).llvm_ptr, cache_level="L2")
