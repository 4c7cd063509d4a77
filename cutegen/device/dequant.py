"""Bytes of e4m3 to bf16 in registers, by bits: no instruction of the conversion pipe for the values.

A byte s eeee mmm, its magnitude moved to bits 4 to 10 and its sign to bit 15, is a bf16 of 2^-120 times its value, one
of denormals included. A product with bf16(scale) * 2^120 puts exponent and scale right at once, and rounds once: the
result is that of bf16(value) * bf16(scale). The bytes 0x7f and 0xff, NaN of e4m3, count as +-480.
"""

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

MOST_SCALE = 256.0  # bf16(scale) has to be less: times 2^120 it is a bf16 then
MOST_CODE = 134  # of e8m0, whose code n is 2^(n - 127): 2^7, the largest power of two below that
EXPONENT = 120  # that a factor has more than its scale
PLACES = -0x780F7810  # of two bf16, the sign bits and where magnitudes of e4m3 go


@cute.jit
def factors_of(low: Float32, high: Float32) -> Int32:
    """bf16(scale) * 2^120 of two scales, in a word. scales: finite, bf16(scale) below MOST_SCALE."""
    pair = cute.make_rmem_tensor(2, BFloat16)
    pair[0] = (low.to(BFloat16).to(Float32) * Float32(2.0**120)).to(BFloat16)
    pair[1] = (high.to(BFloat16).to(Float32) * Float32(2.0**120)).to(BFloat16)
    return cute.recast_tensor(pair, Int32)[0]


@cute.jit
def factors_of_codes(low: Int32, low_byte: cutlass.Constexpr[int], high: Int32, high_byte: cutlass.Constexpr[int]):
    """The same of two scales in e8m0, bytes of words: exponents of bf16 as they are. Codes over MOST_CODE count as
    that."""
    first = cutlass.min((low >> (8 * low_byte)) & 0xFF, Int32(MOST_CODE))
    second = cutlass.min((high >> (8 * high_byte)) & 0xFF, Int32(MOST_CODE))
    return (first + EXPONENT) << 7 | (second + EXPONENT) << 23


@cute.jit
def factor_of(scale: Float32) -> Int32:
    """The factor of one scale twice, which the product with a pair of values takes."""
    return factors_of(scale, scale)


@cute.jit
def pick(factors: Int32, which: Int32) -> Int32:
    """One of two factors twice. which: 0 is the lower one, 1 the upper one."""
    return _permute(factors, Int32(0x1010) + Int32(0x2222) * which)


@cute.jit
def e4m3_to_bf16(word: Int32, factor: Int32):
    """Four values of a word times a scale: two words of two bf16, in the order of their bytes. factor: of factor_of."""
    return _times(_place(_permute(word, Int32(0x9180))), factor), _times(_place(_permute(word, Int32(0xB3A2))), factor)


def _permute(word: Int32, selector: Int32) -> Int32:
    """Bytes of a word by their numbers, four bits each; with 8 added, the sign of that byte eight times."""
    operands = [Int32(word).ir_value(), Int32(0).ir_value(), Int32(selector).ir_value()]
    return Int32(llvm.inline_asm(T.i32(), operands, "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r"))


def _place(pair: Int32) -> Int32:
    """Sign and magnitude of two bytes, each widened to 16 bits by its sign, where bf16 has them."""
    return (pair << 4) & Int32(PLACES)


def _times(pair: Int32, factor: Int32) -> Int32:
    """The product of two bf16 each, rounded to nearest even, denormals kept."""
    operands = [Int32(pair).ir_value(), Int32(factor).ir_value()]
    return Int32(llvm.inline_asm(T.i32(), operands, "mul.rn.bf16x2 $0, $1, $2;", "=r,r,r"))
