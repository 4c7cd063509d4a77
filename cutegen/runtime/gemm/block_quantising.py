"""Matrices as elements of 8 or 4 bits and 8-bit scales of blocks along k: MXFP8, MXFP4 and NVFP4.

Sources: OCP Microscaling Formats, section 6.3; NVIDIA, "Pretraining Large Language Models with NVFP4"
(arXiv:2509.25149), appendix C. Importing this module imports no torch.
"""

from __future__ import annotations

from typing import Any

from cutegen.runtime.four_bits import LARGEST, encode_e2m1
from cutegen.runtime.gemm.scale_packing import E8M0_BIAS

MX_BLOCK, NV_BLOCK = 32, 16  # elements of k that share a scale
# Of each dtype of elements in torch: the exponent of its largest number, and that number.
_ELEMENTS = {"float8_e4m3fn": (8, 448.0), "float8_e5m2": (15, 57344.0), "float4_e2m1fn_x2": (2, LARGEST)}
_LARGEST_SCALE = _ELEMENTS["float8_e4m3fn"][1]


def quantise_mx(values: Any, dtype: Any = None) -> tuple[Any, Any]:
    """(elements of `dtype`, e8m0 scales ([batch,] rows, k/32)) of values ([batch,] rows, k): of each block the power of
    two is 2 ** (floor(log2(largest)) - emax), and what rounds to more than the dtype holds saturates. The scale of a
    block with an infinity or NaN is NaN. dtype: torch's float8_e4m3fn, where not given, float8_e5m2, or
    float4_e2m1fn_x2, whose elements have half of the extent along k.

    ValueError: another dtype, or k is not a multiple of 32.
    """
    import torch

    dtype = dtype or torch.float8_e4m3fn
    name = str(dtype).removeprefix("torch.")
    if name not in _ELEMENTS:
        raise ValueError(f"dtype {name}: elements with scales of {MX_BLOCK} have {', '.join(_ELEMENTS)}")
    emax, bound = _ELEMENTS[name]
    parts, largest = _blocks(values, MX_BLOCK)
    exponents = (torch.frexp(largest).exponent - 1 - emax).clamp(-E8M0_BIAS, E8M0_BIAS)
    scaled = torch.ldexp(parts.double(), -exponents).flatten(-2).clamp(-bound, bound)
    codes = torch.where(largest.isfinite(), exponents + E8M0_BIAS, 2 * E8M0_BIAS + 1).squeeze(-1).to(torch.uint8)
    elements = encode_e2m1(scaled) if name.endswith("_x2") else scaled.float().to(dtype)
    return elements, codes.view(torch.float8_e8m0fnu)


def quantise_nvfp4(values: Any) -> tuple[Any, Any, float]:
    """(float4_e2m1fn_x2 elements ([batch,] rows, k/2), e4m3 scales ([batch,] rows, k/16), the scale of all) of values
    ([batch,] rows, k), which are the product of the three. The scale of all lets the largest scale of a block be the
    largest of e4m3; each is that by which the largest of its block becomes 6. The scale of a block with an infinity or
    NaN is NaN.

    ValueError: k is not a multiple of 16.
    """
    import torch

    parts, largest = _blocks(values, NV_BLOCK)
    most = float(torch.where(largest.isfinite(), largest, 0.0).amax()) if largest.numel() else 0.0
    whole = most / (_LARGEST_SCALE * LARGEST) or 1.0
    scales = (largest.double() / (LARGEST * whole)).float().to(torch.float8_e4m3fn)
    divisors = scales.double() * whole
    scaled = parts.double() / torch.where(divisors == 0, 1.0, divisors)
    elements = encode_e2m1(torch.where(divisors == 0, 0.0, scaled).flatten(-2))
    return elements, torch.where(largest.isfinite(), scales.float(), torch.nan).to(scales.dtype).squeeze(-1), whole


def _blocks(values: Any, block: int) -> tuple[Any, Any]:
    """(f32 values (.., blocks, block), the largest of each (.., blocks, 1), by size)."""
    if values.shape[-1] % block:
        raise ValueError(f"k is {values.shape[-1]}, not a multiple of a block of {block}")
    parts = values.float().unflatten(-1, (-1, block))
    return parts, parts.abs().amax(-1, keepdim=True)
