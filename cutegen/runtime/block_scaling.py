"""Scales that vary along k, as plans declare them. Importing this module imports neither torch nor cutlass."""

from __future__ import annotations

from cutegen.runtime.arguments import TensorArg, divided
from cutegen.runtime.gathered_rows import product_dims
from cutegen.runtime.plan import KernelPlan


def blocked_scales(plan: KernelPlan) -> list[TensorArg]:
    """Scales that vary along k, of the left operand first."""
    m = plan.roles[0]
    scales = [a for a in plan.inputs if isinstance(a, TensorArg) and a.name in plan.scales]
    found = [a for a in scales if any(divided(d)[1] > 1 for d in a.dims)]
    return sorted(found, key=lambda a: not any(divided(d)[0] == m for d in product_dims(plan, a)))
