"""The portfolio in a plan: what the cost model reads of the product and of each tiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.families.gemm.cost_model import form_of, instance_of, list_moved
from cutegen.families.gemm.resolved import ResolvedGemm
from cutegen.runtime.gemm.cost_model import Form
from cutegen.runtime.gemm.portfolio import Traits


@dataclass(frozen=True, slots=True)
class PortfolioText:
    """What the template reads as p.portfolio. moved: `Form.moved` by tensor. traits: by module."""

    form: Form
    moved: Mapping[str, tuple[int, int, int, int, str]]
    traits: Mapping[str, Traits]


def portfolio_text(resolved: ResolvedGemm) -> PortfolioText | None:
    """None where one tiling runs all calls."""
    if len(resolved.tilings) < 2:
        return None
    instances = {kernel.module: instance_of(kernel.structure) for kernel in resolved.kernels}
    traits = {module: Traits(*(getattr(i, field) for field in Traits._fields)) for module, i in instances.items()}
    return PortfolioText(form_of(resolved.problem), dict(list_moved(resolved.problem)), traits)
