"""Blackwell of workstations: GeForce RTX 50, RTX PRO 6000. Kernels for it were compiled and executed on the CPU, not
yet on hardware.

Sources: CUDA C++ Programming Guide, "Compute Capabilities": 99 KB of shared memory a block; PTX ISA, mma.sync:
m16n8k16 of .bf16 and .f16, m16n8k32 of .e4m3 and .e5m2, which read A by rows and B by columns, and ldmatrix, whose
.trans reads 16-bit elements the other way.
"""

from __future__ import annotations

from cutegen.arch.architecture import Arch, Mma
from cutegen.dtypes import DTYPES

_F32 = DTYPES["f32"]
_HALF = Mma(
    "MmaF16BF16Op", ("a", "sum"), "HMMA.16816", _F32, k_major_only=False, rounds=False, takes_majors=False
)  # fmt: skip
_FP8 = Mma("MmaFP8Op", ("a", "sum"), "QMMA.16832", _F32, k_major_only=True, rounds=False, takes_majors=False)

SM_120A = Arch(
    name="sm_120a",
    smem_bytes=101376,
    registers=65536,
    max_threads=1024,
    mma="mma.sync",
    mma_m=64,
    mma_n=(16, 256, 16),
    mma_k_bytes=32,
    mmas={
        ("bf16", "bf16"): _HALF,
        ("f16", "f16"): _HALF,
        ("e4m3", "e4m3"): _FP8,
        ("e5m2", "e5m2"): _FP8,
    },
    rules_of="sm_90a",
)
