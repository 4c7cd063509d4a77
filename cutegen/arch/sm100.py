"""Blackwell of data centers: B200, GB200. Kernels for it were compiled and executed on the CPU, not yet on hardware.

Sources: CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA, tcgen05.mma: .kind::f16, .kind::f8f6f4, .kind::i8,
which read M- and N-major operands of each; .kind::mxf8f6f4, block-scaled, with ue8m0
scales of 32 elements; .kind::mxf4nvf4, with those or ue4m3 scales of 16.
"""

from __future__ import annotations

from cutegen.arch.architecture import Arch, Mma
from cutegen.dtypes import DTYPES

_F32 = DTYPES["f32"]
_HALF = Mma("MmaF16BF16Op", ("a", "sum"), "UTCHMMA", _F32, k_major_only=False, rounds=False)
_FP8 = Mma("MmaF8F6F4Op", ("a", "b", "sum"), "UTCQMMA", _F32, k_major_only=False, rounds=False)
_INT8 = Mma("MmaI8Op", ("a",), "UTCIMMA", DTYPES["i32"], k_major_only=False, rounds=False)
_MXFP8 = Mma("MmaMXF8F6F4Op", ("a", "b"), "UTCQMMA", _F32, k_major_only=True, rounds=False)
_MXFP4 = Mma("MmaMXF4Op", (), "UTCOMMA", _F32, k_major_only=True, rounds=False, takes_majors=False)
_NVFP4 = Mma("MmaMXF4NVF4Op", ("scale",), "UTCOMMA", _F32, k_major_only=True, rounds=False, takes_majors=False)

SM_100A = Arch(
    name="sm_100a",
    smem_bytes=232448,
    registers=65536,
    max_threads=1024,
    mma="tcgen05",
    mma_m=128,
    mma_n=(16, 256, 16),
    mma_k_bytes=32,
    mmas={
        ("bf16", "bf16"): _HALF,
        ("f16", "f16"): _HALF,
        **{(a, b): _FP8 for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
        ("i8", "i8"): _INT8,
    },
    scaled_mmas={
        **{(a, b, ("e8m0", 32)): _MXFP8 for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
        ("e2m1", "e2m1", ("e4m3", 16)): _NVFP4,
        ("e2m1", "e2m1", ("e8m0", 32)): _MXFP4,
    },
    tensor_memory=512,
)
