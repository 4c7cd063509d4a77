"""Blackwell of data centers: B200, GB200. No kernel is generated for it yet.

Source: CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA, tcgen05.mma.
"""

from __future__ import annotations

from cutegen.arch.architecture import Arch

SM_100A = Arch(
    name="sm_100a",
    smem_bytes=232448,
    registers=65536,
    max_threads=1024,
    mma="tcgen05",
    mma_m=128,
    mma_n=(16, 256, 16),
    mma_k_bytes=32,
)
