"""Rows of tensor memory in the registers of a warpgroup: lane i of it is thread i's.

Source: PTX ISA, "tcgen05.ld" and "tcgen05.st", shape .32x32b: a warp reaches the 32 lanes of its place in a warpgroup.
"""

import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import tcgen05

LANES, LANE_STRIDE = 128, 1 << 16  # of tensor memory; an address has the lane in its upper half


def base_of(address):
    """The tensor memory whose allocation was written to `address`, of f32."""
    return cute.arch.retrieve_tmem_ptr(Float32, alignment=16, ptr_to_buffer_holding_addr=address)


def _rows(base, columns):
    return cute.make_tensor(base, cute.make_layout((LANES, columns), stride=(LANE_STRIDE, 1)))


@cute.jit
def load(base: cute.Pointer, values: cute.Tensor, thread):
    """A thread's columns from `base` on, as many as `values` has. They are there behind
    `cute.arch.fence_view_async_tmem_load`."""
    columns = cute.size(values)
    rows, identity = _rows(base, columns), cute.make_identity_tensor((LANES, columns))
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(columns)), Float32)
    copy = tcgen05.make_tmem_copy(atom, rows).get_slice(thread)
    target = cute.make_tensor(values.iterator, cute.make_layout(copy.partition_D(identity).shape))
    cute.copy(copy, copy.partition_S(rows), target)


@cute.jit
def store(values: cute.Tensor, base: cute.Pointer, thread):
    """The other way. They are there behind `cute.arch.fence_view_async_tmem_store`."""
    columns = cute.size(values)
    rows, identity = _rows(base, columns), cute.make_identity_tensor((LANES, columns))
    atom = cute.make_copy_atom(tcgen05.St32x32bOp(tcgen05.Repetition(columns)), Float32)
    copy = tcgen05.make_tmem_copy(atom, rows).get_slice(thread)
    source = cute.make_tensor(values.iterator, cute.make_layout(copy.partition_S(identity).shape))
    cute.copy(copy, source, copy.partition_D(rows))
