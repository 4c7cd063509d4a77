"""The join of MLA decode by itself, as a kernel module: a CTA is a part that has published already, or half of one."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Constexpr, Float16, Float32, Int32
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from cutegen.device.mla_decode import split_join

WARPS = 8


@cute.kernel
def kernel(
    partial_out: cute.Tensor,
    partial_lse: cute.Tensor,
    out: cute.Tensor,
    lse: cute.Tensor,
    origin: Int32,
    rows: Int32,
    lo: Int32,
    splits: Int32,
    joins: Int32,
    column_blocks: Constexpr[int],
):
    warp, cta = cute.arch.thread_idx()[0] // 32, cute.arch.block_idx()[0]
    part = cta // column_blocks
    if joins == split_join.SHARE or part == splits - 1:
        split_join.join(
            *(partial_out, partial_lse, out, lse, origin, rows, lo + part, lo, splits, joins, warp, WARPS, 1.0),
            *(cta % column_blocks, column_blocks),
        )


@cute.jit
def launch(
    partial_out: cute.Tensor,
    partial_lse: cute.Tensor,
    out: cute.Tensor,
    lse: cute.Tensor,
    origin: Int32,
    rows: Int32,
    lo: Int32,
    splits: Int32,
    joins: Int32,
    column_blocks: Constexpr[int],
    stream: cuda.CUstream,
):
    kernel(partial_out, partial_lse, out, lse, origin, rows, lo, splits, joins, column_blocks).launch(
        grid=[splits * column_blocks, 1, 1], block=[WARPS * 32, 1, 1], stream=stream
    )


def compile_kernel(column_blocks: int, options: str):
    """Called as compiled(partial_out (slots, rows, 512) f16, partial_lse (slots * column_blocks, rows, 2), out (rows,
    512), lse (rows,), origin, rows, lo, splits, joins); what is not f16 is f32. joins: SHARE, or ALL for the last part
    and NONE for the others."""
    slots, rows, lse_slots = cute.sym_int(), cute.sym_int(), cute.sym_int()

    def stride():
        return cute.sym_int64(divisibility=8)

    return cute.compile(
        launch,
        make_fake_tensor(Float16, (slots, rows, 512), (stride(), stride(), 1), assumed_align=16),
        make_fake_tensor(Float32, (lse_slots, rows, 2), (cute.sym_int64(divisibility=2), 2, 1), assumed_align=8),
        make_fake_tensor(Float32, (rows, 512), (stride(), 1), assumed_align=16),
        make_fake_tensor(Float32, (rows,), (1,), assumed_align=4),
        *(Int32(0) for _ in range(5)),
        column_blocks,
        make_fake_stream(use_tvm_ffi_env_stream=True),
        options=options,
    )
