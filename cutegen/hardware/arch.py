"""What a CTA may use on each architecture.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (shared memory per block, registers, threads);
PTX ISA, "wgmma", "tcgen05", "setmaxnreg". A test compares the shared memory with what the installed DSL reports.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.dtypes import DType

WARP_THREADS = 32
WARPGROUP_THREADS = 128
WARPS_PER_WARPGROUP = WARPGROUP_THREADS // WARP_THREADS
MBARRIER_BYTES = 8
TENSOR_ALIGN = 1024  # bytes: the period of the 128-byte swizzle, which TMA and WGMMA count from an aligned base
# PTX ISA, setmaxnreg: the immediate is a multiple of 8 in [24, 256].
SETMAXNREG_STEP, SETMAXNREG_MIN, SETMAXNREG_MAX = 8, 24, 256


@dataclass(frozen=True, slots=True)
class Arch:
    """One target.

    smem_bytes: dynamic shared memory one CTA may allocate. registers: 32-bit registers per CTA. max_threads: per CTA.
    mma: the tensor-core instruction; mma_m, mma_n, mma_k_bytes: rows of one instruction, (smallest, largest, step) of
    its columns, bytes of its K extent.
    """

    name: str
    smem_bytes: int
    registers: int
    max_threads: int
    mma: str
    mma_m: int
    mma_n: tuple[int, int, int]
    mma_k_bytes: int

    def mma_k(self, dtype: DType) -> int:
        """Elements that one MMA contracts."""
        return self.mma_k_bytes // dtype.bytes

    def launch_registers(self, threads: int) -> int:
        """Registers per thread a CTA of that many threads is launched with (a multiple of 8, at most 255 usable)."""
        return min(self.registers // threads // SETMAXNREG_STEP * SETMAXNREG_STEP, SETMAXNREG_MAX)


ARCHS: dict[str, Arch] = {
    a.name: a
    for a in (
        Arch(
            name="sm_90a",
            smem_bytes=232448,
            registers=65536,
            max_threads=1024,
            mma="wgmma",
            mma_m=64,
            mma_n=(8, 256, 8),
            mma_k_bytes=32,
        ),
        Arch(
            name="sm_100a",
            smem_bytes=232448,
            registers=65536,
            max_threads=1024,
            mma="tcgen05",
            mma_m=128,
            mma_n=(16, 256, 16),
            mma_k_bytes=32,
        ),
        Arch(
            name="sm_120a",
            smem_bytes=101376,
            registers=65536,
            max_threads=1024,
            mma="mma.sync",
            mma_m=16,
            mma_n=(8, 8, 8),
            mma_k_bytes=32,
        ),
    )
}
