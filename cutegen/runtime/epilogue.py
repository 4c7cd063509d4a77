"""What references of epilogues call beside torch itself: functions that are exact where torch's own are not."""

from __future__ import annotations

from typing import Any

SMALLEST = 2.0**-126  # normal f32
EXPONENTS = 4  # of UE8M0, in an i32


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


def scale_before_ceil_pow2(factor: float) -> Any:
    """A context in which `ceil_pow2` gets its argument times a factor: what differs there, a rounding decides."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Scaled(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = (args[0] * factor,) if func is torch.frexp else args  # which nothing else of a reference calls
            return func(*given, **(kwargs or {}))

    return Scaled()


def pack_exponents(x: Any) -> Any:
    """(.., n) powers of two -> (.., ceil(n/4)) i32: as UE8M0 has them, the first one in the lowest byte; 0 behind the
    last one."""
    import torch

    codes = x.to(torch.float32).view(torch.int32) >> 23
    parts = torch.nn.functional.pad(codes, (0, -x.shape[-1] % EXPONENTS)).unflatten(-1, (-1, EXPONENTS)).unbind(-1)
    return parts[0] | parts[1] << 8 | parts[2] << 16 | parts[3] << 24


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
