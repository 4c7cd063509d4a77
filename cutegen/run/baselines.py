"""What a generated product is measured against, on the same inputs, in the same process."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cutegen.families.proving import Baseline, Bind
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.plan import KernelPlan


@dataclass(frozen=True, slots=True)
class _Product:
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

    def like_output(self, arg: TensorArg, value: Any) -> Any:
        m, n, batch = self._dims()
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


def list_baselines(plan: KernelPlan) -> Iterator[Baseline]:
    """Every baseline that could apply to the plan of a product, the one that ratios refer to first."""
    product = _Product(plan)
    fused = _is_fused(plan)
    if fused:
        yield Baseline("torch.mm", "cuBLAS, the product only", _bind_product(product), complete=False)
        addend = _addend(plan)
        if addend is not None:
            yield Baseline("torch.addmm", "cuBLAS with its own addition, out=", _bind_addmm(product, addend))
        yield Baseline("torch eager", "cuBLAS, then each epilogue op", _bind_eager(plan), complete=False)
        yield Baseline("torch.compile", "what Inductor makes of the reference", _bind_compiled(plan), complete=False)
    else:
        yield Baseline("torch.mm", "cuBLAS, out=", _bind_mm(product))
        yield Baseline("quack", "quack.gemm_interface.gemm, tuned, out=", _bind_quack(product))
        yield Baseline("nvmath", "cuBLASLt, autotuned by nvmath", _bind_nvmath(product), complete=False)


def _is_fused(plan: KernelPlan) -> bool:
    return len(plan.outputs) > 1 or list(plan.epilogue.values()) not in ([], ["acc"])


def _addend(plan: KernelPlan) -> TensorArg | None:
    """X where the only statement is acc + X, X a tensor of the operands' and the output's dtype."""
    statements = list(plan.epilogue.values())
    found = re.fullmatch(r"acc \+ (\w+)|(\w+) \+ acc", statements[0].strip()) if len(statements) == 1 else None
    name = (found[1] or found[2]) if found else None
    types = {a.dtype for a in (*_Product(plan).operands(), *plan.outputs)}
    arg = next((a for a in plan.inputs if a.name == name and isinstance(a, TensorArg)), None)
    m_dim = plan.outputs[0].dims[plan.outputs[0].axes[0]]
    if arg is None or types != {arg.dtype} or (len(arg.dims) == 1 and arg.dims[0] == m_dim):
        return None
    return arg


def _multiply(a: Any, b: Any, out: Any) -> None:
    import torch

    function = torch.mm if a.dim() == 2 else torch.bmm
    if out.dtype is a.dtype:
        function(a, b, out=out)
    else:
        function(a, b, out_dtype=out.dtype, out=out)


def _bind_mm(product: _Product) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        a, b, d = product.views(inputs, outputs)
        return lambda: _multiply(a, b, d)

    return bind


def _bind_product(product: _Product) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        a, b, d = product.views(inputs, outputs)
        scratch = d.to(a.dtype, copy=True)  # not the kernel's own outputs: those are judged
        return lambda: _multiply(a, b, scratch)

    return bind


def _bind_addmm(product: _Product, addend: TensorArg) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        import torch

        a, b, d = product.views(inputs, outputs)
        c = product.like_output(addend, inputs[product.plan.inputs.index(addend)])
        if d.dim() == 2:
            return lambda: torch.addmm(c, a, b, out=d)
        return lambda: torch.baddbmm(c, a, b, out=d)

    return bind


def _bind_eager(plan: KernelPlan) -> Bind:
    return lambda inputs, outputs: lambda: plan._reference(*inputs)


def _bind_compiled(plan: KernelPlan) -> Bind:
    @functools.cache
    def compiled() -> Callable[..., Any]:
        import torch

        torch._dynamo.reset()  # one shape at a time, and no limit on how many
        return torch.compile(plan._reference, dynamic=False)

    return lambda inputs, outputs: lambda: compiled()(*inputs)


def _bind_quack(product: _Product) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        gemm = importlib.import_module("quack.gemm_interface").gemm
        a, b, d = product.views(inputs, outputs)
        return lambda: gemm(a, b, out=d)

    return bind


def _bind_nvmath(product: _Product) -> Bind:
    """One tuned plan, given the operands of each set."""
    tuned: list[Any] = []

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        import torch

        a, b, _ = product.views(inputs, outputs)
        if not tuned:
            tuned.append(importlib.import_module("nvmath.linalg.advanced").Matmul(a, b))
            tuned[0].plan()
            tuned[0].autotune(iterations=5)

        def launch() -> Any:
            stream = torch.cuda.current_stream()
            tuned[0].reset_operands(a=a, b=b, stream=stream)
            return tuned[0].execute(stream=stream)

        return launch

    return bind
