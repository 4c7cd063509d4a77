"""What a generated GEMM plan and its kernels share: the numbers of one tiling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GemmTiling:
    """Resolved numbers of one GEMM kernel instance; `resolve` computes them, the kernel reads and asserts them.

    tile: CTA tile (m, n, k) in elements. cluster: CTAs along (m, n).
    multicast: CTAs that one load of (A, B) feeds. swizzle: bytes of a swizzled SMEM row of (A, B).
    stages: slots of the A/B ring; stage_bytes: TMA transaction bytes of one slot, per CTA.
    empty_arrivals: consumer warps, over all multicast peers, that free one slot.
    epilogue_tile: (m, n) elements stored at once by one group of epilogue threads.
    store_stages: slots of the output ring, per epilogue group. load_stages, load_bytes: slots and bytes per slot of the
    ring of TMA-loaded epilogue tiles (0 when there are none).
    consumers: MMA warpgroups. threads: CTA size. producer_registers, consumer_registers: setmaxnreg values per thread.
    smem_bytes: size of SharedStorage. raster_along_m: tiles advance along m first; raster_group: tiles of that
    dimension in one band.
    """

    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    multicast: tuple[int, int]
    swizzle: tuple[int, int]
    stages: int
    stage_bytes: int
    empty_arrivals: int
    epilogue_tile: tuple[int, int]
    store_stages: int
    load_stages: int
    load_bytes: int
    consumers: int
    threads: int
    producer_registers: int
    consumer_registers: int
    smem_bytes: int
    raster_along_m: bool
    raster_group: int
