"""e2m1, of which torch holds two in an element, float4_e2m1fn_x2, that of even index in the lower four bits.

Sources: OCP Microscaling Formats, section 5.3.3; of what NaN becomes, cuda_fp4.h of the CUDA toolkit. Importing
this module imports no torch.
"""

from __future__ import annotations

from typing import Any

_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of codes 0 .. 7; those from 8 on are negative
LARGEST = _VALUES[-1]
RMS = (sum(v * v for v in _VALUES) / len(_VALUES)) ** 0.5  # of all codes
# Halfway between neighbours, ties go to the even code.
_TO_LOWER, _TO_UPPER = (0.25, 1.25, 2.5, 5.0), (0.75, 1.75, 3.5)


def has_pairs(tensor: Any) -> bool:
    """Whether a tensor has two elements in each of torch's. The dtype is newer than the oldest torch that will do."""
    return str(tensor.dtype) == "torch.float4_e2m1fn_x2"


def pairs_axis(tensor: Any) -> int:
    """The axis along which two elements of a tensor are one of torch's: the contiguous one."""
    inner = [axis for axis, stride in enumerate(tensor.stride()) if stride == 1]
    return max(inner, key=lambda axis: (tensor.shape[axis], axis))


def spread_pairs(tensor: Any) -> Any:
    """A tensor as it is, or, in f32, with an element for each of a pair."""
    import torch

    return decode_e2m1(tensor, torch.float32, pairs_axis(tensor)) if has_pairs(tensor) else tensor


def decode_e2m1(packed: Any, dtype: Any, axis: int = -1) -> Any:
    """The values of a float4_e2m1fn_x2 tensor, twice as many along `axis`, the contiguous one, in `dtype`."""
    import torch

    raw, axis = packed.view(torch.uint8), axis % packed.dim()
    codes = torch.stack((raw & 15, raw >> 4), axis + 1).flatten(axis, axis + 1)
    values = torch.tensor([*_VALUES, *(-v for v in _VALUES)], dtype=dtype, device=packed.device)
    return values[codes.int()]


def encode_e2m1(values: Any) -> Any:
    """A float4_e2m1fn_x2 tensor with half of the extents along the last axis: the nearest values, ties to even; what is
    larger than 6 becomes 6, and so does NaN, as cvt has it. ValueError: an odd number of values along the last axis."""
    import torch

    if values.shape[-1] % 2:
        raise ValueError(f"{values.shape[-1]} values along the last axis, of which two share a byte")
    size = values.abs()
    codes = sum((size > bound).to(torch.uint8) for bound in _TO_LOWER)
    codes = codes + sum((size >= bound).to(torch.uint8) for bound in _TO_UPPER)
    codes = torch.where(values.isnan(), len(_VALUES) - 1, codes | torch.signbit(values).to(torch.uint8) << 3)
    even, odd = codes.unflatten(-1, (-1, 2)).unbind(-1)
    return (even | odd << 4).view(torch.float4_e2m1fn_x2)
