"""Epilogue functions on Float32 scalars, for tracing inside a kernel. One special-function (MUFU) instruction each.

MUFU issues 16 results a cycle per SM, an eighth of the FMA rate, so it sets the price of an epilogue: every function
here needs at most one. tanh.approx.f32 has a relative error of at most 2**-11 (PTX ISA, tanh), ex2.approx.ftz.f32 of
2**-22, rcp.approx.ftz.f32 of 2**-23. Subnormal numbers count as zero in `exp`, `gelu_erf` and `divide`.
Arguments may be Python floats. NaN in gives NaN out, in `minimum` and `maximum`, too, as in PyTorch.
"""

import math

import cutlass.cute as cute
from cutlass import Float32

LOG2_E = math.log2(math.e)

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


def square(x):
    return x * x


def exp(x):
    """Relative error below 2**-21 for |x| < 1, growing with |x|: the product x * log2(e) is rounded to f32."""
    return cute.math.exp2(x * LOG2_E, fastmath=True)


def divide(x, y):
    """x / y within 2 ulp for 2**-126 <= |y| <= 2**126; beyond, 1/y is zero or infinite. By a constant: a product.

    The IEEE division would be 8 instructions and a call of a subroutine for the rare cases.
    """
    if isinstance(y, (int, float)):
        return x * (1.0 / y)
    return x * cute.arch.rcp_approx(y)


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
    power = -PHI_TAIL[-1]
    for coefficient in PHI_TAIL[-2::-1]:
        power = power * t - coefficient
    return relu(x) - t * cute.math.exp2(power, fastmath=True)


def stored(x, dtype):
    """x rounded to the output dtype, to the nearest even, and back."""
    return x.to(dtype).to(Float32)
