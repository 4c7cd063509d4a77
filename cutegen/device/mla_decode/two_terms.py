"""Numbers as sums of two values of e4m3, which tcgen05 multiplies one behind the other into the same sums.

The first term has the sign, the exponent and the three highest bits of the fraction, the second one what is left,
rounded to as many: so eight bits of a fraction are exact, which is what bf16 has. Both are multiples of 2^-9, the least
value of e4m3: of what is below 2^-6 the sum is off by 2^-9 at most.
"""

import cutlass.cute as cute
from cutlass import Float8E4M3FN, Float32, Int32

HIGHEST = -1 << 20  # of the bits of f32: sign, exponent and three bits of the fraction
FRACTION_BITS, BIAS = 23, 127  # of f32
TOP = 7  # exponent of a row's largest value: twice it is below 448
LEAST = TOP + 1  # of biased exponents: 2^(TOP - n) and 2^(n - TOP) are normal numbers for it and all above


@cute.jit
def split(values: cute.Tensor, high: cute.Tensor, low: cute.Tensor):
    """values: f32, below 448 in magnitude. high, low: e4m3, as many. All in registers; infinities become NaN."""
    kept = cute.make_rmem_tensor(high.layout, Float32)
    bits = cute.recast_tensor(kept, Int32)
    bits.store(cute.recast_tensor(cute.make_tensor(values.iterator, high.layout), Int32).load() & HIGHEST)
    high.store(kept.load().to(Float8E4M3FN))
    low.store((cute.make_tensor(values.iterator, high.layout).load() - kept.load()).to(Float8E4M3FN))


@cute.jit
def powers_for(top: Float32):
    """(power of two that brings a largest magnitude to 2^TOP or more, and below twice that, its reciprocal). A top
    below 2^-118 is brought as near as that of 2^-119; 0 is one of them."""
    exponent = cute.make_rmem_tensor(1, Float32)
    exponent[0] = top
    biased = cute.recast_tensor(exponent, Int32)[0] >> FRACTION_BITS
    biased = biased if biased > LEAST else Int32(LEAST)
    powers = cute.make_rmem_tensor(2, Int32)
    powers[0], powers[1] = (2 * BIAS + TOP - biased) << FRACTION_BITS, (biased - TOP) << FRACTION_BITS
    both = cute.recast_tensor(powers, Float32)
    return both[0], both[1]
