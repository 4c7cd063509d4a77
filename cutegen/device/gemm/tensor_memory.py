"""Sums of products in tensor memory: where they lie, and how an epilogue thread reads and stages a subtile of them."""

import cutlass.cute as cute
from cutlass.cute.nvgpu import tcgen05

ACCESS_BITS = 128  # of a thread's widest access to shared memory
LOAD_COLUMNS = 32  # of one tcgen05.ld


def view_sums(mma, address, tile, count):
    """(address, ((128, bN), 1, 1, count)): the `count` sums of `tile` = (m, n) of one product that lie where the
    allocation was written to `address`."""
    base = cute.arch.retrieve_tmem_ptr(mma.op.acc_dtype, alignment=16, ptr_to_buffer_holding_addr=address)
    shape = cute.append(mma.partition_shape_C(tile), count)
    return base, cute.make_tensor(base, mma.make_fragment_C(shape).layout)


def load_copy(sums, epilogue_tile, thread):
    """(copy, source, shape) of what `thread` reads of an epilogue tile (128, eN): its row. source: (copy, 1, loads, 1,
    subtiles, count); shape: of the registers for one."""
    columns = tcgen05.Repetition(min(epilogue_tile[1], LOAD_COLUMNS))
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(columns), sums.element_type)
    subtiles = cute.flat_divide(sums[(None, None), 0, 0, None], epilogue_tile)  # (128, eN, 1, subtiles, count)
    copy = tcgen05.make_tmem_copy(atom, subtiles[None, None, 0, 0, 0]).get_slice(thread)
    shape = copy.partition_D(cute.make_identity_tensor(epilogue_tile)).shape
    return copy, copy.partition_S(subtiles), shape


def row_copy(dtype, n_major=True):
    """Tiled copy of rows, one a thread, to shared memory or from there. Where rows are not contiguous there, a thread
    moves element by element, and those of a warp are side by side."""
    width = _width(dtype, n_major)
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype, num_bits_per_copy=width * dtype.width)
    return cute.make_tiled_copy_tv(atom, cute.make_layout((128, 1)), cute.make_layout((1, width)))


def as_row(values, n_major=True):
    """A thread's values of a row, as `row_copy` takes them."""
    width = _width(values.element_type, n_major)
    layout = cute.make_layout(((width, 1), 1, cute.size(values) // width), stride=((1, 0), 0, width))
    return cute.make_tensor(values.iterator, layout)


def _width(dtype, n_major):
    """Elements that a thread moves at once."""
    return ACCESS_BITS // dtype.width if n_major else 1
