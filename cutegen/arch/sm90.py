"""Hopper: H100, H200.

Sources: CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA, wgmma.mma_async: .f32.f16.f16, .f32.bf16.bf16,
.f32.{e4m3,e5m2}.{e4m3,e5m2}, .s32.s8.s8, and its table of shapes.
"""

from __future__ import annotations

from cutegen.arch.architecture import Arch, Mma, Opcodes
from cutegen.dtypes import DTYPES

_HALF = Mma("MmaF16BF16Op", ("a", "sum"), "HGMMA", DTYPES["f32"], k_major_only=False, rounds=False)
_FP8 = Mma("MmaF8Op", ("a", "b", "sum"), "QGMMA", DTYPES["f32"], k_major_only=True, rounds=True)
_INT8 = Mma("MmaI8Op", ("a", "b", "sum"), "IGMMA", DTYPES["i32"], k_major_only=True, rounds=False, wide=(32, 16))

SM_90A = Arch(
    name="sm_90a",
    smem_bytes=232448,
    registers=65536,
    max_threads=1024,
    mma="wgmma",
    mma_m=64,
    mma_n=(8, 256, 8),
    mma_k_bytes=32,
    mmas={
        ("bf16", "bf16"): _HALF,
        ("f16", "f16"): _HALF,
        **{(a, b): _FP8 for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
        ("i8", "i8"): _INT8,
    },
    opcodes=Opcodes(mma_wait="WARPGROUP.DEPBAR"),
)
