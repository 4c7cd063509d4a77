"""Gradients of the torch operators of plans. Importing this module imports neither torch nor cutlass.

The kernels that compute them are rendered by cutegen itself, when a gradient is first asked for: cutegen/gradients.py.
A standalone package finds it where both are installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from cutegen.runtime.arguments import torch_dtype
from cutegen.runtime.callable_plan import CallablePlan
from cutegen.runtime.epilogue import ceil_pow2, divide

GENERATOR = "cutegen.gradients"  # by name: generated packages need no generator to run


class NotDifferentiable(RuntimeError):
    """A gradient that no kernel can be rendered for; the message says why."""


def make_autograd(plan: CallablePlan) -> tuple[Callable[..., None], Callable[..., Any]]:
    """(setup_context, backward) of torch.library.register_autograd. What cannot be differentiated is said when its
    gradient is asked for: a call without one, with parameters that have a gradient elsewhere, is fine."""
    names = [a.name for a in plan.inputs]

    def setup(ctx: Any, inputs: Sequence[Any], keyword_only_inputs: Any, output: Any) -> None:
        given = dict(zip(names, inputs))
        wanted = frozenset(name for name, need in zip(names, ctx.needs_input_grad) if need)
        omitted = frozenset(name for name, value in given.items() if value is None)
        ctx.gradient = ctx.reason = None
        ctx.forms = {name: (given[name].shape, given[name].dtype) for name in wanted}
        try:
            ctx.gradient = find_gradient(plan, wanted, omitted)
        except NotDifferentiable as error:
            ctx.reason = str(error)
            return
        tensors = [name for name in ctx.gradient.reads if hasattr(given[name], "dim")]
        ctx.kept = tensors
        ctx.numbers = {name: given[name] for name in ctx.gradient.reads if name not in tensors}
        ctx.save_for_backward(*(given[name] for name in tensors))

    def backward(ctx: Any, *grads: Any) -> Any:
        if ctx.reason is not None:
            raise NotDifferentiable(ctx.reason)
        if not any(grad.numel() for grad in grads):  # kernels compute no product over no elements
            zeros = {name: grads[0].new_zeros(shape, dtype=dtype) for name, (shape, dtype) in ctx.forms.items()}
            return _in_order(zeros, names)
        values = {**ctx.numbers, **dict(zip(ctx.kept, ctx.saved_tensors))}
        return _in_order(ctx.gradient.compute(values, grads), names)

    return setup, backward


def _in_order(found: Mapping[str, Any], names: Sequence[str]) -> Any:
    results = tuple(found.get(name) for name in names)
    return results if len(results) > 1 else results[0]


@dataclass(frozen=True)
class GradientKernel:
    """operator: the torch operator of a kernel, which is rendered when it is first asked for. operands: names of its
    values, each with the axis that has to be contiguous, or None for what is passed as the call had it. results: names
    of what it computes."""

    operator: Callable[[], Any]
    operands: tuple[tuple[str, int | None], ...]
    results: tuple[str, ...]

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        given = (values[name] if axis is None else _laid_out(values[name], axis) for name, axis in self.operands)
        computed = self.operator()(*given)
        return dict(zip(self.results, computed if isinstance(computed, (tuple, list)) else (computed,)))


@dataclass(frozen=True)
class Gradient:
    """How the gradients of some inputs are computed.

    reads: inputs that they are computed from. grads: names of the gradients of the outputs. code: statements of torch
    that compute some values from these, as source compiled; None: there is nothing to. local: a kernel that computes
    the others; after: statements that sum some of these. parts: names of the values that are the gradient of the
    product; pairing: which columns each of two has. products: by operand of the product, the kernel that multiplies
    that, which its operand "acc" is, by the other one. results: by input, the name of its value. dtypes: of inputs, in
    torch.
    """

    reads: tuple[str, ...]
    grads: tuple[str, ...]
    code: CodeType | None
    local: GradientKernel | None
    after: CodeType | None
    parts: tuple[str, ...]
    pairing: str | None
    products: Mapping[str, GradientKernel]
    results: Mapping[str, str]
    dtypes: Mapping[str, str]

    def compute(self, values: Mapping[str, Any], grads: Sequence[Any]) -> dict[str, Any]:
        """By input. values: of `reads`; grads: with respect to the outputs."""
        held = {**values, **dict(zip(self.grads, grads))}
        found: dict[str, Any] = {}
        if self.code is not None:
            found |= _execute(self.code, held)
        if self.local is not None:
            found |= self.local.run(held)
        if self.after is not None:
            found |= _execute(self.after, found)
        results = {name: found[value].to(torch_dtype(self.dtypes[name])) for name, value in self.results.items()}
        for name, product in self.products.items():
            held["acc"] = self._join([found[part] for part in self.parts]).to(torch_dtype(self.dtypes[name]))
            (results[name],) = product.run(held).values()
        return results

    def _join(self, parts: Sequence[Any]) -> Any:
        """The gradient of the product from those of its columns."""
        import torch

        if len(parts) == 1:
            return parts[0]
        return (
            torch.cat(list(parts), -1) if self.pairing == "concatenated" else torch.stack(list(parts), -1).flatten(-2)
        )


def _laid_out(tensor: Any, axis: int) -> Any:
    """The tensor, or a dense copy, with this axis contiguous: gradients may have any strides."""
    order = [i for i in range(tensor.dim()) if i != axis] + [axis]
    return tensor.permute(order).contiguous().permute([order.index(i) for i in range(len(order))])


def _execute(code: CodeType, values: Mapping[str, Any]) -> dict[str, Any]:
    """The names that statements of a reference leave: rendered from a spec, as those of a plan are."""
    import torch

    scope = {"torch": torch, **{f.__name__: f for f in (divide, ceil_pow2)}, **values}
    exec(code, scope)
    return scope


def find_gradient(plan: CallablePlan, wanted: frozenset[str], omitted: frozenset[str]) -> Any:
    """How the gradients of the inputs `wanted` are computed, where `omitted` are None."""
    try:
        generator = importlib.import_module(GENERATOR)
    except ModuleNotFoundError as error:
        said = "its gradients are computed by kernels that cutegen renders, and cutegen is not installed"
        raise NotDifferentiable(f"{plan.name}: {said}") from error
    return generator.find_gradient(plan, wanted, omitted)


def refuse_gradients(plan: CallablePlan, values: Sequence[Any], reason: str) -> None:
    """NotDifferentiable where a call would have to record a gradient."""
    import torch

    if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values):
        remedy = "call it under torch.no_grad(), or detach its operands"
        raise NotDifferentiable(f"{plan.name}: has no gradient, because {reason}: {remedy}")
