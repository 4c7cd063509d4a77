"""Epilogue functions on Float32 scalars, for tracing inside a kernel.

MUFU, the special-function unit, issues 16 results a cycle per SM, an eighth of the FMA rate, so it sets the price of an
epilogue: every function here needs at most one such instruction, `softplus` and `mish` two. tanh.approx.f32 has a
relative error of at most 2**-11 (PTX ISA, tanh), ex2.approx.ftz.f32 and rsqrt.approx.ftz.f32 of 2**-22, rcp.approx and
sqrt.approx of 2**-23, lg2.approx an absolute one of 2**-22 for arguments from 0.5 to 2 and a relative one of 2**-22
beyond. Subnormal numbers count as zero in `exp`, `gelu_erf`, `divide`, `log`, `sqrt`, `rsqrt` and what uses them.
Arguments may be Python floats. NaN in gives NaN out, in `minimum` and `maximum`, too, as in PyTorch.
"""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

LOG2_E = math.log2(math.e)
LN_2 = math.log(2.0)

# -log2(Phi(-t)), Phi being the normal distribution function, as a polynomial in t, constant term first. Our own fit on
# [0, 6] with the constant term held at 1, its value at 0: least squares at 3,000 Chebyshev nodes, reweighted until the
# largest weighted error was smallest, weight max(t, 0.3) * Phi(-t) * ln 2 + 1e-4; rounded to f32. It grows up to t = 8,
# where the power of two is 2**-50.
PHI_TAIL = (1.0, 1.15114057, 0.458927661, 0.0532443523, -0.00799897779, 0.000752288906, -3.20573163e-05)
PHI_TAIL_END = 8.0


def absolute(x):
    return cute.math.absf(Float32(x))


def minimum(x, y):
    return cute.arch.fmin(x, y, nan=True)


def maximum(x, y):
    return cute.arch.fmax(x, y, nan=True)


def relu(x):
    return cute.arch.fmax(x, 0.0, nan=True)


def clamp(x, low, high):
    return minimum(maximum(x, low), high)


def where(condition, x, y):
    """x or y without a branch: both are computed."""
    return cutlass.select_(condition, Float32(x), Float32(y))


def square(x):
    return x * x


def exp(x):
    """Relative error below 2**-21 + 2**-23 |x|: the product x * log2(e) is rounded to f32."""
    return cute.math.exp2(x * LOG2_E, fastmath=True)


def log(x):
    """Absolute error below 2**-22 for 0.5 < x < 2, relative error below 2**-21 beyond."""
    return LN_2 * cute.math.log2(x, fastmath=True)


def sqrt(x):
    """Relative error at most 2**-23."""
    return cute.math.sqrt(x, fastmath=True)


def rsqrt(x):
    """Relative error at most 2**-22."""
    return cute.math.rsqrt(x, fastmath=True)


def divide(x, y):
    """x / y within 2 ulp for 2**-126 <= |y| <= 2**126; beyond, 1/y is zero or infinite. By a constant: a product.

    The IEEE division would be 8 instructions and a call of a subroutine for the rare cases.
    """
    if isinstance(y, (int, float)):
        return x * (1.0 / y)
    return x * cute.arch.rcp_approx(y)


def exact_inverse(y):
    """1 / y, correctly rounded for 2**-126 <= |y| <= 2**126, but for the mantissa of all ones, where it is an ulp off:
    two Newton steps from the approximate one. Without the branch that rcp.rn has for other numbers; inverses of zero
    and infinity are infinity and zero."""
    if isinstance(y, (int, float)):
        return Float32(1.0 / y)
    first = cute.arch.rcp_approx(y)
    inverse = first
    for _ in range(2):
        inverse = cute.math.fma(cute.math.fma(-y, inverse, Float32(1.0)), inverse, inverse)
    return cutlass.select_(inverse == inverse, inverse, first)


def exact_quotient(x, y, inverse):
    """x / y, correctly rounded, as IEEE 754 has it; inverse: exact_inverse(y).

    Two corrections by the remainder x - q y, which an FMA has exactly; the last one rounds correctly where q is off by
    less than an ulp and the inverse is as above (P. Markstein, "Computation of elementary functions on the IBM RISC
    System/6000 processor", 1990). For |x| >= 2**-100 and 2**-126 <= |y| <= 2**126, and quotients that are normal
    numbers; zeros, infinities and NaN are those of the division.
    """
    x, y = Float32(x), Float32(y)
    first = x * inverse
    quotient = first
    for _ in range(2):
        quotient = cute.math.fma(cute.math.fma(-y, quotient, x), inverse, quotient)
    return cutlass.select_(quotient == quotient, quotient, first)


def exact_divide(x, y):
    """`exact_quotient` where the divisor is used once."""
    return exact_quotient(x, y, exact_inverse(y))


def ceil_pow2(x):
    """The smallest power of two from 2**-126 that is not below |x|, exactly: one more in the exponent where the
    mantissa has any bit. 0 of 0, infinity of what is larger than 2**127; NaN stays NaN."""
    bits = Int32(llvm.bitcast(T.i32(), x.ir_value()))
    power = ((bits & 0x7FFFFFFF) + 0x7FFFFF) & 0x7F800000
    return cutlass.select_(x == x, Float32(llvm.bitcast(T.f32(), power.ir_value())), x)


def round_bf16(x):
    return stored(x, cutlass.BFloat16)


def round_f16(x):
    return stored(x, cutlass.Float16)


def tanh(x):
    """Relative error at most 2**-11."""
    return cute.math.tanh(Float32(x), fastmath=True)


def sigmoid(x):
    """Absolute error at most 2**-12, half of that of the hyperbolic tangent.

    The alternative, ex2 and rcp, has a relative error of 2**-21 and takes twice the MUFU time; a spec that needs it
    says 1 / (1 + exp(-x)).
    """
    return 0.5 * tanh(0.5 * x) + 0.5


def silu(x):
    """x * sigmoid(x), absolute error at most |x| * 2**-12."""
    half = 0.5 * x
    return half * tanh(half) + half


def gelu_tanh(x):
    """Absolute error at most |x| * 2**-12."""
    half = 0.5 * x
    scale = math.sqrt(2.0 / math.pi)
    inner = x * (scale * 0.044715 * (x * x) + scale)
    return half * tanh(inner) + half


def gelu_erf(x):
    """x * Phi(x) as max(x, 0) - |x| * Phi(-|x|): without cancellation.

    Absolute error at most 2**-21, and at most |x| * 2**-20; of negative results, relative to them, 2**-13 for x > -4.
    """
    # The bound also keeps infinity from meeting zero in the product.
    t = minimum(absolute(x), PHI_TAIL_END)
    return relu(x) - t * phi_tail(t)


def normal_cdf(x):
    """Phi(x). Absolute error at most 2**-20; of negative x, relative to the result, 2**-13 for x > -4."""
    tail = phi_tail(minimum(absolute(x), PHI_TAIL_END))
    return where(x > 0.0, 1.0 - tail, tail)


def phi_tail(t):
    """Phi(-t) for 0 <= t <= PHI_TAIL_END."""
    power = -PHI_TAIL[-1]
    for coefficient in PHI_TAIL[-2::-1]:
        power = power * t - coefficient
    return cute.math.exp2(power, fastmath=True)


def leaky_relu(x, slope):
    return maximum(x, 0.0) + slope * minimum(x, 0.0)


def elu(x):
    """Absolute error below 2**-22 where x is negative."""
    return relu(x) + (exp(minimum(x, 0.0)) - 1.0)


def softplus(x):
    """max(x, 0) + log(1 + exp(-|x|)): nothing overflows. Absolute error below 2**-21."""
    return relu(x) + log(1.0 + exp(-absolute(x)))


def mish(x):
    """x * tanh(log(1 + exp(x))) = x * t / (t + 2) with t = exp(x) * (exp(x) + 2). Relative error below
    2**-20 + 2**-23 |x| for x > -87: where x is negative, exp(x)'s own, and 2**-21 of the steps after it.

    Beyond x = 30 the quotient is 1 in f32; the bound keeps t finite.
    """
    e = exp(minimum(x, 30.0))
    t = e * (e + 2.0)
    return x * divide(t, t + 2.0)


def hardsigmoid(x):
    return clamp(x * (1.0 / 6.0) + 0.5, 0.0, 1.0)


def hardswish(x):
    return x * hardsigmoid(x)


def stored(x, dtype):
    """x rounded to the output dtype, to the nearest even, and back."""
    if dtype is cutlass.Int8:
        return round_i8(x).to(Float32)
    return _through(x, THROUGH[dtype]) if dtype in THROUGH else Float32(x).to(dtype).to(Float32)


def round_i8(x):
    """The nearest of -128 to 127, the even one of two, as an Int32; 0 of NaN."""
    operand = [Float32(x).ir_value()]
    return cutlass.Int32(llvm.inline_asm(T.i32(), operand, "cvt.rni.sat.s8.f32 $0, $1;", "=r,f"))


# Conversions of a pair, which are as fast as arithmetic; that of one number to bf16 has a quarter of the rate. A bf16
# over 16 bits of zeros is the f32 that it rounds to. Where ptxas joins the conversions of two accumulators, it
# serialises the MMAs before them (C7514); it leaves a pair of one number alone.
THROUGH = {
    cutlass.Float16: "{ .reg .b32 p; .reg .b16 l, h; cvt.rn.f16x2.f32 p, $1, $1; mov.b32 {l, h}, p; "
    "cvt.f32.f16 $0, h; }",
    cutlass.BFloat16: "{ .reg .f32 z; mov.f32 z, 0f00000000; cvt.rn.bf16x2.f32 $0, $1, z; }",
}


def _through(x, text):
    return Float32(llvm.inline_asm(T.f32(), [Float32(x).ir_value()], text, "=f,f"))
