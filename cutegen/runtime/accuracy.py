"""How far a kernel may be from its reference, and how far it is.

An element passes when

    |kernel - reference| <= u * |reference| + scale * (accumulation(K) + approximation) + tiny

    u              half an ulp of the output dtype, relative: 2**-8 bf16, 2**-11 f16, 2**-24 f32; plus that of the
                   reference's dtype, when it was rounded, too.
    scale          root mean square of the reference output: the size of what was accumulated, for random data.
    accumulation   2**-22 * (K / 16 + 6 * sqrt(K)). A tensor core adds 16 products at a time to an f32 accumulator and
                   truncates (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS
                   7:e330, 2021): at most an ulp, 2**-23, each of the K / 16 times, with the partial sum's sign. The
                   products are aligned and truncated as well, with signs as random as theirs: a random walk of K steps
                   (Higham, Mary: "A new approach to probabilistic rounding error analysis", SISC 41(5), 2019), met with
                   6 standard deviations because one launch has 10**7 elements. The sum is doubled, which covers
                   epilogues whose slope is above 1. A reference in f32 adds 2**-22 * 6 * sqrt(K) of its own.
    approximation  what the plan declares for approximated epilogue functions (tanh.approx.f32: 2**-11 relative).
    tiny           the smallest subnormal of the output dtype.

A missing or doubled product moves an element by about scale / sqrt(K), far above accumulation(K) for every K < 10**5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

HALF_ULP = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
_TINY = {"bfloat16": 2.0**-133, "float16": 2.0**-24, "float32": 2.0**-149, "float64": 2.0**-1074}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """relative: times |reference|. scaled: times the rms of the reference. tiny: absolute."""

    relative: float
    scaled: float
    tiny: float

    def __str__(self) -> str:
        return f"{self.relative:.2g} |ref| + {self.scaled:.2g} rms(ref)"


def tolerance(dtype: str, k: int, approximation: float = 0.0, reference: str = "float64") -> Tolerance:
    """The module's formula. dtype, reference: torch names of the output's and the reference output's dtype."""
    relative = HALF_ULP[dtype] + (HALF_ULP[reference] if reference != "float64" else 0.0)
    accumulation = 2.0**-22 * (k / 16 + (6 if reference == "float64" else 12) * math.sqrt(k))
    return Tolerance(relative, accumulation + approximation, _TINY[dtype])


@dataclass(frozen=True, slots=True)
class Comparison:
    """Errors over all elements. first: index of the first wrong element; low, high: the inclusive box around all of
    them; actual, expected: its values."""

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


def compare(actual: Any, reference: Any, allowed: Tolerance) -> Comparison:
    """Compares in float64. A NaN is wrong unless the reference has it, too; infinities must agree.

    max_error and mean_error are over the elements where both are finite; allowed: the tolerance at the largest error.
    """
    import torch

    x, ref = actual.double(), reference.double()
    finite = torch.isfinite(ref)
    scale = ref[finite].square().mean().sqrt().item() if bool(finite.any()) else 0.0
    error = (x - ref).abs()
    limit = ref.abs() * allowed.relative + (scale * allowed.scaled + allowed.tiny)
    same = (finite & (error <= limit)) | (x == ref) | (x.isnan() & ref.isnan())
    comparable = error.isfinite()
    shown = torch.where(comparable, error, 0.0)
    worst = int(shown.argmax()) if shown.numel() else 0
    result = {
        "elements": x.numel(),
        "mismatches": int((~same).sum()),
        "max_error": shown.max().item() if shown.numel() else 0.0,
        "mean_error": shown.mean().item() if shown.numel() else 0.0,
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
