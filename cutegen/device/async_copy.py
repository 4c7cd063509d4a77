"""cp.async: each thread copies some bytes to shared memory, past its registers."""

from cutlass import Int32
from cutlass._mlir.dialects import llvm

CHUNK = 16  # bytes of one cp.async
SWIZZLE_ROW = 128  # bytes after which a swizzle moves the chunks in another way


def swizzled(offset, swizzle: int):
    """Where a swizzle of that many bytes puts an offset into a tile (PTX ISA, swizzle modes): the bits above 7, one for
    each of a row's chunks, are added to those of the chunk."""
    return offset ^ ((offset // SWIZZLE_ROW & (swizzle // CHUNK - 1)) * CHUNK)


def copy_chunk(to, source, bytes, size: int = CHUNK):
    """`size` bytes, of which the first `bytes` are read and the others zero (PTX ISA, cp.async: 16 bytes may bypass L1,
    4 may not)."""
    text = f"cp.async.{'cg' if size == CHUNK else 'ca'}.shared.global [$0], [$1], {size}, $2;"
    llvm.inline_asm(
        None, [Int32(to).ir_value(), source.ir_value(), bytes.ir_value()], text, "r,l,r", has_side_effects=True
    )
