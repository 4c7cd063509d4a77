"""Scales by which mma.sync multiplies while it sums, as a warp holds them: packed ones (`packed_scales`), of one chunk
of 128 rows of A, 16 rows a warp, and one of 128 columns of B, for 4 blocks of k.

PTX ISA, "Block scaling for mma.sync": a word has the scales of a row, or of a column, for up to 4 blocks. Of four
threads the first two hold the words of two rows of A, 8 apart, and one holds that of a column of B: the instruction
says which.
"""

from dataclasses import dataclass

import cutlass.cute as cute
from cutlass import Int32

from cutegen.device.gemm.packed_scales import BLOCKS, WORDS
from cutegen.device.gemm.warp_products import WarpTile, multiply

GROUP = 32  # rows; those of a chunk that are so far apart have words side by side


@dataclass(frozen=True)
class WarpScales:
    """Of A or B. source: (words, chunks of k, stages) of a thread; fragment: the registers of one stage."""

    source: cute.Tensor
    fragment: cute.Tensor

    def load(self, chunk, stage):
        cute.autovec_copy(self.source[None, chunk, stage], self.fragment[None, chunk])


@dataclass(frozen=True)
class ScaledWarpTile:
    """Both operands of a tile, and their scales."""

    operands: WarpTile
    a: WarpScales
    b: WarpScales

    def load(self, block, stage):
        """Reads a block of k of a stage into registers, with the chunk of scales that begins there."""
        self.operands.load(block, stage)
        products = self._products_of_chunk()
        if block % products == 0:
            self.a.load(block // products, stage)
            self.b.load(block // products, stage)

    def multiply(self, kind, sums, block, following=None, stage=None):
        """sums += (A sa) (B sb)^T; else as `WarpTile.multiply`."""
        each = self._products_of_chunk()
        chunk, byte = block // each, block % each * (BLOCKS // each)
        products = [
            (
                sums[(None, None, column), row, 0],
                a,
                b,
                (self.a.fragment[0, chunk], byte, 0),
                (self.b.fragment[column // 4, chunk], byte, column % 4),
            )
            for row, column, a, b in self.operands.products(sums, block)
        ]
        if following is not None:
            self.load(following, stage)
        for product in products:
            multiply(kind, *product)

    def _products_of_chunk(self):
        """How many products along k a chunk of scales is for."""
        return cute.size(self.operands.a.fragment, mode=[2]) // cute.size(self.a.fragment, mode=[1])


def read_rows(ring, thread):
    """The WarpScales of A over a ring (words, chunks of k, 1, stages) for `thread`: the word of one of its rows."""
    lane = thread % 32
    row = thread // 32 * 16 + lane % 2 * 8 + lane // 4
    return _read(ring, row % GROUP * 4 + row // GROUP, 1)


def read_columns(ring, thread):
    """The WarpScales of B over a ring (words, chunks of k, 1, stages) for `thread`: four words, of columns of every
    fourth product of 8 columns."""
    lane = thread % 32
    return _read(ring, cute.assume(Int32((lane % 4 * 8 + lane // 4) * 4), divby=4), 4)


def _read(ring, word, words):
    chunks = cute.size(ring, mode=[1])
    layout = cute.make_layout((words, chunks, cute.size(ring, mode=[3])), stride=(1, WORDS, WORDS * chunks))
    return WarpScales(cute.make_tensor(ring.iterator + word, layout), cute.make_rmem_tensor((words, chunks), Int32))
