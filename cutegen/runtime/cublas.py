"""Products by cuBLAS as torch calls it, for operands of any dtype that it has kernels for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def bind_product(a: Any, b: Any, out: Any, *, promoted: bool = False) -> Callable[[], Any]:
    """A launch of a @ b into `out`. a, b: 16-bit floats with any out; 8-bit floats (a row-major, b column-major), with
    unit scales; or int8 into int32. promoted: 8-bit products are added up in f32 and not in the tensor core."""
    import torch

    if a.dtype.itemsize == 1 and a.dtype.is_floating_point:
        one = torch.ones((), dtype=torch.float32, device=a.device)
        return lambda: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=out.dtype, use_fast_accum=not promoted, out=out
        )
    if a.dtype is torch.int8:
        return lambda: torch._int_mm(a, b, out=out)
    function = torch.mm if a.dim() == 2 else torch.bmm
    if out.dtype is a.dtype:
        return lambda: function(a, b, out=out)
    return lambda: function(a, b, out_dtype=out.dtype, out=out)


def product_dtype(operand: Any) -> Any:
    """What a product of such operands is usually stored as."""
    import torch

    if operand is torch.int8:
        return torch.int32
    return operand if operand.itemsize > 1 else torch.bfloat16


def draw_matrix(rows: int, columns: int, dtype: Any, device: str) -> Any:
    """N(0, 1), or integers of that many values around 0."""
    import torch

    if dtype is torch.int8:
        return torch.randint(-3, 4, (rows, columns), dtype=dtype, device=device)
    return torch.randn(rows, columns, device=device).to(dtype)
