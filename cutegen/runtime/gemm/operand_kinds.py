"""The epilogue of a plan in the words of `epilogue_form`: operands by their shape against the product's."""

from __future__ import annotations

from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.epilogue_form import PLAIN, form_text, inline
from cutegen.runtime.gemm.plan import KernelPlan


def epilogue_form(plan: KernelPlan) -> str:
    """The form of a plan's first output; several outputs read `first; second`."""
    kinds = operand_kinds(plan)
    dims = _roles(plan)
    numbers: dict[str, str] = {}

    def named(name: str) -> str:
        if name in numbers:
            return numbers[name]
        if kind := kinds.get(name):
            count = sum(other.rstrip("0123456789") == kind for other in numbers.values())
            return numbers.setdefault(name, kind + (str(count + 1) if count else ""))
        return dims.get(name, name)

    values = inline(plan.epilogue, named)
    return "; ".join(form_text(values[o.name]) if o.name in values else PLAIN for o in plan.outputs)


def operand_kinds(plan: KernelPlan) -> dict[str, str]:
    """`tile`, `row`, `column` or `scalar` of each input that the product does not contract."""
    m, n, _, _ = plan.roles
    kinds = {}
    for arg in plan.inputs:
        if isinstance(arg, TensorArg) and plan.reduced in arg.dims:
            continue
        dims = {d for d in arg.dims if d in (m, n)} if isinstance(arg, TensorArg) else set()
        kinds[arg.name] = "tile" if len(dims) == 2 else "row" if n in dims else "column" if m in dims else "scalar"
    return kinds


def find_operand(plan: KernelPlan, kind: str) -> TensorArg | None:
    """The first operand of a kind."""
    kinds = operand_kinds(plan)
    return next((a for a in plan.inputs if isinstance(a, TensorArg) and kinds.get(a.name) == kind), None)


def _roles(plan: KernelPlan) -> dict[str, str]:
    m, n, _, _ = plan.roles
    return {m: "m", n: "n"}
