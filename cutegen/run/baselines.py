"""What a generated product is measured against, on the same inputs, in the same process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from cutegen.families.gemm.gathered_baselines import after_gather
from cutegen.families.proving import Baseline, Bind
from cutegen.run.cublas import bind_product, product_dtype
from cutegen.run.epilogue_form import PLAIN, epilogue_form
from cutegen.run.libraries import bind_nvmath, bind_operators, bind_quack, cublaslt_epilogue, quack_epilogue
from cutegen.run.product import Product
from cutegen.run.scaled import list_scaled_baselines
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.baselines import bind_compiled, bind_eager
from cutegen.runtime.gemm.plan import KernelPlan


def list_baselines(plan: KernelPlan) -> Iterator[Baseline]:
    """Every baseline that could apply to the plan of a product, the one that ratios refer to first."""
    yield from after_gather(plan, _list_products(plan))
    if len(plan.outputs) > 1 or epilogue_form(plan) != PLAIN:
        unfused = "cuBLAS, then each epilogue op"
        yield Baseline(
            "torch eager",
            unfused,
            _unfused(plan, bind_eager(plan)),
            complete=False,
            rival="torch eager",
        )
        compiled = "what Inductor makes of the reference"
        yield Baseline(
            "torch.compile", compiled, _unfused(plan, bind_compiled(plan)), complete=False, rival="torch.compile"
        )


def _list_products(plan: KernelPlan) -> Iterator[Baseline]:
    """Products by other libraries, with the epilogue where they fuse it."""
    yield from list_scaled_baselines(plan)
    product = Product(plan)
    quack = Baseline("quack", "quack, tuned", bind_quack(product), rival="quack")
    if len(plan.outputs) > 1 or epilogue_form(plan) != PLAIN or plan.scales:  # scales of blocks are in no epilogue
        alone = "cuBLAS, the product only"
        yield Baseline("torch.mm", alone, _bind_product(product), complete=False, rival="cuBLAS product")
        addend = _addend(plan)
        if addend is not None:
            how = "cuBLAS with its own addition, out="
            yield Baseline("torch.addmm", how, _bind_addmm(product, addend), rival="cuBLAS")
        single = len(plan.outputs) == 1 and not plan.scales
        if single and cublaslt_epilogue(product):
            own = "cuBLASLt with its own epilogue, its best candidate"
            yield Baseline("nvmath", own, bind_nvmath(product), complete=False, rival="cuBLAS")
        if single and quack_epilogue(product):
            yield quack
    else:
        yield Baseline("torch.mm", "cuBLAS, its first choice", _bind_mm(product), rival="cuBLAS")
        yield Baseline("nvmath", "cuBLASLt, its best candidate", bind_nvmath(product), rival="cuBLAS")
        yield quack
        yield Baseline("cutlass_operators", "CUTLASS operators, the best", bind_operators(product), rival="CUTLASS")


def _addend(plan: KernelPlan) -> TensorArg | None:
    """X where the only statement is acc + X, X a tensor of the operands' and the output's dtype."""
    statements = list(plan.epilogue.values())
    found = re.fullmatch(r"acc \+ (\w+)|(\w+) \+ acc", statements[0].strip()) if len(statements) == 1 else None
    name = (found[1] or found[2]) if found else None
    types = {a.dtype for a in (*Product(plan).operands(), *plan.outputs)}
    arg = next((a for a in plan.inputs if a.name == name and isinstance(a, TensorArg)), None)
    m_dim = plan.roles[0]
    if arg is None or types != {arg.dtype} or (len(arg.dims) == 1 and arg.dims[0] == m_dim):
        return None
    return arg


def _bind_mm(product: Product) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        a, b, d = product.views(inputs, outputs)
        return bind_product(a, b, d, promoted=bool(product.plan.promoted_k))

    return bind


def _bind_product(product: Product) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        import torch

        a, b, d = product.views(inputs, outputs)
        # Not the kernel's own outputs: those are judged, and may have fewer columns.
        shape, dtype = (*a.shape[:-1], b.shape[-1]), product_dtype(a.dtype)
        alike = tuple(d.shape) == shape
        scratch = torch.empty_like(d, dtype=dtype) if alike else torch.empty(shape, dtype=dtype, device=d.device)
        return bind_product(a, b, scratch, promoted=bool(product.plan.promoted_k))

    return bind


def _bind_addmm(product: Product, addend: TensorArg) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        import torch

        a, b, d = product.views(inputs, outputs)
        c = product.like_output(addend, inputs)
        if d.dim() == 2:
            return lambda: torch.addmm(c, a, b, out=d)
        return lambda: torch.baddbmm(c, a, b, out=d)

    return bind


def _unfused(plan: KernelPlan, bind_plan: Bind) -> Bind:
    """The reference, unless PyTorch has no product of its operands."""

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        if any(inputs[plan.inputs.index(a)].element_size() == 1 for a in Product(plan).operands()):
            # Asked all the same, Inductor's workers print pages before they fail.
            raise ValueError("PyTorch multiplies 8-bit operands with torch._scaled_mm and torch._int_mm only")
        return bind_plan(inputs, outputs)

    return bind
