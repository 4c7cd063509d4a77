"""Blackwell of workstations: RTX PRO 6000, GeForce RTX 50. No kernel is generated for it yet.

Source: CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA, mma.sync.
"""

from __future__ import annotations

from cutegen.arch.architecture import Arch

SM_120A = Arch(
    name="sm_120a",
    smem_bytes=101376,
    registers=65536,
    max_threads=1024,
    mma="mma.sync",
    mma_m=16,
    mma_n=(8, 8, 8),
    mma_k_bytes=32,
)
