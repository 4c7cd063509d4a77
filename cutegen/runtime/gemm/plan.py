"""KernelPlan: what every generated GEMM plan subclasses. Importing this module imports neither torch nor cutlass.

A generated plan gives, as class attributes:

    name, arch        "gemm_bf16_sm90a", "sm_90a"
    dims              {"m": (1, None), "n": 28672, "k": 4096}: [batch,] m, n, k; a constant, or an inclusive range
    inputs, outputs   tuples of TensorArg / ScalarArg in declared order; a call passes the inputs, then the outputs
    in_place          names of outputs that are inputs, too, and passed as such: a launch updates them
    aliases           {"d": "c"}: outputs that may lie where an input of the same layout does; other outputs may not
                      overlap an argument: a call checks that none is passed twice, and of those with the dims of an
                      output where they begin
    reduced           the dim that is contracted ("k"); an extent of 0 is refused, other empty problems do nothing, but
                      for a reduction of no columns, which is 0 (max: -inf)
    tilings           {"t128x256": GemmTiling(...)}: a tiling's key is also its compile key; what does without an
                      optional operand ends in _without_NAME
    scales            names of the inputs that scale the operands of the product
    gathered          GatheredRows("a", "rows", rows="m", of="t"): an index names rows; `of` is a dim before the others;
                      scales=("sa",): scales that are gathered with them
    copied_tilings    keys of tilings whose kernels get a copy of gathered rows, which a launch in front makes
    promoted_k        products that the tensor core sums before f32 registers take the sum; 0: all of them
    approximation     absolute error of the epilogue's approximated functions at unit scale (0.0 when it has none), or
                      {"d": 0.0} where it is not the same for all outputs
    winners           {"NVIDIA H200": {(4096, 4096): ((64, "t64x256"),)}}: by device and all dims but m and
                      gathered.of, the tilings that were measured fastest, each up to an extent of m ("": the default)
    reductions        {"r": "sum"}: outputs that are one value for all columns, all rows or both
    block_values      names of outputs with one value for a block of columns
    batch_invariant   True: the bits of a row depend neither on m nor on its place; `check` proves it
    portfolio         with several tilings: those that run calls which nobody measured, and what the cost model reads of
                      them (runtime/gemm/portfolio.py); anywhere: their keys
    epilogue          {"d": "gelu_tanh(acc + bias)"}: the statements as the spec writes them; `bench` chooses baselines
                      by it ("acc": the product itself)

and as methods:

    _reference(self, *inputs)                 the maths in plain torch, as a tuple of outputs: tensors arrive in f32 or
                                              f64 (or as they are, which makes it the unfused baseline of `bench`)
    _algorithmic_flops_bytes(self, **dims)    (floating-point operations, bytes that must move) of one problem
    compile(self, key)                        the compiled kernel of tiling `key`, called as
                                              compiled(*inputs, *outputs, *scratch, sm_count), with the scratch that
                                              the tiling takes
    compile_copy(self)                        with copied_tilings: the compiled copy of rows

and at module level:

    PLAN = Plan()
    plan, kernel_fn, reference_fn, launch_fn = PLAN.plan, PLAN.kernel_fn, PLAN.reference_fn, PLAN.launch_fn
    get_inputs = PLAN.prepare_inputs

Scratch: tilings that split k keep partial sums in `workspace` (f32, any contents) or `sums` (f32, zero before the first
launch, left zero by every one) and counters in `semaphores` (i32, zero likewise); so do those that hand out tiles
dynamically. Reductions keep theirs in NAME_partials and `arrivals`; copies of gathered rows lie in copied_NAME. A call
passes all of the plan's after its outputs, as allocate_scratch(*inputs) returns them, or none: then it uses the plan's
own, one set for each stream and one that all captured graphs of a device share (runtime/scratch.py), and allocates only
when it needs more than any call before it on its stream. `workspace_shapes` tells the sizes. Launches that may run at
the same time, graphs included, need scratch of their own. After a launch that was aborted, zero it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from cutegen.runtime.accuracy import Tolerance, tolerance
from cutegen.runtime.arguments import (
    ScalarArg,
    TensorArg,
    allocate,
    divided,
    draw,
)
from cutegen.runtime.four_bits import RMS
from cutegen.runtime.gemm.gathered_rows import fill_rows, lose_rows, spoil_unnamed
from cutegen.runtime.gemm.launch import make_launch
from cutegen.runtime.gemm.product_plan import ProductPlan
from cutegen.runtime.gemm.scale_packing import fill_packed, is_packed

# Root mean square of what `draw` fills uniformly.
UNIFORM_RMS = {"int8": math.sqrt((2**16 - 1) / 12), "float4_e2m1fn_x2": RMS}


class KernelPlan(ProductPlan):
    """A product with an epilogue. The module docstring lists what a subclass gives."""

    epilogue: ClassVar[Mapping[str, str]] = {}
    scales: ClassVar[tuple[str, ...]] = ()
    promoted_k: ClassVar[int] = 0
    approximation: ClassVar[float | Mapping[str, float]] = 0.0
    batch_invariant: ClassVar[bool] = False

    def warm_up(
        self,
        keys: Sequence[str] | None = None,
        *,
        processes: int | None = None,
        **ranges: int | tuple[int, int] | Sequence[int],
    ) -> None:
        super().warm_up(keys, processes=processes, **ranges)
        if not self._kernels.keys().isdisjoint(self.copied_tilings):
            _ = self.copy_kernel

    @property
    def mainloop(self) -> str:
        """What is multiplied, as suites say it: scales that factor out of the sum are part of the epilogue."""
        tensors = (a for a in self.inputs if isinstance(a, TensorArg) and a.name in self.scales)
        left = "a[rows]" if self.gathered else "a"
        blocked = [a.name for a in tensors if any(divided(d)[1] > 1 for d in a.dims)]
        if self.gathered and set(blocked) & set(self.gathered.scales):
            return "(a * sa)[rows] @ (b * sb)"
        return f"({left} * sa) @ (b * sb)" if blocked else f"{left} @ b"

    def prepare_inputs(self, **dims: int) -> tuple[Any, ...]:
        """Fresh random inputs: tensors N(0, 1), integers uniform, host scalars and scales in [0.5, 1.5). The packed
        scales, else the last scale or, without any, the last tensor over the reduced dim give the product unit
        variance, so that activations are met where they bend; integers without scales stay as they are."""
        import torch

        extents = self.extents_on_device(dims)
        over_k = [a for a in self.inputs if isinstance(a, TensorArg) and self.reduced in a.dims]
        unit = max(extents[self.reduced], 1) ** -0.5
        if self.scales:
            unit /= math.prod(UNIFORM_RMS.get(a.dtype, 1.0) for a in over_k)
        packed = [a.name for a in self.inputs if is_packed(a)]
        last = packed or [self.scales[-1] if self.scales else over_k[-1].name]
        values: list[Any] = []
        for arg in self.inputs:
            scale = unit ** (1 / len(last)) if arg.name in last else 1.0
            if isinstance(arg, ScalarArg):
                values.append((0.5 + float(torch.rand(()))) * scale)
            elif self.gathered and arg.name == self.gathered.index:
                values.append(allocate(arg, extents, self.device))
                fill_rows(values[-1], extents[self.gathered.of])
            elif is_packed(arg):
                values.append(fill_packed(allocate(arg, extents, self.device), arg, extents, scale))
            elif arg.name in self.scales:
                values.append(allocate(arg, extents, self.device).uniform_(0.5 * scale, 1.5 * scale))
            else:
                values.append(draw(allocate(arg, extents, self.device), scale))
        return tuple(values)

    def signature(self) -> tuple[Any, ...]:
        return *super().signature(), *self.epilogue.items(), *([self.gathered] if self.gathered else [])

    def is_repeatable(self, key: str) -> bool:
        return bool(getattr(self.tilings[key], "repeatable", True))

    def output_tolerance(self, output: int, inputs: Sequence[Any], reference: str) -> Tolerance:
        dims = self.problem_dims(*inputs)
        m, n, _, _ = self.roles
        kept = self._kept_dims().get(self.outputs[output].name)
        k = dims[self.reduced] + {None: 0, "m": dims[n], "n": dims[m], "": dims[m] + dims[n]}[kept]
        operand = next(a.dtype for a in self.inputs if isinstance(a, TensorArg) and self.reduced in a.dims)
        error = self.approximation
        error = error[self.outputs[output].name] if isinstance(error, Mapping) else error
        return tolerance(self.outputs[output].dtype, k, error, reference, operand, self.promoted_k)

    def make_launch(self, key: str | None = None) -> Callable[..., None]:
        return make_launch(self, key)

    def draw_inputs(self, draw: Any, **dims: int) -> tuple[Any, ...]:
        """prepare_inputs, with rows among the gathered ones that there are not, and NaN in those that nobody names."""
        values = self.prepare_inputs(**dims)
        if self.gathered:
            index = next(v for a, v in zip(self.inputs, values) if a.name == self.gathered.index)
            lose_rows(index)
            spoil_unnamed(self, values, index)
        return values

    def _indices(self) -> tuple[str, ...]:
        return (self.gathered.index,) if self.gathered else ()
