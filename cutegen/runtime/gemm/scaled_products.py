"""Scaled fp8 products by other libraries, with the same scaling and accumulation; each is imported when it is bound."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from cutegen.runtime.arguments import ScalarArg, TensorArg, divided
from cutegen.runtime.baselines import Bind
from cutegen.runtime.gemm.block_scaling import blocked_scales, cublas_scales
from cutegen.runtime.gemm.gathered_rows import product_dims
from cutegen.runtime.gemm.plan import KernelPlan
from cutegen.runtime.gemm.product import Product
from cutegen.runtime.gemm.scale_packing import is_packed


def _scale_views(product: Product, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    """The scales of both operands as `_scaled_mm` takes them: scalars, (m, 1) and (1, n), or one per block, (m, k/128)
    and (k/128, n/128), or packed ones in one dim. ValueError: it does not take such scales."""
    import torch

    plan = product.plan
    packed = [inputs[i].flatten() for i, a in enumerate(plan.inputs) if is_packed(a)]
    if packed:
        first, second = packed if product.operands()[0] is plan.inputs[0] else reversed(packed)
        return first, second
    m, n, _, _ = plan.roles
    device = inputs[plan.inputs.index(product.operands()[0])].device
    scalars, vectors = [], {}
    blocks = blocked_scales(plan)
    if len(blocks) == len(plan.scales) == 2:
        first, second = (_view(plan, a, inputs) for a in blocks)
        return cublas_scales(first, second)
    for arg, value in zip(plan.inputs, inputs):
        if arg.name not in plan.scales:
            continue
        if isinstance(arg, ScalarArg) or not arg.dims:
            scalars.append(value if isinstance(arg, TensorArg) else torch.tensor(value, device=device))
        else:
            vectors[product_dims(plan, arg)] = value
    if not vectors and len(scalars) <= 2:
        first, second = (*scalars, *[torch.ones((), device=device)] * 2)[:2]
        return first, second
    if not scalars and set(vectors) == {(m,), (n,)}:
        return vectors[m,].unsqueeze(1), vectors[n,].unsqueeze(0)
    raise ValueError(
        "torch._scaled_mm takes one scale for each operand, one for each row or one for each block of both"
    )


def scaled_by_blocks(plan: KernelPlan) -> bool:
    """Whether both operands have a scale for each block."""
    return len(blocked_scales(plan)) == 2


def _view(plan: KernelPlan, scale: TensorArg, inputs: tuple[Any, ...]) -> Any:
    """Scales of blocks with those of k last."""
    along_k = [divided(d)[0] == plan.reduced for d in scale.dims]
    value = inputs[plan.inputs.index(scale)]
    return value.movedim(along_k.index(True), -1)


def bind_scaled_mm(product: Product, whole: bool) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        import torch

        a, b, d = product.views(inputs, outputs)
        if a.dim() > 2:
            raise ValueError("torch._scaled_mm takes no batch")
        scale_a, scale_b = _scale_views(product, inputs)
        out = d if whole else d.clone()  # not the kernel's own outputs: those are judged
        fast = not (product.plan.promoted_k or any(map(is_packed, product.plan.inputs)))
        return lambda: torch._scaled_mm(
            a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=out.dtype, use_fast_accum=fast, out=out
        )

    return bind


def bind_deep_gemm(product: Product) -> Bind:
    """Of the version that has one entry point for all scales of blocks: fp8_gemm_nt((a, sa), (b, sb), d)."""

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        gemm = importlib.import_module("deep_gemm").fp8_gemm_nt
        a, b, d = product.views(inputs, outputs)
        sa, sb = (_view(product.plan, s, inputs) for s in blocked_scales(product.plan))
        return lambda: gemm((a, sa), (b.t(), sb), d)

    return bind
