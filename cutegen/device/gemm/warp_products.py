"""Products by mma.sync: which rows and columns a warp has, and how it reads its operands from shared memory.

The warps of a tile lie along m: warp w of W has rows 16 w to 16 w + 15 of every 16 W, and all columns, so that a thread
has the elements that WGMMA would give it (`accumulator`).
"""

from dataclasses import dataclass

import cutlass.cute as cute
from cutlass.cute.nvgpu import warp

MATRICES = 4  # of 8 rows of 16 bytes, that one ldmatrix brings: 16 rows of an operand


def tile_mma(op, warps):
    """The MMA of `warps` warps: 16 rows each, and 16 columns, those that one ldmatrix brings."""
    m, n, k = op.shape_mnk
    return cute.make_tiled_mma(op, (warps, 1, 1), permutation_mnk=(m * warps, 2 * n, k))


def sum_shape(mma, tile):
    """(2, 2, bN/8, MMA_M): the sums of a thread, in the order that `accumulator` has them in."""
    (_, rows, columns) = mma.partition_shape_C(tile[:2])
    return 2, 2, cute.size(columns), cute.size(rows)


def view_sums(acc):
    """((2, 2), MMA_M, bN/8): those sums as products write them."""
    _, _, columns, rows = acc.shape
    return cute.make_tensor(acc.iterator, cute.make_layout(((2, 2), rows, columns), stride=((1, 2), 4 * columns, 4)))


@dataclass(frozen=True)
class WarpOperand:
    """A or B of a tile. source: the ring as a thread reads it, (copy, rows, blocks of k, stages); target, fragment: the
    registers of one stage, as they are read to, and as (MMA, rows, blocks of k), of which the compiler keeps the blocks
    that are in use."""

    copy: cute.TiledCopy
    source: cute.Tensor
    target: cute.Tensor
    fragment: cute.Tensor

    def load(self, block, stage):
        """Reads a block of k of a stage into registers."""
        cute.copy(self.copy, self.source[None, None, block, stage], self.target[None, None, block])

    def block(self, block):
        """(MMA, rows): a block of k, for a product."""
        return self.fragment[None, None, block]


def read_operand(mma, side, ring, thread, *, k_major):
    """The WarpOperand of `thread` over a ring (rows, bK, stages). side: "A" or "B"."""
    own = mma.get_slice(thread)
    atom = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(transpose=not k_major, num_matrices=MATRICES), ring.element_type)
    stage = ring[None, None, 0]
    if side == "A":
        copy, fragment = cute.make_tiled_copy_A(atom, mma), mma.make_fragment_A(own.partition_A(stage))
    else:
        copy, fragment = cute.make_tiled_copy_B(atom, mma), mma.make_fragment_B(own.partition_B(stage))
    thread_copy = copy.get_slice(thread)
    return WarpOperand(copy, thread_copy.partition_S(ring), thread_copy.retile(fragment), fragment)
