"""What serving stacks ask of a kernel, for any plan of cutegen: compile keys that are known before the first request,
and reasons where a layer is not for the kernel. Adapters of vLLM and SGLang (`adapters/`) are made of it.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cutegen.runtime.arguments import TensorArg, complete_dims, divided, step_of


class Plan(Protocol):
    """What is used of a plan, of a generated package or of a bundle."""

    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    dims: Mapping[str, Any]
    scratch: tuple[Any, ...]

    def dispatch(self, **dims: int) -> str: ...

    def get_warmup_keys(self) -> tuple[str, ...]: ...

    def warm_up(self, keys: Any = None) -> None: ...

    def validate(self, key: str, sms: int | None = None, /, **dims: int) -> str: ...


class PlanKernel:
    """A plan by the compile contract that vLLM's kernels own: `dispatch` gives the key of a call, `get_warmup_keys` all
    that calls can have, `compile` makes one. No call compiles anything after `warmup`."""

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """spec: the plan's name. tiling: one of its keys."""

        spec: str
        tiling: str

    def __init__(self, plan: Any) -> None:
        self.plan: Plan = plan

    def dispatch(self, **dims: int) -> CompileKey:
        """The key of a call of these extents. TypeError, ValueError: they are not a problem of the plan."""
        extents = complete_dims(self.plan.dims, dims)
        return self.CompileKey(self.plan.name, self.plan.dispatch(**extents))

    def get_warmup_keys(self) -> list[CompileKey]:
        """Every key that `dispatch` can return: the set is closed."""
        return [self.CompileKey(self.plan.name, key) for key in self.plan.get_warmup_keys()]

    def compile(self, compile_key: CompileKey) -> None:
        """Compiles, or loads, the kernel of one key. ValueError: it is not a key of this plan."""
        if compile_key not in (keys := self.get_warmup_keys()):
            known = ", ".join(key.tiling for key in keys)
            raise ValueError(f"{compile_key} is not a key of {self.plan.name}: its tilings are {known}")
        self.plan.warm_up([compile_key.tiling])

    def warmup(self) -> None:
        """All keys; a call whose kernel is not compiled is an error from then on."""
        for compile_key in self.get_warmup_keys():
            self.compile(compile_key)
        self.plan.on_miss = "error"  # type: ignore[attr-defined]

    def workspace_shapes(self, *problem: int, **dims: int) -> dict[str, tuple[int, ...]]:
        """Least shapes of the plan's scratch, by name, as its own `workspace_shapes` takes a problem."""
        if not self.plan.scratch:
            return {}
        shapes: dict[str, tuple[int, ...]] = self.plan.workspace_shapes(*problem, **dims)  # type: ignore[attr-defined]
        return shapes


@dataclass(frozen=True, slots=True)
class BlockScaledLayer:
    """An fp8 linear layer with scales of blocks: y = (x * scales) (w * scales)^T. weight_shape: (n, k). dtypes as torch
    names them. activation_group, weight_group: (rows, columns) that share a scale."""

    weight_shape: tuple[int, int]
    operand_dtype: str
    output_dtype: str
    activation_group: tuple[int, int]
    weight_group: tuple[int, int]


def refuse_layer(plan: Any, layer: BlockScaledLayer) -> str:
    """Why a plan of a block-scaled product (a, b, scale of a, scale of b) cannot run a layer; "" where it can."""
    tensors = [a for a in plan.inputs if isinstance(a, TensorArg)]
    if len(plan.inputs) != 4 or len(tensors) != 4 or len(plan.outputs) != 1:
        return f"{plan.name} is not a product of two operands and their scales, in this order, with one output"
    a, b, a_scale, b_scale = tensors
    if {a.dtype, b.dtype} != {layer.operand_dtype}:
        return f"{plan.name} multiplies {a.dtype}, and the layer has {layer.operand_dtype}"
    if plan.outputs[0].dtype != layer.output_dtype:
        return f"{plan.name} stores {plan.outputs[0].dtype}, and the layer wants {layer.output_dtype}"
    for what, scale, asked in (
        ("activations", a_scale, layer.activation_group),
        ("weights", b_scale, layer.weight_group),
    ):
        block = tuple(divided(dim)[1] for dim in scale.dims)
        if block != asked:
            shown = " x ".join(map(str, block))
            return f"{plan.name} has a scale for {shown} {what}, and the layer one for {asked[0]} x {asked[1]}"
    (n, k), (rows, columns) = b.dims, layer.weight_shape
    for dim, extent in ((n, rows), (k, columns)):
        if extent % (step := step_of(dim, (*plan.inputs, *plan.outputs))):
            return f"{plan.name}: {dim} is a multiple of {step}, and the layer has {extent}"
    problem = {dim: e for dim, e in ((a.dims[0], 1), (n, rows), (k, columns)) if not isinstance(plan.dims[dim], int)}
    try:
        complete_dims(plan.dims, problem | {n: rows, k: columns})
    except (TypeError, ValueError) as error:
        return f"{plan.name}: {error}"
    reason: str = plan.validate(plan.get_warmup_keys()[-1], **problem)
    return reason


def find_plan(text: str) -> Any:
    """The plan that `MODULE:NAME` names, such as `generated.gemm_e4m3_block128_sm90a:PLAN`, or that of a bundle.
    ValueError: there is none."""
    module, _, name = text.partition(":")
    try:
        plan = getattr(importlib.import_module(module), name or "PLAN")
        if not (hasattr(plan, "arch") and hasattr(plan, "dispatch")):
            raise ValueError("it has neither an arch nor a dispatch")
        return plan
    except (ImportError, AttributeError, ValueError) as error:
        said = f"{text!r} names no plan ({error}): write MODULE:NAME, such as generated.gemm_e4m3_block128_sm90a:PLAN"
        raise ValueError(said) from error
