"""Gradients of the torch operators of plans. Importing this module imports neither torch nor cutlass.

The kernels that compute them are rendered by cutegen itself, when a gradient is first asked for: cutegen/gradients.py.
A standalone package finds it where it is installed beside it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutegen.runtime.base import BasePlan

GENERATOR = "cutegen.gradients"  # by name: generated packages need no generator to run


class NotDifferentiable(RuntimeError):
    """A gradient that no kernel can be rendered for; the message says why."""


def make_autograd(plan: BasePlan) -> tuple[Callable[..., None], Callable[..., Any]]:
    """(setup_context, backward) of torch.library.register_autograd. What cannot be differentiated is said when its
    gradient is asked for: a call without one, with parameters that have a gradient elsewhere, is fine."""
    names = [a.name for a in plan.inputs]

    def setup(ctx: Any, inputs: Sequence[Any], keyword_only_inputs: Any, output: Any) -> None:
        given = dict(zip(names, inputs))
        wanted = frozenset(name for name, need in zip(names, ctx.needs_input_grad) if need)
        omitted = frozenset(name for name, value in given.items() if value is None)
        ctx.gradient = ctx.reason = None
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
        values = {**ctx.numbers, **dict(zip(ctx.kept, ctx.saved_tensors))}
        found = ctx.gradient.compute(values, grads)
        results = tuple(found.get(name) for name in names)
        return results if len(results) > 1 else results[0]

    return setup, backward


def find_gradient(plan: BasePlan, wanted: frozenset[str], omitted: frozenset[str]) -> Any:
    """How the gradients of the inputs `wanted` are computed, where `omitted` are None."""
    try:
        generator = importlib.import_module(GENERATOR)
    except ModuleNotFoundError as error:
        said = "its gradients are computed by kernels that cutegen renders, and cutegen is not installed"
        raise NotDifferentiable(f"{plan.name}: {said}") from error
    return generator.find_gradient(plan, wanted, omitted)


def refuse_gradients(plan: BasePlan, values: Sequence[Any], reason: str) -> None:
    """NotDifferentiable where a call would have to record a gradient."""
    import torch

    if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values):
        remedy = "call it under torch.no_grad(), or detach its operands"
        raise NotDifferentiable(f"{plan.name}: has no gradient, because {reason}: {remedy}")
