"""The product of a plan as other libraries want it: views of its arguments with axes in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.gemm.gathered_rows import product_dims
from cutegen.runtime.gemm.plan import KernelPlan


@dataclass(frozen=True, slots=True)
class Product:
    """Views of a plan's arguments as ([batch,] m, k), ([batch,] k, n) and ([batch,] m, n)."""

    plan: KernelPlan

    def views(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        m, n, k, batch = self.plan.roles
        a_arg, b_arg = self.operands()
        a = self._view(a_arg, inputs[self.plan.inputs.index(a_arg)], (*batch, m, k))
        b = self._view(b_arg, inputs[self.plan.inputs.index(b_arg)], (*batch, k, n))
        whole = next((i for i, o in enumerate(self.plan.outputs) if {*batch, m, n} == set(o.dims)), None)
        if whole is None:  # no output has all columns of the product
            members = [t.shape[0] for t in (a, b) if t.dim() == 3]
            d = a.new_empty((*members[:1], a.shape[-2], b.shape[-1]))
        else:
            d = self._view(self.plan.outputs[whole], outputs[whole], (*batch, m, n))
        return (a, b, d) if not batch else (a.expand(d.shape[0], *a.shape[-2:]), b.expand(d.shape[0], *b.shape[-2:]), d)

    def like_output(self, arg: TensorArg, inputs: tuple[Any, ...]) -> Any:
        """An epilogue operand with its axes in the order of the output's."""
        m, n, _, batch = self.plan.roles
        value = inputs[self.plan.inputs.index(arg)]
        return self._view(arg, value, tuple(d for d in (*batch, m, n) if d in arg.dims))

    def operands(self) -> tuple[TensorArg, TensorArg]:
        first, second = (a for a in self.plan.inputs if isinstance(a, TensorArg) and self.plan.reduced in a.dims)
        m = self.plan.roles[0]
        return (first, second) if m in product_dims(self.plan, first) else (second, first)

    def _view(self, arg: TensorArg, value: Any, dims: tuple[str, ...]) -> Any:
        own = product_dims(self.plan, arg)
        return value.permute([own.index(d) for d in dims if d in own])
