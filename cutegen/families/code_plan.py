"""What a kernel instance is planned to compile to; a family derives it, the build contract compares it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MmaPlan:
    """One MMA instruction. opcode: in the SASS, with its shape, such as "HGMMA.64x256x16". step: how many of them one
    step of one warpgroup takes; their count is a multiple of it."""

    opcode: str
    step: int


@dataclass(frozen=True, slots=True)
class CodePlan:
    """One instance; what is left out is not there. smem_bytes: of SharedStorage, which the kernel asserts while it is
    traced.

    threads: CTA size. registers: the setmaxnreg values, sorted. accumulator_registers: per thread, for the accumulator
    alone. mma: every MMA instruction there is. tma_loads: at least that many places load by TMA; multicast: some of
    them to a whole cluster. tma_stores, tma_adds: at least that many places store, and add to memory, by TMA.
    pdl_wait, pdl_trigger: it waits for the kernel before it, and lets the next one start, by programmatic dependent
    launch; pdl_early: it reads before that wait what its caller promises to be written by then; pdl_loads: so do that
    many places that load by TMA. atomics: at least that many places change global memory atomically. cluster_stores: at
    least that many places store 16 bytes in the shared memory of another CTA. mbarriers: exactly so many are made.
    row_prefetches: at least that many places have L2 load a stretch of global memory. wide_loads, wide_stores: at least
    that many places load, and store, 16 bytes of it.
    launch_queries: at least that many queries of cluster launch control. scale_copies: exactly so many copies of scales
    to tensor memory. matrix_loads: at least that many places read matrices of shared memory into the registers of a
    warp. absent: opcodes that there are none of:
    conversions, where values are decoded by bits.
    fewer_registers: what to write for fewer of them; "": nothing is known.
    """

    arch: str
    threads: int
    smem_bytes: int
    registers: tuple[int, ...] = ()
    accumulator_registers: int = 0
    mma: tuple[MmaPlan, ...] = ()
    tma_loads: int = 0
    multicast: bool = False
    tma_stores: int = 0
    pdl_wait: bool = False
    pdl_trigger: bool = False
    pdl_early: bool = False
    pdl_loads: int = 0
    atomics: int = 0
    cluster_stores: int = 0
    tma_adds: int = 0
    mbarriers: int = 0
    scale_copies: int = 0
    launch_queries: int = 0
    matrix_loads: int = 0
    absent: tuple[str, ...] = ()
    row_prefetches: int = 0
    wide_loads: int = 0
    wide_stores: int = 0
    fewer_registers: str = ""
