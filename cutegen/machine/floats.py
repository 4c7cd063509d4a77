"""Small floating-point formats: bf16, f16, e4m3, e5m2 and e2m1 to f32 and back, as `cvt` rounds; ue8m0 to f32."""

from __future__ import annotations

from typing import Any

import numpy as np

E4M3_MAX, E5M2_MAX, E2M1_MAX = 448.0, 57344.0, 6.0


def half_view(kind: str) -> str:
    """The unsigned type that holds halves of this kind, packed or not."""
    return "b32" if kind.endswith("x2") else "b16"


def unpack_halves(bits: Any, kind: str) -> Any:
    """f32 values of f16, bf16 or their pairs: (lanes,) or (lanes, 2)."""
    if kind.endswith("x2"):
        bits = np.ascontiguousarray(bits).view(np.uint16).reshape(-1, 2)
    return from_bits(bits, kind.removesuffix("x2"))


def pack_halves(values: Any, kind: str) -> Any:
    bits = to_bits(values, kind.removesuffix("x2"))
    return np.ascontiguousarray(bits).view(np.uint32)[:, 0] if kind.endswith("x2") else bits


def from_bits(bits: Any, kind: str) -> Any:
    """f32 values of an array of bit patterns (u8 or u16)."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "f16":
        return bits.view(np.float16).astype(np.float32)
    return _BYTES[kind][bits]


def to_bits(values: Any, kind: str, finite: bool = False) -> Any:
    """Rounds to nearest even. finite: what is too large becomes the largest finite value (`satfinite`)."""
    values = np.asarray(values)
    if kind == "bf16":
        return _bf16_bits(values.astype(np.float32, copy=False))
    if kind == "f16":
        if finite:
            values = np.where(np.isfinite(values), np.clip(values, -65504.0, 65504.0), values)
        return values.astype(np.float16).view(np.uint16)
    return _byte_bits(values.astype(np.float32, copy=False), kind)


def _bf16_bits(values: Any) -> Any:
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits >> _HALF
    rounded &= _ONE  # ties go to even
    rounded += bits
    rounded += _TIE
    rounded >>= _HALF
    nan = values != values
    if np.count_nonzero(nan):
        rounded[nan] = 0x7FFF
    return rounded.astype(np.uint16)


_HALF, _ONE, _TIE = np.uint32(16), np.uint32(1), np.uint32(0x7FFF)


def _decode(exponent_bits: int, mantissa_bits: int) -> Any:
    """All 256 values of an 8-bit format with an IEEE-like layout."""
    codes = np.arange(256)
    bias = (1 << exponent_bits - 1) - 1
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    normal = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
    value = np.where(exponent == 0, mantissa / (1 << mantissa_bits) * 2.0 ** (1 - bias), normal)
    if exponent_bits == 4:
        value[codes & 0x7F == 0x7F] = np.nan
    else:
        top = exponent == 31
        value[top] = np.where(mantissa[top] == 0, np.inf, np.nan)
    return np.where(codes & 0x80, -value, value).astype(np.float32)


_POSITIVE = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([_POSITIVE, -_POSITIVE])  # by their bits
UE8M0 = np.ldexp(np.float32(1), np.minimum(np.arange(256), 254) - 127).astype(np.float32)
UE8M0[255] = np.nan
_BYTES = {"e4m3": _decode(4, 3), "e5m2": _decode(5, 2), "e2m1": E2M1}
_LARGEST = {"e4m3": E4M3_MAX, "e5m2": E5M2_MAX, "e2m1": E2M1_MAX}
# Finite codes of one sign, that of a sign, and what NaN becomes: of e2m1 the largest number.
_CODES = {"e4m3": (127, 0x80, 0x7F), "e5m2": (124, 0x80, 0x7F), "e2m1": (8, 0x8, 0x7)}


def _byte_bits(values: Any, kind: str) -> Any:
    """PTX converts to 8 bits and fewer with satfinite only."""
    largest = _LARGEST[kind]
    count, sign, nan = _CODES[kind]
    magnitudes = _BYTES[kind][:count].astype(np.float64)
    size = np.minimum(np.abs(values.astype(np.float64)), largest)
    above = np.clip(np.searchsorted(magnitudes, size), 1, count - 1)
    low, high = magnitudes[above - 1], magnitudes[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    code = np.where(up, above, above - 1) | np.where(np.signbit(values), sign, 0)
    return np.where(np.isnan(values), nan, code).astype(np.uint8)
