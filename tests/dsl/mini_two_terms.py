"""Splitting of f32 into two values of e4m3 by itself, as a kernel module: a thread takes four values of a row, each row
being times its power of two first."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Float8E4M3FN, Float32
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from cutegen.device.mla_decode import two_terms

WIDTH = 4  # values of a thread
ROW = 1024  # values


@cute.kernel
def kernel(values: cute.Tensor, tops: cute.Tensor, out: cute.Tensor, factors: cute.Tensor):
    thread, row = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    power, factor = two_terms.powers_for(tops[row])
    mine = cute.make_rmem_tensor(WIDTH, Float32)
    cute.autovec_copy(cute.zipped_divide(values[row, None], (WIDTH,))[None, thread], mine)
    for i in range(WIDTH):
        mine[i] = mine[i] * power
    high = cute.make_rmem_tensor(WIDTH, Float8E4M3FN)
    low = cute.make_rmem_tensor_like(high)
    two_terms.split(mine, high, low)
    for term, part in enumerate((high, low)):
        cute.autovec_copy(part, cute.zipped_divide(out[row, term, None], (WIDTH,))[None, thread])
    if thread == 0:
        factors[row] = factor


@cute.jit
def launch(values: cute.Tensor, tops: cute.Tensor, out: cute.Tensor, factors: cute.Tensor, stream: cuda.CUstream):
    terms = cute.make_tensor(cute.recast_ptr(out.iterator, dtype=Float8E4M3FN), out.layout)
    kernel(values, tops, terms, factors).launch(grid=[values.shape[0], 1, 1], block=[ROW // WIDTH, 1, 1], stream=stream)


def compile_kernel(tiling: None, options: str):
    """Called as compiled(values f32 (n, ROW), tops f32 (n,): their largest magnitudes, out e4m3 as i8 (n, 2, ROW),
    factors f32 (n,))."""
    from cutlass import Int8

    rows = cute.sym_int()
    return cute.compile(
        launch,
        make_fake_tensor(Float32, (rows, ROW), (ROW, 1), assumed_align=16),
        make_fake_tensor(Float32, (rows,), (1,), assumed_align=4),
        make_fake_tensor(Int8, (rows, 2, ROW), (2 * ROW, ROW, 1), assumed_align=16),
        make_fake_tensor(Float32, (rows,), (1,), assumed_align=4),
        make_fake_stream(use_tvm_ffi_env_stream=True),
        options=options,
    )
