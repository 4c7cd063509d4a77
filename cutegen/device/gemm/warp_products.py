"""Products by mma.sync: which rows and columns a warp has, how it reads operands from shared memory and multiplies.

The warps of a tile lie along m: warp w of W has rows 16 w to 16 w + 15 of every 16 W, and all columns, so that a thread
has the elements that WGMMA would give it (`accumulator`). PTX ISA, "Matrix multiply-accumulate operation using mma
instruction": an instruction contracts 32 bytes of k, of which each kind of operand has the bytes in the same registers.
"""

import math
from dataclasses import dataclass

import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, const_expr
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import warp
from cutlass.cutlass_dsl import T

MATRICES = 4  # of 8 rows of 16 bytes, that one ldmatrix brings: 16 rows of an operand


def tile_mma(warps):
    """The MMA of `warps` warps: 16 rows each, and 16 columns, those that one ldmatrix brings. Only its layout is used,
    in elements of 16 bits."""
    m, n, k = shape = (16, 8, 16)
    op = warp.MmaF16BF16Op(BFloat16, Float32, shape)
    return cute.make_tiled_mma(op, (warps, 1, 1), permutation_mnk=(m * warps, 2 * n, k))


def sum_shape(mma, tile):
    """((2, 2, bN/8), MMA_M, 1): the sums of a thread, in the order that `accumulator` has them in."""
    (_, rows, columns) = mma.partition_shape_C(tile[:2])
    return (2, 2, cute.size(columns)), cute.size(rows), 1


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

    def words(self, block):
        """(words, rows): the registers of a block of k, for a product."""
        return cute.recast_tensor(self.fragment[None, None, block], Int32)


def read_operand(mma, side, ring, thread, *, k_major, swizzle_bytes):
    """The WarpOperand of `thread` over a ring (rows, bK, stages), swizzled in rows of `swizzle_bytes`. side: "A" or
    "B"."""
    swizzle = cute.make_swizzle(int(math.log2(swizzle_bytes // 16)), 4, 3)  # of addresses, in 16 bytes
    places = cute.recast_layout(BFloat16.width, ring.element_type.width, ring.layout)
    ring = cute.make_tensor(cute.recast_ptr(ring.iterator, swizzle, dtype=BFloat16), places)
    own = mma.get_slice(thread)
    atom = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(transpose=not k_major, num_matrices=MATRICES), BFloat16)
    stage = ring[None, None, 0]
    if const_expr(side == "A"):
        copy, fragment = cute.make_tiled_copy_A(atom, mma), mma.make_fragment_A(own.partition_A(stage))
    else:
        copy, fragment = cute.make_tiled_copy_B(atom, mma), mma.make_fragment_B(own.partition_B(stage))
    thread_copy = copy.get_slice(thread)
    return WarpOperand(copy, thread_copy.partition_S(ring), thread_copy.retile(fragment), fragment)


@dataclass(frozen=True)
class WarpTile:
    """Both operands of a tile."""

    a: WarpOperand
    b: WarpOperand

    def load(self, block, stage):
        """Reads a block of k of a stage into registers."""
        self.a.load(block, stage)
        self.b.load(block, stage)

    def multiply(self, kind, sums, block, following=None, stage=None):
        """sums += A B^T for a block of k. kind: of mma.sync, behind `aligned`. sums: see `sum_shape`. following: a
        block of `stage`, which is read meanwhile."""
        products = list(self.products(sums, block))  # of what registers hold before that
        if following is not None:
            self.load(following, stage)
        for row, column, *words in products:
            multiply(kind, sums[(None, None, column), row, 0], *words)

    def products(self, sums, block):
        """(row, column, words of A, words of B) of each product of 16 x 8."""
        a, b = self.a.words(block), self.b.words(block)
        for column in range(sums.shape[0][2]):
            for row in range(sums.shape[1]):
                yield row, column, [a[i, row] for i in range(4)], [b[i, column] for i in range(2)]


def multiply(kind, sums, a, b, *scales):
    """sums (2, 2) += a b^T for 16 rows and 8 columns, of 4 words of A and 2 of B. scales: (word, first byte, thread or
    pair of threads of four that hold it) of A and of B, where the kind has them."""
    letter, each = ("f", T.f32()) if sums.element_type is Float32 else ("r", T.i32())
    old = [sums[i] for i in range(4)]
    text = f"mma.sync.aligned.{kind} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}}"
    for place, (_, byte, thread) in enumerate(scales, 14):
        text += f", {{${place}}}, {{{byte}, {thread}}}"
    places = [*[f"={letter}"] * 4, *"r" * 6, *letter * 4, *"r" * len(scales)]
    words = [*(Int32(x) for x in (*a, *b)), *old, *(Int32(word) for word, _, _ in scales)]
    operands = [word.ir_value() for word in words]
    result = llvm.inline_asm(llvm.StructType.get_literal([each] * 4), operands, f"{text};", ",".join(places))
    for i in range(4):
        sums[i] = type(old[i])(llvm.extractvalue(each, result, [i]))
