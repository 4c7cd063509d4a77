"""The join of reductions over rows by itself, as a kernel module: lines are written already."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from cutegen.device.dsl import SmemAllocator
from cutegen.device.rowwise import row_sums
from cutegen.runtime.rowwise.plan import piece_of

THREADS, VECTOR = 224, 8


@cute.kernel
def kernel(lines: cute.Tensor, total: cute.Tensor, top: cute.Tensor, count: Int32, ctas: Int32):
    @cute.struct
    class SharedStorage:
        joined: cute.struct.MemRange[Float32, THREADS // 32 * piece_of(VECTOR)]

    storage = SmemAllocator().allocate(SharedStorage)
    joined = storage.joined.get_tensor(cute.make_layout((THREADS // 32, piece_of(VECTOR))))
    share, shares, thread = cute.arch.block_idx()[0], cute.arch.grid_dim()[0], cute.arch.thread_idx()[0]
    of = (count, share, shares, ctas, thread, THREADS, VECTOR)
    row_sums.join_lines(lines, total, joined, 0, 2, *of, "sum")
    row_sums.join_lines(lines, top, joined, 1, 2, *of, "max")


@cute.jit
def launch(
    lines: cute.Tensor,
    total: cute.Tensor,
    top: cute.Tensor,
    count: Int32,
    ctas: Int32,
    shares: Int32,
    stream: cuda.CUstream,
):
    kernel(lines, total, top, count, ctas).launch(grid=[shares, 1, 1], block=[THREADS, 1, 1], stream=stream)


def compile_kernel(tiling: None, options: str):
    """Called as compiled(lines (2 * count, n) f32, total (n,) f32, top (n,) bf16, count, ctas, shares)."""
    count, n = cute.sym_int(), cute.sym_int(divisibility=VECTOR)
    return cute.compile(
        launch,
        make_fake_tensor(Float32, (count, n), (cute.sym_int64(divisibility=VECTOR), 1), assumed_align=16),
        make_fake_tensor(Float32, (n,), (1,), assumed_align=16),
        make_fake_tensor(BFloat16, (n,), (1,), assumed_align=16),
        Int32(0),
        Int32(0),
        Int32(0),
        make_fake_stream(use_tvm_ffi_env_stream=True),
        options=options,
    )
