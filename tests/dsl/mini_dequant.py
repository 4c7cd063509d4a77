"""Decoding of e4m3 by itself, as a kernel module: a CTA takes a scale, each of its threads four bytes. The first
CTA takes the bytes as codes of e8m0 as well."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from cutegen.device import dequant

WORDS = 64  # of four bytes: each of the 256


@cute.kernel
def kernel(words: cute.Tensor, scales: cute.Tensor, out: cute.Tensor, factors: cute.Tensor):
    thread, cta = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    pairs = cute.recast_tensor(out[cta, None], Int32)
    low, high = dequant.e4m3_to_bf16(words[thread], dequant.factor_of(scales[cta]))
    pairs[2 * thread] = low
    pairs[2 * thread + 1] = high
    if cta == 0:
        codes = words[thread]
        factors[thread, 0] = dequant.factors_of_codes(codes, 0, codes, 1)
        factors[thread, 1] = dequant.factors_of_codes(codes, 2, codes, 3)


@cute.jit
def launch(words: cute.Tensor, scales: cute.Tensor, out: cute.Tensor, factors: cute.Tensor, stream: cuda.CUstream):
    kernel(words, scales, out, factors).launch(grid=[scales.shape[0], 1, 1], block=[WORDS, 1, 1], stream=stream)


def compile_kernel(tiling: None, options: str):
    """Called as compiled(words i32 (64,), scales f32 (n,), out bf16 (n, 256), factors i32 (64, 2)): of
    the bytes as codes of e8m0, two in a word."""
    count = cute.sym_int()
    return cute.compile(
        launch,
        make_fake_tensor(Int32, (WORDS,), (1,), assumed_align=4),
        make_fake_tensor(Float32, (count,), (1,), assumed_align=4),
        make_fake_tensor(BFloat16, (count, 4 * WORDS), (4 * WORDS, 1), assumed_align=4),
        make_fake_tensor(Int32, (WORDS, 2), (2, 1), assumed_align=4),
        make_fake_stream(use_tvm_ffi_env_stream=True),
        options=options,
    )
