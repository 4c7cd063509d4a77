"""What references of epilogues call beside torch itself: functions that are exact where torch's own are not."""

from __future__ import annotations

from typing import Any

SMALLEST = 2.0**-126  # normal f32


def divide(x: Any, y: Any) -> Any:
    """x / y, correctly rounded. Where one of them is a number, torch multiplies by a rounded inverse instead."""
    import torch

    like = x if isinstance(x, torch.Tensor) else y
    x, y = (v if isinstance(v, torch.Tensor) else torch.full_like(like, v) for v in (x, y))
    return torch.div(x, y)


def ceil_pow2(x: Any) -> Any:
    """The smallest power of two from 2**-126 that is not below |x|, exactly; 0 of 0."""
    import torch

    given, x = x.dtype, x.to(torch.promote_types(x.dtype, torch.float32))
    mantissa, exponent = torch.frexp(x.abs())  # from 0.5 to 1
    power = torch.ldexp(torch.where(mantissa > 0.5, 1.0, 0.5).to(x.dtype), exponent).clamp(min=SMALLEST)
    return torch.where((x == 0) | ~x.isfinite(), x.abs(), power).to(given)


def spread_values(x: Any, block: tuple[int, int], acc: Any) -> Any:
    """(.., m blocks, n blocks) -> (.., m, n) of acc: each element gets the value of its block (rows, columns)."""
    rows, columns = acc.shape[-2:]
    return x.repeat_interleave(block[0], -2).repeat_interleave(block[1], -1)[..., :rows, :columns]


def reduce_blocks(x: Any, block: int, op: str) -> Any:
    """(.., n) -> (.., n): each element is what its block of columns is reduced to, the last block being a part where
    n is no multiple. NaN stays NaN."""
    import torch

    n = x.shape[-1]
    pad = -n % block
    filler = -torch.inf if op == "max" else 0.0
    blocks = torch.nn.functional.pad(x, (0, pad), value=filler).unflatten(-1, (-1, block))
    if op == "sum":
        value = blocks.sum(-1, keepdim=True)
    else:
        value = (blocks.abs() if op == "max_abs" else blocks).amax(-1, keepdim=True)
    return value.expand(blocks.shape).flatten(-2)[..., :n]
