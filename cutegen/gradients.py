"""Gradients of plans: their kernels as specs, rendered as any other. Named by cutegen/runtime/autograd.py."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

from cutegen.api import Spec
from cutegen.diagnostics import SpecError
from cutegen.dtypes import DTYPES
from cutegen.families.gemm.binding import bind
from cutegen.families.gemm.gradient import GradientText, KernelText, gradient_text
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.without_operands import without
from cutegen.runtime.arguments import Argument, ScalarArg
from cutegen.runtime.autograd import Gradient, GradientKernel, NotDifferentiable
from cutegen.runtime.base import BasePlan
from cutegen.spec import load_text, parse_spec
from cutegen.spec.yaml_text import write_yaml

MOST_NAME = 32  # characters of a plan's name that its gradient kernels have in theirs
_SHORT = {dtype.torch: dtype.name for dtype in DTYPES.values()}
_lock = threading.RLock()
_found: dict[tuple[Any, ...], Gradient] = {}
_plans: dict[str, BasePlan] = {}  # of gradient kernels, by name


def find_gradient(plan: BasePlan, wanted: frozenset[str], omitted: frozenset[str]) -> Gradient:
    """How the gradients of the inputs `wanted` are computed in calls without `omitted`. NotDifferentiable: why not."""
    key = (plan, wanted, omitted)
    with _lock:
        if key not in _found:
            try:
                text = gradient_text(without(_problem(plan), sorted(omitted)), wanted)
                _found[key] = _gradient(plan, text)
            except NotDifferentiable as error:
                raise NotDifferentiable(f"{plan.name}: has no gradient: {error}") from None
        return _found[key]


def load_plan(text: str, name: str) -> BasePlan:
    """The plan of a gradient kernel."""
    return Spec.from_text(text, name).load()


def _problem(plan: BasePlan) -> GemmProblem:
    """What a plan computes, read from what it declares."""
    if plan.family != "gemm":
        raise NotDifferentiable(f"`kernel: {plan.family}` has no gradient kernels")
    if reason := next((said for name, said in _REFUSED if getattr(plan, name, None)), ""):
        raise NotDifferentiable(reason)
    product: Any = plan
    operands = [a.name for a in plan.inputs if not isinstance(a, ScalarArg) and product.reduced in a.dims]
    m, _, k, _ = product.roles
    first = next(a for a in plan.inputs if not isinstance(a, ScalarArg) and {m, k} <= set(a.dims))
    left, right = sorted(operands, key=lambda name: name != first.name)
    extents = {d: list(e) if isinstance(e, tuple) else e for d, e in plan.dims.items() if e != (1, None)}
    data: dict[str, Any] = {"cutegen": 1, "kernel": "gemm", "arch": plan.arch}
    data |= {"dims": extents} if extents else {}
    data |= {
        "tensors": {a.name: _declare(a) for a in (*plan.inputs, *plan.outputs)},
        "mainloop": f"{left} @ {right}",
        "epilogue": dict(product.epilogue),
    }
    try:
        document = load_text(write_yaml(data), plan.name, f"<{plan.name}>")
        return bind(parse_spec(document), document)  # type: ignore[arg-type]
    except SpecError as error:
        raise NotDifferentiable(f"its spec cannot be read from the plan: {error.diagnostics[0].message}") from error


# Before anything is read of a plan: what its spec would have to say otherwise.
_REFUSED = (
    ("row_groups", "products of groups of rows have no gradient kernel"),
    ("gathered", "gathered rows have no gradient kernel"),
    ("scales", "scales of the product have no gradient kernel"),
    ("block_values", "values of blocks have no gradient kernel"),
)


def _declare(arg: Argument) -> str:
    if isinstance(arg, ScalarArg):
        return "f32" + "?" * arg.optional
    inner = "" if arg.contiguous in (None, len(arg.dims) - 1) else f"@{arg.dims[arg.contiguous]}"
    return f"{_SHORT[arg.dtype]}[{', '.join(arg.dims)}]{inner}{'?' * arg.optional}"


def _gradient(plan: BasePlan, text: GradientText) -> Gradient:
    code, after = (
        compile("\n".join(lines), f"<gradient of {plan.name}>", "exec") if lines else None
        for lines in (text.lines, text.after)
    )
    return Gradient(
        reads=text.reads,
        grads=text.grads,
        code=code,
        local=_kernel(plan, text.local) if text.local else None,
        after=after,
        parts=text.parts,
        pairing=text.pairing,
        products={name: _kernel(plan, kernel) for name, kernel in text.products.items()},
        results=text.results,
        dtypes=text.dtypes,
    )


def _kernel(plan: BasePlan, kernel: KernelText) -> GradientKernel:
    text = write_yaml(kernel.data)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return GradientKernel(
        _operator(text, f"{plan.name[:MOST_NAME]}_grad_{digest}", plan.name), kernel.operands, kernel.results
    )


def _operator(text: str, name: str, owner: str) -> Callable[[], Any]:
    """What renders and registers a kernel once."""

    def operator() -> Any:
        with _lock:
            if name not in _plans:
                try:
                    _plans[name] = load_plan(text, name)
                except SpecError as error:
                    first = error.diagnostics[0]
                    said = f"its kernel would be refused: {first.message}"
                    raise NotDifferentiable(f"{owner}: has no gradient: {said}") from error
            return _plans[name].register_torch_op().default

    return operator
