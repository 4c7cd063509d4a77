"""The warpgroup MMA instructions: which operand dtypes they multiply, and what they sum the products in.

Source: PTX ISA, wgmma.mma_async: .f32.f16.f16, .f32.bf16.bf16, .f32.{e4m3,e5m2}.{e4m3,e5m2}, .s32.s8.s8.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.dtypes import DTYPES, DType
from cutegen.hardware import ARCHS

SM_90A = ARCHS["sm_90a"]
MMA_ROWS = SM_90A.mma_m  # of one warpgroup's instruction


@dataclass(frozen=True, slots=True)
class Mma:
    """One kind of instruction.

    op: its class in cute.nvgpu.warpgroup. one_dtype: that class takes A's and B's dtype as one argument. sass: its
    opcode. accumulator: dtype of the sum. k_major_only: there is no transposed read of A and B. rounds: the tensor core
    keeps fewer bits of the sum than the accumulator has, so that promotion to f32 registers gains precision.
    """

    op: str
    one_dtype: bool
    sass: str
    accumulator: DType
    k_major_only: bool
    rounds: bool


_HALF = Mma("MmaF16BF16Op", True, "HGMMA", DTYPES["f32"], k_major_only=False, rounds=False)
_FP8 = Mma("MmaF8Op", False, "QGMMA", DTYPES["f32"], k_major_only=True, rounds=True)
_INT8 = Mma("MmaI8Op", False, "IGMMA", DTYPES["i32"], k_major_only=True, rounds=False)

MMAS: dict[tuple[str, str], Mma] = {
    ("bf16", "bf16"): _HALF,
    ("f16", "f16"): _HALF,
    **{(a, b): _FP8 for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
    ("i8", "i8"): _INT8,
}
