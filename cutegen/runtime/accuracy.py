"""How far a kernel may be from its reference, and how far it is.

An element passes when

    |kernel - reference| <= u * |reference| + scale * (accumulation(K) + approximation) + tiny

    u              half an ulp of the output dtype, relative: 2**-8 bf16, 2**-11 f16, 2**-24 f32, 2**-4 e4m3, 2**-3
                   e5m2, 2**-2 e2m1, 0 e8m0, whose values are powers of two before; plus that of the reference's dtype,
                   when it was rounded, too.
    scale          root mean square of the reference output: the size of what was accumulated, for random data. Elements
                   that nothing is promised of, rows of no group among them, do not count: their zeros would shrink it.
    accumulation   2**-22 * (K / 16 + 6 * sqrt(K)). A tensor core adds 16 products at a time to an f32 accumulator and
                   truncates (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS
                   7:e330, 2021): at most an ulp, 2**-23, each of the K / 16 times, with the partial sum's sign. The
                   products are aligned and truncated as well, with signs as random as theirs: a random walk of K steps
                   (Higham, Mary: "A new approach to probabilistic rounding error analysis", SISC 41(5), 2019), met with
                   6 standard deviations because one launch has 10**7 elements. The sum is doubled, which covers
                   epilogues whose slope is above 1. A reference in f32 adds 2**-22 * 6 * sqrt(K) of its own.
                   Of fp8 operands the tensor core adds 32 products at a time and keeps the highest 14 bits of each
                   (DeepSeek-AI, "DeepSeek-V3 technical report", arXiv:2412.19437, section 3.5.2): 2**-12 *
                   (G / 32 + 2.5 * sqrt(G)) more for sums of G products, G being K, or what is promoted to f32 at a
                   time: the same reasoning with an ulp of 2**-13. The walk is of uniform errors, 1 / sqrt(3) of an ulp
                   each, that grow with the sum, another 1 / sqrt(2). Parts of G products err independently: relative to
                   the whole, they err no more than one of them does. Sums of i8 are exact; 2**-20 covers their
                   conversion to f32 and a few multiplications.
    approximation  what the plan declares for approximated epilogue functions (tanh.approx.f32: 2**-11 relative).
    tiny           the smallest subnormal of the output dtype. Of i8, 1: a value between two of them goes to either.

A missing or doubled product moves an element by about scale / sqrt(K), far above accumulation(K) for every K < 10**5.

Attention, out of queries and keys of variance 1:

    out   u * |reference| * 2 + scale * (6 * u + accumulation(576) + accumulation(keys)), scale by row of the output.
          The weights are rounded to the dtype of the values, each with its own relative error up to u: one dominant
          weight gives the row a relative error u, which the rounding of the output doubles. The sum of many has their
          size times a random walk, met with 6 standard deviations; the row's own size is that of the sum, because the
          output is as wide as the random values are many. A score's error is the relative error of its weight.
          Values with rarer, larger ones have a crest factor (the largest over their root mean square) of their own: of
          two dominant weights, with values that cancel, each errs by u. Together that is at most
          u * sqrt(2) * crest * scale (Cauchy-Schwarz), which takes the place of 6 * u where it is more.
    lse   (1 + |reference|) * accumulation(576) + 2**-22 * sqrt(keys): the error of a score, which counts as it is; no
          score that matters is larger than the LSE, nor, unless a row is peaked, than some units. The sum of keys
          weights is in f32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cutegen.runtime.four_bits import has_pairs, pairs_axis, spread_pairs

HALF_ULP = {
    "bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53, "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3, "float4_e2m1fn_x2": 2.0**-2, "float8_e8m0fnu": 0.0, "int8": 0.0,
}  # fmt: skip
_SCORE = 576  # products of a score
_TINY = {
    "bfloat16": 2.0**-133, "float16": 2.0**-24, "float32": 2.0**-149, "float64": 2.0**-1074, "float8_e4m3fn": 2.0**-9,
    "float8_e5m2": 2.0**-16, "float4_e2m1fn_x2": 0.5, "float8_e8m0fnu": 0.0, "int8": 1.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tolerance:
    """relative: times |reference|. scaled: times the rms of the reference, over all elements that count, or over those
    of its last axis (by_row). absolute: added."""

    relative: float
    scaled: float
    absolute: float
    by_row: bool = False

    def __str__(self) -> str:
        terms = [f"{self.relative:.2g} |ref|"]
        if self.scaled:
            terms.append(f"{self.scaled:.2g} {'row ' * self.by_row}rms(ref)")
        if self.absolute > 1e-7 or (self.absolute and not self.scaled):  # not a subnormal next to larger terms
            terms.append(f"{self.absolute:.2g}")
        return " + ".join(terms)


def tolerance(
    dtype: str, k: int, approximation: float = 0.0, reference: str = "float64", operand: str = "", promoted_k: int = 0
) -> Tolerance:
    """The module's formula. dtype, reference, operand: torch names of the dtypes of the output, of the reference output
    and of what is multiplied. promoted_k: products that are summed before f32 registers take the sum; 0: all."""
    relative = HALF_ULP[dtype] + (HALF_ULP[reference] if reference != "float64" else 0.0)
    if operand.startswith("int"):
        accumulated = 2.0**-20 + (_accumulation(k, reference) if reference != "float64" else 0.0)
    else:
        accumulated = _accumulation(k, reference)
    if operand.startswith("float8"):
        part = min(k, promoted_k or k)
        accumulated += 2.0**-12 * (part / 32 + 2.5 * math.sqrt(part))
    return Tolerance(relative, accumulated + approximation, _TINY[dtype])


def attention_tolerance(dtype: str, keys: int, reference: str = "float64", crest: float = 0.0) -> Tolerance:
    """Of the output of attention over up to `keys` keys, whose values have `dtype`, too. crest: the crest factor of the
    values, where they are not normally distributed."""
    u = HALF_ULP[dtype]
    relative = 2 * u + (HALF_ULP[reference] if reference != "float64" else 0.0)
    scaled = max(6.0, math.sqrt(2) * crest) * u + _accumulation(_SCORE, reference) + _accumulation(keys, reference)
    return Tolerance(relative, scaled, _TINY[dtype], by_row=True)


def logsumexp_tolerance(keys: int, reference: str = "float64") -> Tolerance:
    """Of the logarithm of the sum over up to `keys` exponentials of scores."""
    score = _accumulation(_SCORE, reference)
    return Tolerance(score, 0.0, score + 2.0**-22 * math.sqrt(keys))


def _accumulation(k: int, reference: str) -> float:
    return 2.0**-22 * (k / 16 + (6 if reference == "float64" else 12) * math.sqrt(k))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Errors over the elements that count. first: index of the first wrong element; low, high: the inclusive box
    around all of them; actual, expected: its values."""

    elements: int
    mismatches: int
    max_error: float
    mean_error: float
    allowed: float
    first: tuple[int, ...] | None = None
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()
    actual: float = 0.0
    expected: float = 0.0


def compare(actual: Any, reference: Any, allowed: Tolerance, free: Any = None) -> Comparison:
    """Compares in float64. A NaN is wrong unless the reference has it, too; infinities must agree.

    free: a mask of elements that may be anything; they count neither as elements nor for the rms. Of two elements of 4
    bits in one of torch's each is compared, and found at its own index.
    max_error and mean_error are over the elements where both are finite; allowed: the tolerance at the largest error.
    """
    import torch

    x, ref = spread_pairs(actual).double(), spread_pairs(reference).double()
    finite = torch.isfinite(ref)
    if free is not None and has_pairs(actual):
        free = free.repeat_interleave(2, pairs_axis(actual))
    counts = torch.ones_like(finite) if free is None else ~free
    sized = finite & counts
    squares = torch.where(sized, ref, 0.0).square()
    axes = (-1,) if allowed.by_row else tuple(range(ref.dim()))
    count = sized.sum(axes, keepdim=True).clamp(min=1)
    scale = (squares.sum(axes, keepdim=True) / count).sqrt()
    error = (x - ref).abs()
    limit = ref.abs() * allowed.relative + (scale * allowed.scaled + allowed.absolute)
    same = (finite & (error <= limit)) | (x == ref) | (x.isnan() & ref.isnan()) | ~counts
    shown = torch.where(error.isfinite() & counts, error, 0.0)
    elements = int(counts.sum())
    worst = int(shown.argmax()) if shown.numel() else 0
    result: dict[str, Any] = {
        "elements": elements,
        "mismatches": int((~same).sum()),
        "max_error": shown.max().item() if shown.numel() else 0.0,
        "mean_error": shown.sum().item() / max(elements, 1),
        "allowed": limit.reshape(-1)[worst].item() if limit.numel() else 0.0,
    }
    if not result["mismatches"]:
        return Comparison(**result)
    wrong = (~same).nonzero()
    first = tuple(wrong[0].tolist())
    return Comparison(
        **result,
        first=first,
        low=tuple(wrong.amin(0).tolist()),
        high=tuple(wrong.amax(0).tolist()),
        actual=x[first].item(),
        expected=ref[first].item(),
    )
