"""Blackwell of data centers: B200, GB200. Kernels for it were compiled and executed on the CPU, not yet on hardware.

k_major_only: the instruction reads M- and N-major operands too; kernels of cutegen do not yet.

Source: CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA, tcgen05.mma.
"""

from __future__ import annotations

from cutegen.arch.architecture import Arch, Mma
from cutegen.dtypes import DTYPES

_HALF = Mma("MmaF16BF16Op", True, "UTCHMMA", DTYPES["f32"], k_major_only=True, rounds=False)

SM_100A = Arch(
    name="sm_100a",
    smem_bytes=232448,
    registers=65536,
    max_threads=1024,
    mma="tcgen05",
    mma_m=128,
    mma_n=(16, 256, 16),
    mma_k_bytes=32,
    mmas={("bf16", "bf16"): _HALF, ("f16", "f16"): _HALF},
    tensor_memory=512,
)
