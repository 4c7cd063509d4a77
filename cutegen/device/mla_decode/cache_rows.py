"""Rows of a quantised cache, told by the address at which each begins: one lane finds it, and others load by it."""

import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

CHUNK = 16  # bytes that a thread loads at once
NOWHERE = 1  # where a row begins that is none: rows of a cache begin at multiples of CHUNK


@cute.jit
def fetch(into: cute.Tensor, row_at: Int64, lane: Int32, column: Int64):
    """Asks for a chunk, from byte `column` on, of the row that a lane of this warp has found; where it has found none,
    `into` stays as it is. into: four i32."""
    low = cute.arch.shuffle_sync(Int32(row_at), lane)
    high = cute.arch.shuffle_sync(Int32(row_at >> 32), lane)
    if low & NOWHERE == 0:
        begin = Int64(high) << 32 | Int64(Uint32(low))
        cute.autovec_copy(chunk(begin + column, cute.AddressSpace.gmem), into)


def chunk(at, space):
    """The 16 bytes at an address, as four i32."""
    return cute.make_tensor(cute.make_ptr(Int32, at, space, assumed_align=CHUNK), cute.make_layout(4))


def kept(value: Int32) -> Int32:
    """The same value, in a register: the compiler would compute it again at each use."""
    return Int32(llvm.inline_asm(T.i32(), [value.ir_value()], "mov.b32 $0, $1;", "=r,r", has_side_effects=True))
