"""Where a thread's WGMMA accumulators lie, and how one epilogue subtile of them reaches shared memory."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute.nvgpu import warp


def subtile_mma(epilogue_tile: tuple[int, int]):
    """A tiled MMA whose C partition is one epilogue subtile (m, n); only its layout is used, it multiplies nothing."""
    rows, columns = epilogue_tile
    op = warp.MmaF16BF16Op(cutlass.BFloat16, Float32, (16, 8, 16))
    return cute.make_tiled_mma(op, (rows // 16, 1, 1), permutation_mnk=(rows, columns, 16))


def first_element(tile_n: int, subtile_m: int, subtile_n: int, epilogue_n: int) -> int:
    """Index, among a thread's accumulators, of the first one of subtile (subtile_m, subtile_n).

    A thread holds tile_n / 2 values per 64-row wave, ordered by column (PTX ISA, wgmma.m64nNk16 D fragment).
    """
    return subtile_m * (tile_n // 2) + subtile_n * (epilogue_n // 2)


def subtiles(tile_n: int, rows: int, columns: int, epilogue_n: int, pair: int = 0) -> list[tuple[int, ...]]:
    """`first_element` of each of rows x columns subtiles, in the order of the epilogue: along m first. pair: how far
    the second accumulators of pairs are from the first ones; 0 without pairs."""
    firsts = [first_element(tile_n, m, n, epilogue_n) for n in range(columns) for m in range(rows)]
    return [(first, first + pair) if pair else (first,) for first in firsts]


@cute.jit
def fragment_origin(thread: Int32) -> tuple[Int32, Int32]:
    """(row, column) in the subtile of element 0 of `thread`, counted from the first epilogue thread."""
    lane = thread % 32
    return (thread // 32) * 16 + lane // 4, (lane % 4) * 2


def fragment_offset(i: int) -> tuple[int, int]:
    """(row, column) of element i of a fragment, from `fragment_origin`: pairs, then 8 rows on, then 8 columns."""
    return (i // 2) % 2 * 8, i // 4 * 8 + i % 2


@cute.jit
def read_columns(row: cute.Tensor, column: Int32, columns: cutlass.Constexpr):
    """(2, columns / 8, 1): the values of `row`, f32 (columns), for the accumulators of a thread in one row of the tile.

    column: of the thread's first accumulator, from `fragment_origin`.
    """
    values = cute.make_rmem_tensor((2, columns // 8, 1), Float32)
    own = row.iterator + cute.assume(column, divby=2)
    cute.autovec_copy(cute.make_tensor(own, cute.make_layout(values.shape, stride=(1, 8, 0))), values)
    return values


def _matrices(mma) -> int:
    """8 x 8 matrices that one instruction moves: 16 rows of a warp, 16 columns or, of a subtile that has 8, those."""
    return 4 if mma.get_tile_size(1) % 16 == 0 else 2


def store_copy(dtype, mma, *, n_major: bool):
    """Tiled copy of a subtile fragment to shared memory: stmatrix for 16-bit elements, plain stores for others."""
    if dtype.width == 16:
        op = warp.StMatrix8x8x16bOp(transpose=not n_major, num_matrices=_matrices(mma))
        atom = cute.make_copy_atom(op, dtype)
    else:
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype)
    return cute.make_tiled_copy_C(atom, mma)


def load_copy(dtype, mma, *, n_major: bool):
    """Tiled copy of a subtile from shared memory: ldmatrix for 16-bit elements, plain loads for 32-bit ones."""
    if dtype.width == 16:
        op = warp.LdMatrix8x8x16bOp(transpose=not n_major, num_matrices=_matrices(mma))
        atom = cute.make_copy_atom(op, dtype)
    else:
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype)
    return cute.make_tiled_copy_C(atom, mma)
