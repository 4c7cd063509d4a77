"""A kernel that reads the pages of a cache and does nothing with them: how fast that goes bounds decode attention."""

import functools

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, const_expr
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

from cutegen.device import tma
from cutegen.device.dsl import SmemAllocator
from cutegen.device.smem import smem_tensor, staged_layout

HEAD, TILE = 576, 64  # columns of a page, and of one box
SMEM_BYTES = 221_184  # of pages in flight in each CTA


class PagedRead:
    """One warp a CTA; it keeps `stages` pages in flight and goes through the table with the stride of the grid. Rows of
    a quantised cache are f32 of any value to it, a page one box."""

    def __init__(self, dtype, page_size: int, row_bytes: int = HEAD * 2):
        self.quantised = dtype is Uint8
        self.dtype, self.page_size = Float32 if self.quantised else dtype, page_size
        self.page_bytes = page_size * row_bytes
        self.stages = SMEM_BYTES // self.page_bytes
        self.columns = row_bytes // 4 if self.quantised else HEAD
        self.tile = self.columns if self.quantised else TILE

    def layout(self, columns: int, stages: int):
        """Of `stages` pages of some columns, swizzled where a row of a box has 128 bytes."""
        if self.quantised:
            return cute.make_layout((self.page_size, columns, stages), stride=(columns, 1, self.page_size * columns))
        return staged_layout(self.dtype, self.page_size, columns, stages, columns_contiguous=True, swizzle_bytes=128)

    @cute.jit
    def __call__(
        self, kv_cache: cute.Tensor, block_table: cute.Tensor, seq_lens: cute.Tensor, ctas: Int32, stream: cuda.CUstream
    ):
        values = cute.recast_tensor(kv_cache, self.dtype)
        cache = cute.make_tensor(values.iterator, cute.select(values.layout, mode=[1, 2, 0]))
        ring = self.layout(self.columns, self.stages)
        atom, pages = tma.load_atom(cache, self.layout(self.tile, 1), (self.page_size, self.tile))

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
        ring = self.layout(self.columns, stages)
        held = storage.pages.get_tensor(ring) if const_expr(self.quantised) else smem_tensor(storage.pages, ring)
        boxes = cute.flat_divide(held, (self.page_size, self.tile))  # (page, tile, 1, tiles, s)
        tiles = cute.local_tile(pages, (self.page_size, self.tile), (None, None, None))  # (page, tile, 1, tiles, pages)
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
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, self.page_bytes)
                page = block_table[request, column]
                for tile in cutlass.range_constexpr(self.columns // self.tile):
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
def compile_paged_read(dtype: str, page_size: int, arch: str, row_bytes: int = HEAD * 2):
    """The compiled kernel, called as kernel(kv_cache, block_table, seq_lens, ctas). dtype: its name in cutlass,
    Uint8 of a quantised cache. row_bytes: a multiple of 16."""
    element = getattr(cutlass, dtype)
    batch, width = cute.sym_int(), row_bytes * 8 // element.width

    def wide():
        return cute.sym_int64(divisibility=128 // element.width)

    arguments = (
        make_fake_tensor(
            element,
            (cute.sym_int(), page_size, width),
            (wide(), wide(), 1),
            assumed_align=16,
        ),
        make_fake_tensor(Int32, (batch, cute.sym_int()), (cute.sym_int64(), 1), assumed_align=4),
        make_fake_tensor(Int32, (batch,), (1,), assumed_align=4),
        Int32(1),
        make_fake_stream(use_tvm_ffi_env_stream=True),
    )
    options = f"--gpu-arch {arch} --enable-tvm-ffi"
    return cute.compile(PagedRead(element, page_size, row_bytes), *arguments, options=options)
