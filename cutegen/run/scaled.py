"""Baselines of scaled fp8 products: the same scaling and accumulation by other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cutegen.families.proving import Baseline, Bind
from cutegen.run.product import Product
from cutegen.runtime.arguments import ScalarArg, TensorArg
from cutegen.runtime.plan import KernelPlan


def list_scaled_baselines(plan: KernelPlan) -> Iterator[Baseline]:
    """What multiplies fp8 operands by scales as well; none for other plans."""
    product = Product(plan)
    if not plan.scales or not all(a.dtype.startswith("float8") for a in product.operands()):
        return
    # Scales and nothing else: what `_scaled_mm` computes.
    whole = len(plan.outputs) == 1 and list(plan.epilogue.values())[-1:] == ["acc"]
    accumulation = "promoted" if plan.promoted_k else "fast"
    does = f"cuBLAS with {accumulation} accumulation, " + ("out=" if whole else "the product and its scales only")
    library = "cuBLAS" if whole else "cuBLAS product"
    yield Baseline("torch._scaled_mm", does, _bind_scaled_mm(product, whole), complete=whole, library=library)


def _scale_views(product: Product, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    """The scales of both operands as `_scaled_mm` takes them: scalars, or (m, 1) and (1, n). ValueError: it does not
    take such scales."""
    import torch

    plan = product.plan
    m, n, _, _ = plan.roles
    device = inputs[plan.inputs.index(product.operands()[0])].device
    scalars, vectors = [], {}
    for arg, value in zip(plan.inputs, inputs):
        if arg.name not in plan.scales:
            continue
        if isinstance(arg, ScalarArg) or not arg.dims:
            scalars.append(value if isinstance(arg, TensorArg) else torch.tensor(value, device=device))
        else:
            vectors[arg.dims] = value
    if not vectors and len(scalars) <= 2:
        first, second = (*scalars, *[torch.ones((), device=device)] * 2)[:2]
        return first, second
    if not scalars and set(vectors) == {(m,), (n,)}:
        return vectors[m,].unsqueeze(1), vectors[n,].unsqueeze(0)
    raise ValueError("torch._scaled_mm takes one scale for each operand, or one for each row of both")


def _bind_scaled_mm(product: Product, whole: bool) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        import torch

        a, b, d = product.views(inputs, outputs)
        if a.dim() > 2:
            raise ValueError("torch._scaled_mm takes no batch")
        scale_a, scale_b = _scale_views(product, inputs)
        out = d if whole else d.clone()  # not the kernel's own outputs: those are judged
        fast = not product.plan.promoted_k
        return lambda: torch._scaled_mm(
            a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=out.dtype, use_fast_accum=fast, out=out
        )

    return bind
