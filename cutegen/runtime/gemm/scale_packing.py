"""Scales of blocks along k as tcgen05 reads them, and cuBLAS and torch._scaled_mm, too: those of 128 rows and 4 blocks
lie together, a chunk.

`pack_scales` puts scales (rows, k blocks) there; the result has the bytes that torch._scaled_mm takes as scales of
MXFP8, MXFP4 and NVFP4, and its `flatten()` is what torch passes. Source: cuBLAS documentation, "1D Block Scaling
Factors Layout": that of row r and block b is byte 16 (r % 32) + 4 (r / 32 % 4) + b % 4 of 512, those of b / 4 before
those of r / 128. Importing this module imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cutegen.runtime.arguments import TensorArg, divided

ROWS, BLOCKS = 128, 4  # that lie together
CHUNK = ROWS * BLOCKS  # bytes of them
_LANES = 32  # rows of tensor memory that hold ROWS, so many columns apart
_DTYPES = ("float8_e8m0fnu", "float8_e4m3fn")
E8M0_BIAS = 127  # a byte b is 2 ** (b - 127); that of all ones is NaN


def pack_scales(scales: Any) -> Any:
    """Scales ([batch,] rows, k blocks) of 8 bits as a tensor ([batch,] ceil(rows/128), ceil(k blocks/4), 512) of the
    same dtype, whose padding is of zero bytes.

    TypeError: the dtype is neither float8_e8m0fnu nor float8_e4m3fn. ValueError: another rank.
    """
    import torch

    _check_dtype(scales)
    if scales.dim() not in (2, 3):
        raise ValueError(f"scales have shape {tuple(scales.shape)}, need ([batch,] rows, blocks of k)")
    *batch, rows, blocks = scales.shape
    high, wide = -(-rows // ROWS), -(-blocks // BLOCKS)
    whole = torch.zeros((*batch, high * ROWS, wide * BLOCKS), dtype=torch.uint8, device=scales.device)
    whole[..., :rows, :blocks] = scales.view(torch.uint8)
    parts = whole.view(*batch, high, ROWS // _LANES, _LANES, wide, BLOCKS)
    n = len(batch)
    order = (*range(n), n, n + 3, n + 2, n + 1, n + 4)
    return parts.permute(order).reshape(*batch, high, wide, CHUNK).view(scales.dtype)


def unpack_scales(packed: Any, rows: int, blocks: int) -> Any:
    """Scales ([batch,] rows, k blocks) of those that `pack_scales` made, of any dtype: references get them in f64."""
    *batch, high, wide, _ = packed.shape
    parts = packed.reshape(*batch, high, wide, _LANES, ROWS // _LANES, BLOCKS)
    n = len(batch)
    order = (*range(n), n, n + 3, n + 2, n + 1, n + 4)
    return parts.permute(order).reshape(*batch, high * ROWS, wide * BLOCKS)[..., :rows, :blocks]


def spread_packed(packed: Any, shape: Sequence[int], block: int) -> Any:
    """The factor of each element of an operand of that shape, ([batch,] rows, k), of packed scales for `block` of k."""
    return unpack_scales(packed, shape[-2], -(-shape[-1] // block)).repeat_interleave(block, -1)[..., : shape[-1]]


def spread_rows(mask: Any, packed: Any) -> Any:
    """A mask of rows ([batch,] rows) as one of packed scales of the shape `packed`. Rows of padding are in it."""
    import torch

    *batch, high, wide, _ = packed
    rows = torch.nn.functional.pad(mask, (0, high * ROWS - mask.shape[-1]), value=True)
    lanes = rows.view(*rows.shape[:-1], high, ROWS // _LANES, _LANES).transpose(-1, -2)
    words = lanes.unsqueeze(-1).expand(*lanes.shape, BLOCKS).reshape(*rows.shape[:-1], high, 1, CHUNK)
    return words.expand(*batch, high, wide, CHUNK)


def is_packed(arg: Any) -> bool:
    """Whether an argument has packed scales."""
    return isinstance(arg, TensorArg) and arg.dims[-1:] == (str(CHUNK),)


def fill_packed(packed: Any, arg: TensorArg, dims: dict[str, int], scale: float) -> Any:
    """Fills packed scales with random ones around `scale`, and padding with zero bytes: powers of two from half of it
    to twice as much, or, of e4m3, [0.5, 1.5) of it. dims: extents of the call."""
    import torch

    (row_name, _), (k_name, depth) = (divided(d) for d in arg.dims[-3:-1])
    shape = (*packed.shape[:-3], dims[row_name], -(-dims[k_name] * BLOCKS // depth))
    if arg.dtype == _DTYPES[0]:
        middle = round(math.log2(scale)) + E8M0_BIAS
        drawn = torch.randint(middle - 1, middle + 2, shape, device=packed.device).to(torch.uint8).view(packed.dtype)
    else:
        drawn = torch.empty(shape, device=packed.device).uniform_(0.5 * scale, 1.5 * scale).to(packed.dtype)
    packed.view(torch.uint8).copy_(pack_scales(drawn).view(torch.uint8))
    return packed


def _check_dtype(scales: Any) -> None:
    name = str(scales.dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise TypeError(f"scales have dtype {name}; those of blocks have {' or '.join(_DTYPES)}")
