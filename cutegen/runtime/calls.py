"""Calls of a plan by name, and with results where the caller wants them; this imports neither torch nor cutlass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cutegen.runtime.callable_plan import CallablePlan


def call_plan(
    plan: CallablePlan, values: Sequence[Any], named: Mapping[str, Any], out: Any = None, sms: int | None = None
) -> Any:
    """The result, a tuple of several in declared order. out: the tensors of `plan.fresh_outputs`, one as it is, several
    in a tuple; None: new ones. TypeError, ValueError: the call is refused."""
    inputs = bind_inputs(plan, values, named) if named or len(values) != len(plan.inputs) else values
    if out is None:
        return plan.kernel_fn(*inputs, sms=sms)
    outputs = _given_outputs(plan, out)
    plan.launch_into(inputs, outputs, sms)
    results = plan.order_results(inputs, outputs)
    return results if len(results) > 1 else results[0]


def bind_inputs(plan: CallablePlan, values: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """The inputs in declared order; optional ones that are not passed are None. TypeError: others are missing, or
    something is passed twice, or is not an input."""
    names = [a.name for a in plan.inputs]
    listed = f"; it takes {', '.join(names)}"
    if len(values) > len(names):
        raise TypeError(f"{plan.name}: takes {len(names)} operands, got {len(values)}{listed}")
    bound = dict(zip(names, values))
    if unknown := [name for name in named if name not in names]:
        raise TypeError(f"{plan.name}: no operand is named {', '.join(unknown)}{listed}")
    if twice := [name for name in named if name in bound]:
        raise TypeError(f"{plan.name}: {', '.join(twice)}: passed by position and by name")
    bound.update(named)
    if missing := [a.name for a in plan.inputs if a.name not in bound and not a.optional]:
        raise TypeError(f"{plan.name}: missing {', '.join(missing)}{listed}")
    return tuple(bound.get(name) for name in names)


def _given_outputs(plan: CallablePlan, out: Any) -> tuple[Any, ...]:
    names = [o.name for o in plan.fresh_outputs]
    if not names:
        raise TypeError(f"{plan.name}: out: every result is updated in place; pass no out")
    if len(names) == 1 and not isinstance(out, (tuple, list)):
        return (out,)
    if not isinstance(out, (tuple, list)) or len(out) != len(names):
        had = f"{len(out)} of them" if isinstance(out, (tuple, list)) else f"a {type(out).__name__}"
        wanted = f"a tuple of {len(names)} tensors, {', '.join(names)}" if len(names) > 1 else f"the tensor {names[0]}"
        raise TypeError(f"{plan.name}: out: is {had}, needs {wanted}")
    return tuple(out)
