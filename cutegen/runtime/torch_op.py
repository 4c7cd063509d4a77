"""Plans as custom operators of torch: torch.ops.cutegen.NAME, and NAME.out, which writes given results.

    NAME(inputs.., *, int? sms=None) -> fresh outputs       what is updated in place is marked as such in the schema
    NAME.out(inputs.., fresh outputs.., *, int? sms=None)   returns nothing

Each is one node of a graph; the outputs of fake tensors are those that the plan allocates, strides included. Scratch is
the plan's own, inside of the operator. Gradients: autograd.py. Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cutegen.runtime.arguments import Argument, TensorArg
from cutegen.runtime.autograd import make_autograd, refuse_gradients
from cutegen.runtime.callable_plan import CallablePlan

NAMESPACE = "cutegen"
# (plan, torch.library.Library) by name, and who may change it. Every copy of this module in a process, those of
# standalone packages, registers in one namespace: so both are where all of them find them.
_registered: dict[str, tuple[Any, Any]] = vars(sys).setdefault("_cutegen_torch_ops", {})
_lock: threading.RLock = vars(sys).setdefault("_cutegen_torch_ops_lock", threading.RLock())  # type: ignore[valid-type]


def register_plan(plan: CallablePlan, name: str) -> Any:
    """The operator, with its overloads `default` and `out`; the same again for the same plan. ValueError: another plan
    has the name, or the plan another name. RuntimeError: torch is older than 2.4."""
    import torch

    with _lock:
        for other, (owner, _) in _registered.items():
            if owner is plan and other != name:
                raise ValueError(f"{plan.name}: is torch.ops.{NAMESPACE}.{other} already; a plan has one operator")
        if name not in _registered:
            _registered[name] = plan, _define(plan, name)
        elif _registered[name][0] is not plan:
            where = type(_registered[name][0]).__module__
            said = f"torch.ops.{NAMESPACE}.{name} is the plan of {where}, and an operator cannot be replaced"
            raise ValueError(f"{plan.name}: {said}: register this one under another name, register_torch_op('...')")
        return getattr(getattr(torch.ops, NAMESPACE), name)


def _define(plan: CallablePlan, name: str) -> Any:
    import torch

    if not hasattr(torch.library, "register_autograd"):
        raise RuntimeError(f"{plan.name}: torch {torch.__version__} has no torch.library.register_autograd; use 2.4")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"{plan.name}: {name!r} is not the name of an operator: use letters, digits and _")
    if hasattr(getattr(torch.ops, NAMESPACE), name):
        raise ValueError(f"{plan.name}: torch.ops.{NAMESPACE}.{name} exists; choose another name")
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    try:
        _add_functional(plan, name, library)
        if plan.fresh_outputs:
            _add_out(plan, name, library)
    except BaseException:
        library._destroy()  # nothing is half registered
        raise
    return library


def _add_functional(plan: CallablePlan, name: str, library: Any) -> None:
    import torch

    fresh = len(plan.fresh_outputs)

    def run(*inputs: Any, sms: int | None = None) -> Any:
        outputs = plan.allocate_outputs(*inputs)
        plan.launch_into(inputs, outputs, sms)
        return None if not fresh else outputs[0] if fresh == 1 else outputs

    def fake(*inputs: Any, sms: int | None = None) -> Any:
        outputs = plan.allocate_outputs(*inputs)
        return None if not fresh else outputs[0] if fresh == 1 else outputs

    results = {0: "()", 1: "Tensor"}.get(fresh, f"({', '.join(['Tensor'] * fresh)})")
    _add(library, name, f"{name}({_parameters(plan, ())}) -> {results}", run, fake)
    if plan.in_place:
        written = [i for i, a in enumerate(plan.inputs) if a.name in plan.in_place]
        _keep_off_autograd(plan, library, name, written, "it updates operands in place")
        return
    setup, backward = make_autograd(plan)
    torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup, lib=library)


def _add_out(plan: CallablePlan, name: str, library: Any) -> None:
    count = len(plan.inputs)

    def run(*values: Any, sms: int | None = None) -> None:
        plan.launch_into(values[:count], values[count:], sms)

    def fake(*values: Any, sms: int | None = None) -> None:
        plan.allocate_outputs(*values[:count])

    _add(library, f"{name}.out", f"{name}.out({_parameters(plan, plan.fresh_outputs)}) -> ()", run, fake)
    written = [i for i, a in enumerate(plan.inputs) if a.name in plan.in_place]
    written += range(count, count + len(plan.fresh_outputs))
    _keep_off_autograd(plan, library, f"{name}.out", written, "it writes tensors of the caller")


def _add(library: Any, name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    import torch

    exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag, exact))
    library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)


def _keep_off_autograd(plan: CallablePlan, library: Any, name: str, written: Sequence[int], reason: str) -> None:
    """Operators that write their operands record no gradient: torch learns what they wrote, and a call that would need
    a gradient is refused."""
    import torch

    packet, _, overload = name.partition(".")

    def below(*values: Any, sms: int | None = None) -> Any:
        refuse_gradients(plan, values, reason)
        for i in written:
            torch.autograd.graph.increment_version(values[i])
        with torch._C._AutoDispatchBelowAutograd():
            operator = getattr(getattr(getattr(torch.ops, NAMESPACE), packet), overload or "default")
            return operator(*values, sms=sms)

    library.impl(name, below, "Autograd")


def _parameters(plan: CallablePlan, outputs: Sequence[TensorArg]) -> str:
    """The parameters of a schema."""
    letters = iter(f"w{i}" for i in range(len(plan.inputs) + len(outputs)))

    def parameter(arg: Argument, written: bool) -> str:
        kind = f"Tensor({next(letters)}!)" if written else "Tensor" if isinstance(arg, TensorArg) else "float"
        return f"{kind}{'?' * arg.optional} {arg.name}"

    inputs = [parameter(a, a.name in plan.in_place) for a in plan.inputs]
    return ", ".join((*inputs, *(parameter(o, True) for o in outputs), "*", "int? sms=None"))
