"""Scales that vary along k, as plans declare them. Importing this module imports neither torch nor cutlass."""

from __future__ import annotations

from typing import Any

from cutegen.runtime.arguments import TensorArg, divided
from cutegen.runtime.gemm.gathered_rows import product_dims
from cutegen.runtime.gemm.plan import KernelPlan
from cutegen.runtime.gemm.scale_packing import is_packed

CUBLAS_STEP = 4  # f32: columns of scales are 16 bytes apart


def blocked_scales(plan: KernelPlan) -> list[TensorArg]:
    """f32 scales that vary along k, of the left operand first."""
    m = plan.roles[0]
    scales = [a for a in plan.inputs if isinstance(a, TensorArg) and a.name in plan.scales]
    found = [a for a in scales if any(divided(d)[1] > 1 for d in a.dims) and not is_packed(a)]
    return sorted(found, key=lambda a: not any(divided(d)[0] == m for d in product_dims(plan, a)))


def cublas_scales(of_rows: Any, of_blocks: Any) -> tuple[Any, Any]:
    """Scales (rows, k blocks) and (n blocks, k blocks) as torch._scaled_mm takes them, (k blocks, n blocks) the latter:
    cuBLASLt wants each column of both without a gap behind the one before, and 16 bytes from it (cuBLAS documentation,
    Scaling factors layouts). torch checks not all of that: it passes four k blocks for three, with wrong results.

    ValueError: rows or k blocks are no multiple of 4.
    """
    rows, blocks = of_rows.shape
    for count, what in ((rows, "rows"), (blocks, "blocks of k")):
        if count % CUBLAS_STEP:
            raise ValueError(f"cuBLAS scales by blocks in multiples of {CUBLAS_STEP} {what}, not {count}")
    return of_rows.t().contiguous().t(), of_blocks.contiguous().t()
