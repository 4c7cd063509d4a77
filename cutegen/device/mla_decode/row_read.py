"""A kernel that reads the rows of a cache that indices name and does nothing with them: how fast that goes bounds
sparse decode attention."""

import functools

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint8
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

WARPS, CTAS = 8, 4  # of a CTA, and CTAs of an SM, for which 64 registers a thread are enough
ROWS = 4  # of a warp at once
CHUNK, WORDS = 16, 4  # bytes of one load, and words
LANES = 32


class RowRead:
    """Each warp reads a few rows at a time, 16 bytes a lane, and goes through the indices with the stride of the
    grid."""

    def __init__(self, page_size: int, row_bytes: int):
        self.page_size, self.row_bytes = page_size, row_bytes

    @cute.jit
    def __call__(
        self, kv_cache: cute.Tensor, indices: cute.Tensor, sink: cute.Tensor, sms: Int32, stream: cuda.CUstream
    ):
        self.kernel(kv_cache, indices, sink).launch(grid=[sms * CTAS, 1, 1], block=[WARPS * LANES, 1, 1], stream=stream)

    @cute.kernel
    def kernel(self, kv_cache: cute.Tensor, indices: cute.Tensor, sink: cute.Tensor):
        chunks = self.row_bytes // CHUNK
        rounds = (chunks + LANES - 1) // LANES
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        warp, lane = cta * WARPS + thread // LANES, thread % LANES
        count = indices.shape[0]
        words = cute.make_rmem_tensor((WORDS, rounds, ROWS), Int32)
        words.fill(0)
        found = Int32(0)
        for first in cutlass.range(ROWS * warp, count, ROWS * WARPS * ctas, unroll=1):
            index = Int32(-1)
            if lane < ROWS and first + lane < count:
                index = indices[first + lane]
            for i in cutlass.range_constexpr(ROWS):  # all loads before the first use
                row = cute.arch.shuffle_sync(index, i)
                if row >= 0 and row // self.page_size < kv_cache.shape[0]:
                    line = kv_cache[row // self.page_size, row % self.page_size, None]
                    for r in cutlass.range_constexpr(rounds):
                        if r * LANES + lane < chunks:
                            source = cute.local_tile(line, (CHUNK,), (r * LANES + lane,))
                            cute.autovec_copy(cute.recast_tensor(source, Int32), words[None, r, i])
            for i in cutlass.range_constexpr(WORDS * rounds * ROWS):
                found = found ^ words[i]
        if found == Int32(0x5EED5EED):  # so that nothing is left out; by chance in one of 2^32 threads
            sink[0] = found


@functools.cache
def compile_row_read(page_size: int, arch: str, row_bytes: int):
    """The compiled kernel, called as kernel(kv_cache u8[pages, page_size, row_bytes], indices i32[any], sink i32[1],
    SMs)."""
    arguments = (
        make_fake_tensor(
            Uint8,
            (cute.sym_int(), page_size, row_bytes),
            (cute.sym_int64(divisibility=16), cute.sym_int64(divisibility=16), 1),
            assumed_align=16,
        ),
        make_fake_tensor(Int32, (cute.sym_int(),), (1,), assumed_align=4),
        make_fake_tensor(Int32, (1,), (1,), assumed_align=4),
        Int32(1),
        make_fake_stream(use_tvm_ffi_env_stream=True),
    )
    options = f"--gpu-arch {arch} --enable-tvm-ffi"
    return cute.compile(RowRead(page_size, row_bytes), *arguments, options=options)
