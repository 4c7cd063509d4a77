"""torch._scaled_mm with scales of blocks as cuBLAS has it on Hopper, for machines without one."""

from __future__ import annotations

from typing import Any

from cutegen.runtime.gemm.tiling import spread_blocks


def scaled_mm(a: Any, b: Any, *, scale_a: Any, scale_b: Any, out_dtype: Any, use_fast_accum: bool, out: Any) -> None:
    """a (m, k), b (k, n) with k contiguous. scale_a (m, k/128), scale_b (k/128, n/128), both by columns."""
    (m, k), n = a.shape, b.shape[1]
    blocks = -(-k // 128)
    assert (a.stride(1), b.stride(0), out.dtype, use_fast_accum) == (1, 1, out_dtype, False)
    assert (scale_a.shape, scale_a.stride()) == ((m, blocks), (1, m))
    assert (scale_b.shape, scale_b.stride()) == ((blocks, -(-n // 128)), (1, blocks))
    assert m % 4 == blocks % 4 == n % 16 == 0
    left = a.float() * spread_blocks(scale_a, a.shape, 1, 128)
    right = b.t().float() * spread_blocks(scale_b.t(), b.t().shape, 128, 128)
    out.copy_(left @ right.t())
