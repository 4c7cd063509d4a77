"""Blackwell of workstations: GeForce RTX 50, RTX PRO 6000. Kernels for it were compiled and executed on the CPU, not
yet on hardware.

Sources: CUDA C++ Programming Guide, "Compute Capabilities": 99 KB of shared memory a block; PTX ISA, mma.sync:
m16n8k16 of .bf16 and .f16, m16n8k32 of .e4m3 and .e5m2, which read A by rows and B by columns, and ldmatrix, whose
.trans reads 16-bit elements the other way; "Block scaling for mma.sync": .kind::mxf8f6f4, with ue8m0 scales of 32
elements, .kind::mxf4nvf4, with those or ue4m3 scales of 16.
"""

from __future__ import annotations

from cutegen.arch.architecture import Arch, Mma
from cutegen.dtypes import DTYPES, DType

_F32, _I32 = DTYPES["f32"], DTYPES["i32"]
_16_BITS, _8_BITS = ("bf16", "f16"), ("e4m3", "e5m2")
_OF_FOUR_BITS = (("e4m3", 16), ("e8m0", 32))


def _mma(kind: str, sass: str, accumulator: DType = _F32) -> Mma:
    """kind: of mma.sync, from its shape on."""
    bits = 16 if "n8k16" in kind else 8
    return Mma(kind, (), sass, accumulator, k_major_only=bits < 16, rounds=False, takes_majors=False)


def _scaled(a: str, b: str, scale: str, block: int, sass: str) -> Mma:
    """scale, block: of the scales, and how many elements of k share one."""
    kind, k = ("mxf4nvf4", 64) if a == "e2m1" else ("mxf8f6f4", 32)
    scaled = f"kind::{kind}.block_scale.scale_vec::{k // block}X"
    return _mma(f"{scaled}.m16n8k{k}.row.col.f32.{a}.{b}.f32.u{scale}", sass)


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
        **{(t, t): _mma(f"m16n8k16.row.col.f32.{t}.{t}.f32", "HMMA.16816") for t in _16_BITS},
        **{(a, b): _mma(f"m16n8k32.row.col.f32.{a}.{b}.f32", "QMMA.16832") for a in _8_BITS for b in _8_BITS},
        ("i8", "i8"): _mma("m16n8k32.row.col.s32.s8.s8.s32", "IMMA.16832", _I32),
    },
    scaled_mmas={
        **{(a, b, ("e8m0", 32)): _scaled(a, b, "e8m0", 32, "QMMA.SF.16832") for a in _8_BITS for b in _8_BITS},
        **{("e2m1", "e2m1", scale): _scaled("e2m1", "e2m1", *scale, "OMMA.SF.16864") for scale in _OF_FOUR_BITS},
    },
    rules_of="sm_90a",
)
