"""A small SM90 GEMM whose compile contract can be broken on purpose, one switch per broken check.

One tile per CTA: a producer warp fills a ring of A/B stages by TMA, the consumer warpgroups multiply, the tile leaves
through stmatrix and one TMA store. D = A B^T in bf16; it is compiled here, never launched.
"""

from __future__ import annotations

from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils.hopper_helpers as sm90
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.utils import LayoutEnum

from cutegen.device.dsl import SmemAllocator

ROW = LayoutEnum.ROW_MAJOR


@dataclass(frozen=True)
class MiniTiling:
    """tile: (m, n, k). What follows smem_bytes are ways to break the contract."""

    tile: tuple[int, int, int] = (128, 128, 64)
    stages: int = 4
    consumers: int = 2
    threads: int = 384
    producer_registers: int = 40
    consumer_registers: int = 232
    smem_bytes: int = 164864
    dynamic_block: bool = False
    set_registers: bool = True
    tma_store: bool = True
    fence: bool = True
    in_flight: int = 0  # MMA groups still running when the accumulators are read


class MiniGemm:
    def __init__(self, tiling: MiniTiling):
        self.tiling = tiling

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, stream: cuda.CUstream):
        t = self.tiling
        m, n, k = t.tile
        dtype = a.element_type

        def swizzled(rows, columns, stages):
            atom = warpgroup.make_smem_layout_atom(sm90.get_smem_layout_atom(ROW, dtype, columns), dtype)
            return cute.tile_to_shape(atom, (rows, columns, stages), order=(0, 1, 2))

        layouts = [swizzled(m, k, t.stages), swizzled(n, k, t.stages), swizzled(m, n, 1)]
        load = cpasync.CopyBulkTensorTileG2SOp()
        one = (None, None, 0)
        atom_a, a_tma = cpasync.make_tiled_tma_atom(load, a, cute.slice_(layouts[0], one), (m, k))
        atom_b, b_tma = cpasync.make_tiled_tma_atom(load, b, cute.slice_(layouts[1], one), (n, k))
        store = cpasync.CopyBulkTensorTileS2GOp()
        atom_d, d_tma = cpasync.make_tiled_tma_atom(store, d, cute.slice_(layouts[2], one), (m, n))
        k_major = OperandMajorMode.K
        mma = sm90.make_trivial_tiled_mma(
            dtype, dtype, k_major, k_major, cutlass.Float32, (t.consumers, 1, 1), tiler_mn=(64, n)
        )

        @cute.struct
        class Storage:
            barriers: cute.struct.MemRange[cutlass.Int64, t.stages * 2]
            a: cute.struct.Align[cute.struct.MemRange[dtype, m * k * t.stages], 1024]
            b: cute.struct.Align[cute.struct.MemRange[dtype, n * k * t.stages], 1024]
            d: cute.struct.Align[cute.struct.MemRange[dtype, m * n], 1024]

        assert Storage.size_in_bytes() == t.smem_bytes, f"SharedStorage has {Storage.size_in_bytes()} bytes"
        self.storage = Storage
        grid = (cute.ceil_div(cute.size(d, mode=[0]), m), cute.ceil_div(cute.size(d, mode=[1]), n), 1)
        threads = cute.size(a, mode=[0]) if cutlass.const_expr(t.dynamic_block) else t.threads
        self.kernel(atom_a, a_tma, atom_b, b_tma, atom_d, d_tma, mma, *layouts).launch(
            grid=grid, block=[threads, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        atom_a: cute.CopyAtom,
        a: cute.Tensor,
        atom_b: cute.CopyAtom,
        b: cute.Tensor,
        atom_d: cute.CopyAtom,
        d: cute.Tensor,
        mma: cute.TiledMma,
        a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout,
        d_layout: cute.ComposedLayout,
    ):
        t = self.tiling
        m, n, k = t.tile
        thread, _, _ = cute.arch.thread_idx()
        block_m, block_n, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        ring = pipeline.PipelineTmaAsync.create(
            barrier_storage=storage.barriers.data_ptr(),
            num_stages=t.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * t.consumers),
            tx_count=(m + n) * k * 2,
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )
        sA = storage.a.get_tensor(a_layout.outer, swizzle=a_layout.inner)
        sB = storage.b.get_tensor(b_layout.outer, swizzle=b_layout.inner)
        sD = storage.d.get_tensor(d_layout.outer, swizzle=d_layout.inner)
        gA = cute.local_tile(a, (m, k), (block_m, None))
        gB = cute.local_tile(b, (n, k), (block_n, None))
        gD = cute.local_tile(d, (m, n), (block_m, block_n))
        one = cute.make_layout(1)
        group = cute.group_modes
        tAsA, tAgA = cpasync.tma_partition(atom_a, 0, one, group(sA, 0, 2), group(gA, 0, 2))
        tBsB, tBgB = cpasync.tma_partition(atom_b, 0, one, group(sB, 0, 2), group(gB, 0, 2))
        k_tiles = cute.size(gA, mode=[2])

        if warp < 4:
            if cutlass.const_expr(t.set_registers):
                cute.arch.setmaxregister_decrease(t.producer_registers)
            if warp == 0:
                fill = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, t.stages)
                for i in cutlass.range(k_tiles, unroll=1):
                    ring.producer_acquire(fill)
                    full = ring.producer_get_barrier(fill)
                    cute.copy(atom_a, tAgA[None, i], tAsA[None, fill.index], tma_bar_ptr=full)
                    cute.copy(atom_b, tBgB[None, i], tBsB[None, fill.index], tma_bar_ptr=full)
                    fill.advance()
                ring.producer_tail(fill)
        else:
            if cutlass.const_expr(t.set_registers):
                cute.arch.setmaxregister_increase(t.consumer_registers)
            consumer = thread - 128
            thr_mma = mma.get_slice(consumer)
            tCrA = mma.make_fragment_A(thr_mma.partition_A(sA))
            tCrB = mma.make_fragment_B(thr_mma.partition_B(sB))
            acc = cute.make_rmem_tensor(thr_mma.partition_shape_C((m, n)), cutlass.Float32)
            drain = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, t.stages)
            mma.set(warpgroup.Field.ACCUMULATE, False)
            for _ in cutlass.range(k_tiles, unroll=1):
                ring.consumer_wait(drain)
                if cutlass.const_expr(t.fence):
                    warpgroup.fence()
                for block in cutlass.range_constexpr(k // 16):
                    at = (None, None, block, drain.index)
                    cute.gemm(mma, acc, tCrA[at], tCrB[at], acc)
                    mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(t.in_flight)
                ring.consumer_release(drain)
                drain.advance()
            store = cute.make_copy_atom(cute.nvgpu.warp.StMatrix8x8x16bOp(False, 4), cutlass.BFloat16)
            thr_store = cute.make_tiled_copy_C(store, mma).get_slice(consumer)
            out = cute.make_rmem_tensor(acc.layout, cutlass.BFloat16)
            out.store(acc.load().to(cutlass.BFloat16))
            cute.copy(thr_store, thr_store.retile(out), thr_store.partition_D(sD[None, None, 0]))
            if cutlass.const_expr(t.tma_store):
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.barrier(barrier_id=1, number_of_threads=128 * t.consumers)
                sD_tma, gD_tma = cpasync.tma_partition(atom_d, 0, one, group(sD, 0, 2), group(gD, 0, 2))
                if warp == 4:
                    cute.copy(atom_d, sD_tma[None, 0], gD_tma)
                    cute.arch.cp_async_bulk_commit_group()
                    cute.arch.cp_async_bulk_wait_group(0, read=True)


def fake_arguments() -> tuple:
    m, n, k = cute.sym_int(), cute.sym_int(divisibility=8), cute.sym_int(divisibility=8)
    shapes = ((m, k), (n, k), (m, n))
    tensors = [
        make_fake_compact_tensor(cutlass.BFloat16, shape, stride_order=(1, 0), assumed_align=16) for shape in shapes
    ]
    return (*tensors, make_fake_stream(use_tvm_ffi_env_stream=True))


def compile_kernel(tiling: MiniTiling, options: str):
    MiniGemm.kernel.set_name_prefix("mini_gemm", remove_cutlass_symbol=True, keep_mangled_name=False)
    return cute.compile(MiniGemm(tiling), *fake_arguments(), options=options)
