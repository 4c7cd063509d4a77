"""A small SM100 GEMM in the style of what is generated, D = A B^T in bf16, whose protocol can be broken on purpose.

Persistent CTAs, or pairs of them, of six warps: one loads by TMA into a ring, one issues tcgen05.mma to tensor memory,
four read accumulators and store them by TMA.
"""

from __future__ import annotations

from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, const_expr, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from cutegen.device import tma
from cutegen.device.dsl import SmemAllocator
from cutegen.device.gemm.tile_scheduler import TileScheduler
from cutegen.device.smem import epilogue_layout, smem_tensor, staged_layout

STORED, ALLOCATED = 1, 2  # named barriers
ROWS, COLUMNS = 128, 32  # of a CTA's tile; of what is stored at once
THREADS = 192


@dataclass(frozen=True)
class MiniTiling:
    """ctas: that one product is spread over. columns: of tensor memory. What follows are ways to break the protocol."""

    ctas: int = 1
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 3
    store_stages: int = 2
    group: int = 2
    accumulators: int = 2
    columns: int = 256
    wait_load: bool = True  # for tcgen05.ld
    released: str = "after the wait"  # of accumulators: or "before the load", or "before the wait"


@dataclass(frozen=True)
class Operands:
    mma: cute.TiledMma
    tma_a: cute.CopyAtom
    tma_b: cute.CopyAtom
    m_a: cute.Tensor
    m_b: cute.Tensor
    s_a: cute.Tensor
    s_b: cute.Tensor
    tma_d: cute.CopyAtom
    m_d: cute.Tensor
    s_d: cute.Tensor
    ring: pipeline.PipelineTmaUmma
    acc: pipeline.PipelineUmmaAsync
    tiles: TileScheduler
    tmem_slot: cute.Pointer
    freed: cute.Pointer
    leads: Boolean


class MiniTcgen05:
    def __init__(self, tiling: MiniTiling):
        self.tiling = tiling

    def layouts(self):
        t = self.tiling
        ring = {"columns_contiguous": True, "swizzle_bytes": 128}
        return (
            staged_layout(BFloat16, ROWS, t.tile_k, t.stages, **ring),
            staged_layout(BFloat16, t.tile_n // t.ctas, t.tile_k, t.stages, **ring),
            epilogue_layout(BFloat16, (ROWS, COLUMNS), t.store_stages, n_major=True),
        )

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, sm_count: Int32, stream: cuda.CUstream):
        t = self.tiling
        group = tcgen05.CtaGroup.TWO if t.ctas == 2 else tcgen05.CtaGroup.ONE
        a_layout, b_layout, d_layout = self.layouts()
        load = cpasync.CopyBulkTensorTileG2SOp(group)
        tma_a, m_a = cpasync.make_tiled_tma_atom(load, a, tma._slot(a_layout), (ROWS, t.tile_k))
        tma_b, m_b = cpasync.make_tiled_tma_atom(load, b, tma._slot(b_layout), (t.tile_n // t.ctas, t.tile_k))
        tma_d, m_d = tma.store_atom(d, d_layout, (ROWS, COLUMNS))
        k_major = OperandMajorMode.K
        op = tcgen05.MmaF16BF16Op(
            BFloat16, Float32, (ROWS * t.ctas, t.tile_n, 16), group, tcgen05.OperandSource.SMEM, k_major, k_major
        )

        @cute.struct
        class SharedStorage:
            ring_barriers: cute.struct.MemRange[Int64, 2 * t.stages]
            acc_barriers: cute.struct.MemRange[Int64, 2 * t.accumulators]
            freed: cute.struct.MemRange[Int64, 1]
            tmem_slot: cute.struct.MemRange[Int32, 1]
            s_a: cute.struct.Align[cute.struct.MemRange[BFloat16, cute.cosize(a_layout)], 1024]
            s_b: cute.struct.Align[cute.struct.MemRange[BFloat16, cute.cosize(b_layout)], 1024]
            s_d: cute.struct.Align[cute.struct.MemRange[BFloat16, cute.cosize(d_layout)], 1024]

        self.storage = SharedStorage
        rows, columns = cute.ceil_div(a.shape[0], ROWS * t.ctas), cute.ceil_div(b.shape[0], t.tile_n)
        tiles = TileScheduler(Int32(rows), Int32(columns), Int32(1), (t.ctas, 1), True, t.group)
        clusters = cutlass.min(tiles.count(), sm_count // t.ctas)
        self.kernel(cute.make_tiled_mma(op), tma_a, m_a, tma_b, m_b, tma_d, m_d, tiles).launch(
            grid=[t.ctas, 1, clusters], block=[THREADS, 1, 1], cluster=[t.ctas, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        tma_a: cute.CopyAtom,
        m_a: cute.Tensor,
        tma_b: cute.CopyAtom,
        m_b: cute.Tensor,
        tma_d: cute.CopyAtom,
        m_d: cute.Tensor,
        tiles: TileScheduler,
    ):
        t = self.tiling
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        a_layout, b_layout, d_layout = self.layouts()
        storage = SmemAllocator().allocate(self.storage)
        peers = cute.tiled_divide(cute.make_layout((t.ctas, 1, 1)), (mma.thr_id.shape,))
        thread = pipeline.Agent.Thread
        ring = pipeline.PipelineTmaUmma.create(
            barrier_storage=storage.ring_barriers.data_ptr(),
            num_stages=t.stages,
            producer_group=pipeline.CooperativeGroup(thread),
            consumer_group=pipeline.CooperativeGroup(thread, 1),
            tx_count=(ROWS + t.tile_n // t.ctas) * t.tile_k * 2 * t.ctas,
            cta_layout_vmnk=peers,
            defer_sync=True,
        )
        acc = pipeline.PipelineUmmaAsync.create(
            barrier_storage=storage.acc_barriers.data_ptr(),
            num_stages=t.accumulators,
            producer_group=pipeline.CooperativeGroup(thread),
            consumer_group=pipeline.CooperativeGroup(thread, 4 * t.ctas),
            cta_layout_vmnk=peers,
            defer_sync=True,
        )
        freed = storage.freed.data_ptr()
        if warp == 0 and const_expr(t.ctas == 2):
            with cute.arch.elect_one():
                cute.arch.mbarrier_init(freed, 32)
        cute.arch.mbarrier_init_fence()
        pipeline.pipeline_init_arrive(cluster_shape_mn=peers, is_relaxed=True)
        pipeline.pipeline_init_wait(cluster_shape_mn=peers)
        rank, _, _ = cute.arch.block_in_cluster_idx()
        o = Operands(
            mma,
            tma_a,
            tma_b,
            m_a,
            m_b,
            smem_tensor(storage.s_a, a_layout),
            smem_tensor(storage.s_b, b_layout),
            tma_d,
            m_d,
            smem_tensor(storage.s_d, d_layout),
            ring,
            acc,
            tiles,
            storage.tmem_slot.data_ptr(),
            freed,
            rank == 0,
        )
        if warp < 4:
            self.store(o)
        elif warp == 4:
            self.multiply(o)
        else:
            self.load(o)

    @cute.jit
    def load(self, o: Operands):
        t = self.tiling
        rank, _, _ = cute.arch.block_in_cluster_idx()
        g_a = cute.local_tile(o.m_a, (ROWS, t.tile_k), (None, None))
        g_b = cute.local_tile(o.m_b, (t.tile_n // t.ctas, t.tile_k), (None, None))
        to_a, from_a = tma.partition(o.tma_a, o.s_a, g_a)
        to_b, from_b = tma.partition(o.tma_b, o.s_b, g_b)
        fill = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, t.stages)
        _, _, first = cute.arch.block_idx()
        _, _, step = cute.arch.grid_dim()
        for index in cutlass.range(first, o.tiles.count(), step, unroll=1):
            m, n, _ = o.tiles.tile(index)
            for k in cutlass.range(cute.size(g_a, mode=[3]), unroll=1):
                o.ring.producer_acquire(fill)
                full = o.ring.producer_get_barrier(fill)
                cute.copy(o.tma_a, from_a[None, m, k], to_a[None, fill.index], tma_bar_ptr=full)
                cute.copy(o.tma_b, from_b[None, n * t.ctas + rank, k], to_b[None, fill.index], tma_bar_ptr=full)
                fill.advance()
        o.ring.producer_tail(fill)

    @cute.jit
    def accumulators(self, o: Operands):
        """Where tensor memory was allocated, and ((128, bN), 1, 1, stages) of it."""
        t = self.tiling
        cute.arch.barrier(barrier_id=ALLOCATED, number_of_threads=160)
        base = cute.arch.retrieve_tmem_ptr(Float32, alignment=16, ptr_to_buffer_holding_addr=o.tmem_slot)
        shape = cute.append(o.mma.partition_shape_C((ROWS * t.ctas, t.tile_n)), t.accumulators)
        return base, cute.make_tensor(base, o.mma.make_fragment_C(shape).layout)

    @cute.jit
    def multiply(self, o: Operands):
        t = self.tiling
        _, acc = self.accumulators(o)
        if o.leads:
            a = o.mma.make_fragment_A(cute.tiled_divide(o.s_a, (ROWS, 16)))  # (MMA, MMA_M, MMA_K, stages)
            b = o.mma.make_fragment_B(cute.tiled_divide(o.s_b, (t.tile_n // t.ctas, 16)))
            drain = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, t.stages)
            fill = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, t.accumulators)
            mma = cute.make_mma_atom(o.mma.op)
            _, _, first = cute.arch.block_idx()
            _, _, step = cute.arch.grid_dim()
            k_tiles = cute.ceil_div(o.m_a.shape[1], t.tile_k)
            for _index in cutlass.range(first, o.tiles.count(), step, unroll=1):
                o.acc.producer_acquire(fill)
                mma.set(tcgen05.Field.ACCUMULATE, False)
                sums = acc[None, None, None, fill.index]
                for _k in cutlass.range(k_tiles, unroll=1):
                    o.ring.consumer_wait(drain)
                    for block in cutlass.range_constexpr(t.tile_k // 16):
                        at = (None, None, block, drain.index)
                        cute.gemm(mma, sums, a[at], b[at], sums)
                        mma.set(tcgen05.Field.ACCUMULATE, True)
                    o.ring.consumer_release(drain)
                    drain.advance()
                o.acc.producer_commit(fill)
                fill.advance()
            o.acc.producer_tail(fill)

    @cute.jit
    def release(self, o: Operands, state):
        with cute.arch.elect_one():
            o.acc.consumer_release(state)

    @cute.jit
    def store(self, o: Operands):
        t = self.tiling
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        if warp == 0:
            cute.arch.alloc_tmem(t.columns, o.tmem_slot, is_two_cta=t.ctas == 2)
        base, acc = self.accumulators(o)
        rank, _, _ = cute.arch.block_in_cluster_idx()
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(COLUMNS)), Float32)
        subtiles = cute.flat_divide(acc[(None, None), 0, 0, None], (ROWS, COLUMNS))  # (128, 32, 1, count, stages)
        get = tcgen05.make_tmem_copy(atom, subtiles[None, None, 0, 0, 0]).get_slice(thread)
        from_acc = get.partition_S(subtiles)
        held_shape = get.partition_D(cute.make_identity_tensor((ROWS, COLUMNS))).shape
        put_atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), BFloat16, num_bits_per_copy=128)
        put = cute.make_tiled_copy_tv(put_atom, cute.make_layout((ROWS, 1)), cute.make_layout((1, 8)))
        to_smem = put.get_slice(thread).partition_D(o.s_d)  # (8, 1, COLUMNS / 8, slots)
        from_smem, to_gmem = tma.partition(o.tma_d, o.s_d, cute.local_tile(o.m_d, (ROWS, COLUMNS), (None, None)))
        drain = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, t.accumulators)
        slot = Int32(0)
        _, _, first = cute.arch.block_idx()
        _, _, step = cute.arch.grid_dim()
        count = t.tile_n // COLUMNS
        for index in cutlass.range(first, o.tiles.count(), step, unroll=1):
            m, n, _ = o.tiles.tile(index)
            o.acc.consumer_wait(drain)
            for s in cutlass.range_constexpr(count):
                r = cute.make_rmem_tensor((COLUMNS,), Float32)
                if const_expr(s == count - 1 and t.released == "before the load"):
                    self.release(o, drain)
                held = cute.make_tensor(r.iterator, held_shape)
                cute.copy(get, from_acc[None, None, None, 0, s, drain.index], held)
                if const_expr(s == count - 1 and t.released == "before the wait"):
                    self.release(o, drain)
                if const_expr(t.wait_load):
                    cute.arch.fence_view_async_tmem_load()
                if const_expr(s == count - 1 and t.released == "after the wait"):
                    self.release(o, drain)
                rounded = cute.make_rmem_tensor((COLUMNS,), BFloat16)
                for i in cutlass.range_constexpr(COLUMNS):
                    rounded[i] = r[i].to(BFloat16)
                row = cute.make_layout(((8, 1), 1, COLUMNS // 8), stride=((1, 0), 0, 8))
                cute.copy(put, cute.make_tensor(rounded.iterator, row), to_smem[None, None, None, slot])
                cute.arch.fence_proxy("async.shared", space="cta")
                if warp == 0:
                    cute.arch.cp_async_bulk_wait_group(t.store_stages - 2, read=True)
                cute.arch.barrier(barrier_id=STORED, number_of_threads=128)
                if warp == 0:
                    cute.copy(o.tma_d, from_smem[None, slot], to_gmem[None, m, n * count + s])
                    cute.arch.cp_async_bulk_commit_group()
                slot = slot + 1
                if slot == t.store_stages:
                    slot = Int32(0)
            drain.advance()
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier(barrier_id=STORED, number_of_threads=128)
        if warp == 0:
            cute.arch.relinquish_tmem_alloc_permit(is_two_cta=t.ctas == 2)
            if const_expr(t.ctas == 2):
                cute.arch.mbarrier_arrive(o.freed, rank ^ 1)
                cute.arch.mbarrier_wait(o.freed, 0)
            cute.arch.dealloc_tmem(base, t.columns, is_two_cta=t.ctas == 2)


def fake_arguments() -> tuple:
    m, n, k = cute.sym_int(), cute.sym_int(divisibility=8), cute.sym_int(divisibility=8)
    tensors = [
        make_fake_tensor(BFloat16, shape, (cute.sym_int64(divisibility=8), 1), assumed_align=16)
        for shape in ((m, k), (n, k), (m, n))
    ]
    return (*tensors, Int32(0), make_fake_stream(use_tvm_ffi_env_stream=True))


def compile_kernel(tiling: MiniTiling, options: str):
    MiniTcgen05.kernel.set_name_prefix("mini_tcgen05", remove_cutlass_symbol=True, keep_mangled_name=False)
    return cute.compile(MiniTcgen05(tiling), *fake_arguments(), options=options)
