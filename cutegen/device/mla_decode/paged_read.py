"""A kernel that reads the pages of a cache and does nothing with them: how fast that goes bounds decode attention."""

import functools

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from cutegen.device import tma
from cutegen.device.dsl import SmemAllocator
from cutegen.device.smem import smem_tensor, staged_layout

HEAD, TILE = 576, 64  # columns of a page, and of one box
TILES = HEAD // TILE
SMEM_BYTES = 221_184  # of pages in flight in each CTA


class PagedRead:
    """One warp a CTA; it keeps `stages` pages in flight and goes through the table with the stride of the grid."""

    def __init__(self, dtype, page_size: int):
        self.dtype, self.page_size = dtype, page_size
        self.stages = SMEM_BYTES // (page_size * HEAD * 2)

    @cute.jit
    def __call__(
        self, kv_cache: cute.Tensor, block_table: cute.Tensor, seq_lens: cute.Tensor, ctas: Int32, stream: cuda.CUstream
    ):
        cache = cute.make_tensor(kv_cache.iterator, cute.select(kv_cache.layout, mode=[1, 2, 0]))
        box = staged_layout(self.dtype, self.page_size, TILE, 1, columns_contiguous=True, swizzle_bytes=128)
        ring = staged_layout(self.dtype, self.page_size, HEAD, self.stages, columns_contiguous=True, swizzle_bytes=128)
        atom, pages = tma.load_atom(cache, box, (self.page_size, TILE))

        @cute.struct
        class SharedStorage:
            full: cute.struct.MemRange[Int64, self.stages]
            pages: cute.struct.Align[cute.struct.MemRange[self.dtype, cute.cosize(ring)], 1024]

        self.SharedStorage = SharedStorage
        self.kernel(atom, pages, block_table, seq_lens).launch(
            grid=[ctas, 1, 1], block=[32, 1, 1], stream=stream, min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(self, atom: cute.CopyAtom, pages: cute.Tensor, block_table: cute.Tensor, seq_lens: cute.Tensor):
        stages = self.stages
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        storage = SmemAllocator().allocate(self.SharedStorage)
        full = storage.full.data_ptr()
        cpasync.prefetch_descriptor(atom)
        if thread == 0:
            for i in cutlass.range_constexpr(stages):
                cute.arch.mbarrier_init(full + i, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        ring = staged_layout(self.dtype, self.page_size, HEAD, stages, columns_contiguous=True, swizzle_bytes=128)
        boxes = cute.flat_divide(smem_tensor(storage.pages, ring), (self.page_size, TILE))  # (page, TILE, 1, TILES, s)
        tiles = cute.local_tile(pages, (self.page_size, TILE), (None, None, None))  # (page, TILE, 1, TILES, pages)
        to, source = tma.partition(atom, boxes, tiles)
        width = block_table.shape[1]
        issued = Int32(0)
        for slot in cutlass.range(cta, seq_lens.shape[0] * width, ctas, unroll=1):
            request, column = slot // width, slot % width
            if column * self.page_size < seq_lens[request]:
                stage, turn = issued % stages, issued // stages
                if turn > 0:
                    cute.arch.mbarrier_wait(full + stage, (turn - 1) % 2)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, self.page_size * HEAD * 2)
                page = block_table[request, column]
                for tile in cutlass.range_constexpr(TILES):
                    cute.copy(
                        atom,
                        source[None, 0, tile, page],
                        to[None, 0, tile, stage],
                        tma_bar_ptr=full + stage,
                        cache_policy=Int64(tma.EVICT_FIRST),
                    )
                issued = issued + 1
        for last in cutlass.range(cutlass.max(issued - stages, 0), issued, unroll=1):
            cute.arch.mbarrier_wait(full + last % stages, (last // stages) % 2)


@functools.cache
def compile_paged_read(dtype: str, page_size: int, arch: str):
    """The compiled kernel, called as kernel(kv_cache, block_table, seq_lens, ctas). dtype: its name in cutlass."""
    element = getattr(cutlass, dtype)
    batch = cute.sym_int()
    arguments = (
        make_fake_tensor(
            element,
            (cute.sym_int(), page_size, HEAD),
            (cute.sym_int64(divisibility=8), cute.sym_int64(divisibility=8), 1),
            assumed_align=16,
        ),
        make_fake_tensor(Int32, (batch, cute.sym_int()), (cute.sym_int64(), 1), assumed_align=4),
        make_fake_tensor(Int32, (batch,), (1,), assumed_align=4),
        Int32(1),
        make_fake_stream(use_tvm_ffi_env_stream=True),
    )
    options = f"--gpu-arch {arch} --enable-tvm-ffi"
    return cute.compile(PagedRead(element, page_size), *arguments, options=options)
