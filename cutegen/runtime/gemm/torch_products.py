"""Products by PyTorch, of the operands of a plan. Importing this module imports neither torch nor cutlass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.baselines import Bind
from cutegen.runtime.cublas import bind_product as bind_cublas
from cutegen.runtime.cublas import product_dtype
from cutegen.runtime.gemm.plan import KernelPlan
from cutegen.runtime.gemm.product import Product


def bind_mm(product: Product) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        a, b, d = product.views(inputs, outputs)
        return bind_cublas(a, b, d, promoted=bool(product.plan.promoted_k))

    return bind


def bind_product(product: Product) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        import torch

        a, b, d = product.views(inputs, outputs)
        # Not the kernel's own outputs: those are judged, and may have fewer columns.
        shape, dtype = (*a.shape[:-1], b.shape[-1]), product_dtype(a.dtype)
        alike = tuple(d.shape) == shape
        scratch = torch.empty_like(d, dtype=dtype) if alike else torch.empty(shape, dtype=dtype, device=d.device)
        return bind_cublas(a, b, scratch, promoted=bool(product.plan.promoted_k))

    return bind


def bind_addmm(product: Product, addend: TensorArg) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        import torch

        a, b, d = product.views(inputs, outputs)
        c = product.like_output(addend, inputs)
        if d.dim() == 2:
            return lambda: torch.addmm(c, a, b, out=d)
        return lambda: torch.baddbmm(c, a, b, out=d)

    return bind


def bind_unfused(plan: KernelPlan, bind_plan: Bind) -> Bind:
    """The reference, unless PyTorch has no product of its operands."""

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        if any(inputs[plan.inputs.index(a)].element_size() == 1 for a in Product(plan).operands()):
            # Asked all the same, Inductor's workers print pages before they fail.
            raise ValueError("PyTorch multiplies 8-bit operands with torch._scaled_mm and torch._int_mm only")
        return bind_plan(inputs, outputs)

    return bind
