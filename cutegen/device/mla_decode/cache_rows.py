"""Rows of a quantised cache, told by the address at which each begins."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

CHUNK = 16  # bytes that a thread loads at once
NOWHERE = 1  # where a row begins that is none: rows of a cache begin at multiples of CHUNK


@cute.jit
def fetch(into: cute.Tensor, begin: Int64, offset: cutlass.Constexpr[int]):
    """Asks for the chunk `offset` bytes behind `begin`; where that says NOWHERE, `into` stays as it is. into: four
    i32."""
    if Int32(begin) & NOWHERE == 0:
        cute.autovec_copy(chunk(begin + offset, cute.AddressSpace.gmem), into)


def chunk(at, space):
    """The 16 bytes at an address, as four i32."""
    return cute.make_tensor(cute.make_ptr(Int32, at, space, assumed_align=CHUNK), cute.make_layout(4))


def kept(value: Int32) -> Int32:
    """The same value, in a register: the compiler would compute it again at each use."""
    return Int32(llvm.inline_asm(T.i32(), [value.ir_value()], "mov.b32 $0, $1;", "=r,r", has_side_effects=True))


def ask_for(at: Int64, size: Int32):
    """Has L2 load `size` bytes at an address; both are multiples of CHUNK."""
    operands = [at.ir_value(), size.ir_value()]
    llvm.inline_asm(None, operands, "cp.async.bulk.prefetch.L2.global [$0], $1;", "l,r", has_side_effects=True)


def ask_for_line(at: Int64):
    """Has L2 load the line of an address."""
    cute.arch.prefetch(cute.make_ptr(Uint8, at, cute.AddressSpace.gmem).llvm_ptr, cache_level="L2")
