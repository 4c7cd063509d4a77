"""The product of a plan as other libraries want it: views of its arguments with axes in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.plan import KernelPlan


@dataclass(frozen=True, slots=True)
class Product:
    """Views of a plan's arguments as ([batch,] m, k), ([batch,] k, n) and ([batch,] m, n)."""

    plan: KernelPlan

    def views(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        m, n, batch = self._dims()
        a_arg, b_arg = self.operands()
        k = self.plan.reduced
        a = self._view(a_arg, inputs[self.plan.inputs.index(a_arg)], (*batch, m, k))
        b = self._view(b_arg, inputs[self.plan.inputs.index(b_arg)], (*batch, k, n))
        d = self._view(self.plan.outputs[0], outputs[0], (*batch, m, n))
        return (a, b, d) if not batch else (a.expand(d.shape[0], *a.shape[-2:]), b.expand(d.shape[0], *b.shape[-2:]), d)

    def like_output(self, arg: TensorArg, inputs: tuple[Any, ...]) -> Any:
        """An epilogue operand with its axes in the order of the output's."""
        m, n, batch = self._dims()
        value = inputs[self.plan.inputs.index(arg)]
        return self._view(arg, value, tuple(d for d in (*batch, m, n) if d in arg.dims))

    def operands(self) -> tuple[TensorArg, TensorArg]:
        first, second = (a for a in self.plan.inputs if isinstance(a, TensorArg) and self.plan.reduced in a.dims)
        m, _, _ = self._dims()
        return (first, second) if m in first.dims else (second, first)

    def _dims(self) -> tuple[str, str, tuple[str, ...]]:
        out = self.plan.outputs[0]
        m, n, *batch = (out.dims[axis] for axis in out.axes)
        return m, n, tuple(batch)

    def _view(self, arg: TensorArg, value: Any, dims: tuple[str, ...]) -> Any:
        return value.permute([arg.dims.index(d) for d in dims if d in arg.dims])
