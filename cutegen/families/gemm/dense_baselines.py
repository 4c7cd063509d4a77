"""What dense products are measured against: other libraries, with the epilogue where they fuse it, and PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cutegen.families.gemm.features.feature_list import adapt_baselines
from cutegen.families.proving import Baseline
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.baselines import bind_compiled, bind_eager
from cutegen.runtime.epilogue_form import PLAIN
from cutegen.runtime.gemm.libraries import (
    bind_quack,
    cublaslt_epilogue,
    nvmath_values,
    nvmath_ways,
    operator_ways,
    quack_epilogue,
)
from cutegen.runtime.gemm.operand_kinds import epilogue_form
from cutegen.runtime.gemm.plan import KernelPlan
from cutegen.runtime.gemm.product import Product
from cutegen.runtime.gemm.scale_packing import is_packed
from cutegen.runtime.gemm.scaled_products import bind_deep_gemm, bind_scaled_mm, scaled_by_blocks
from cutegen.runtime.gemm.torch_products import bind_addmm, bind_mm, bind_product, bind_unfused


def list_dense_baselines(plan: KernelPlan) -> Iterator[Baseline]:
    """Every baseline that could apply to the plan of a product, the one that ratios refer to first."""
    yield from adapt_baselines(plan, _list_products(plan))
    if len(plan.outputs) > 1 or epilogue_form(plan) != PLAIN:
        unfused = "cuBLAS, then each epilogue op"
        yield Baseline(
            "torch eager",
            unfused,
            bind_unfused(plan, bind_eager(plan)),
            complete=False,
            rival="torch eager",
        )
        compiled = "what Inductor makes of the reference"
        yield Baseline(
            "torch.compile", compiled, bind_unfused(plan, bind_compiled(plan)), complete=False, rival="torch.compile"
        )


def _list_products(plan: KernelPlan) -> Iterator[Baseline]:
    """Products by other libraries, with the epilogue where they fuse it."""
    yield from list_scaled_baselines(plan)
    product = Product(plan)
    quack = Baseline("quack", "quack, tuned", bind_quack(product), rival="quack")
    if len(plan.outputs) > 1 or epilogue_form(plan) != PLAIN or plan.scales:  # scales of blocks are in no epilogue
        alone = "cuBLAS, the product only"
        if not any(a.dtype.startswith("float4") for a in product.operands()):
            yield Baseline("torch.mm", alone, bind_product(product), complete=False, rival="cuBLAS product")
        addend = _addend(plan)
        if addend is not None:
            how = "cuBLAS with its own addition, out="
            yield Baseline("torch.addmm", how, bind_addmm(product, addend), rival="cuBLAS")
        single = len(plan.outputs) == 1 and not plan.scales
        if single and cublaslt_epilogue(product):
            own = "cuBLASLt with its own epilogue, its best candidate"
            yield Baseline("nvmath", own, nvmath_values(product), False, rival="cuBLAS", ways=nvmath_ways(product))
        if single and quack_epilogue(product):
            yield quack
    else:
        yield Baseline("torch.mm", "cuBLAS, its first choice", bind_mm(product), rival="cuBLAS")
        best = "cuBLASLt, its best candidate"
        yield Baseline("nvmath", best, nvmath_values(product), rival="cuBLAS", ways=nvmath_ways(product))
        yield quack
        best = "CUTLASS operators, the best"
        yield Baseline("cutlass_operators", best, product.views, rival="CUTLASS", ways=operator_ways())


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


def list_scaled_baselines(plan: KernelPlan) -> Iterator[Baseline]:
    """What multiplies fp8 or fp4 operands by scales as well; none for other plans."""
    product = Product(plan)
    if not plan.scales or not all(a.dtype.startswith(("float8", "float4")) for a in product.operands()):
        return
    # Scales and nothing else: what `_scaled_mm` computes.
    whole = len(plan.outputs) == 1 and list(plan.epilogue.values())[-1:] == ["acc"]
    accumulation = "promoted" if plan.promoted_k else "fast"
    how = "packed scales" if any(map(is_packed, plan.inputs)) else f"{accumulation} accumulation"
    does = f"cuBLAS with {how}, " + ("out=" if whole else "the product and its scales only")
    rival = "cuBLAS" if whole else "cuBLAS product"
    yield Baseline("torch._scaled_mm", does, bind_scaled_mm(product, whole), complete=whole, rival=rival)
    if whole and scaled_by_blocks(plan):
        yield Baseline("deep_gemm", "DeepGEMM, out=", bind_deep_gemm(product), rival="DeepGEMM")
