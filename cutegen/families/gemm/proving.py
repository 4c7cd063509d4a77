"""How GEMMs are proved and measured whose rows are all of one matrix, or of one in a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.arch import ARCHS
from cutegen.families.gemm.dense_baselines import list_dense_baselines
from cutegen.families.product_space import ProductSpace, locate_in_tile
from cutegen.families.proving import Baseline, Problem, Proving, Roles
from cutegen.runtime.arguments import TensorArg, step_of
from cutegen.runtime.gemm.operand_kinds import epilogue_form
from cutegen.runtime.gemm.plan import KernelPlan


class GemmProving:
    """What is known of any product; those of groups have a module of their own."""

    guessed_inputs: Sequence[str] = ()
    cpu_extents: Mapping[str, int] = {}
    baselines_for: Mapping[str, str] = {
        "torch.mm": "dense products, and groups of rows without scales",
        "torch.addmm": "dense products whose whole epilogue adds one tensor of their dtype",
        "torch.bmm": "groups of rows in slots",
        **dict.fromkeys(("torch eager", "torch.compile"), "dense products with an epilogue of their own"),
        "torch._scaled_mm": "products with scales in their mainloop",
        "torch._grouped_mm": "groups of rows that lie one after the other, without scales",
        "torch._scaled_grouped_mm": "groups of rows that lie one after the other, with scales of rows and columns",
        "nvmath": "dense products without scales in their mainloop, with no epilogue but one of cuBLASLt",
        "quack": "dense products without scales in their mainloop, with no epilogue but one that it has",
        "cutlass_operators": "dense products without scales or an epilogue",
        "deep_gemm": "dense products with scales of blocks and no epilogue, and groups of rows but those by offsets",
    }

    def name_roles(self, plan: KernelPlan) -> Roles:
        m, n, k, batch = plan.roles
        return Roles(m, n, k, "".join(batch), plan.gathered.of if plan.gathered else "")

    def draw_as(self, plan: KernelPlan, lengths: str, keys: str) -> Any:
        return None

    def late_rows(self, plan: KernelPlan, inputs: Sequence[Any]) -> Mapping[str, Any]:
        return {}

    def describe_work(self, plan: KernelPlan) -> Mapping[str, Sequence[str]]:
        operands = [a.dtype for a in plan.inputs if isinstance(a, TensorArg) and plan.reduced in a.dims]
        return {
            "dtype": operands,
            "output": [plan.outputs[0].dtype],
            "mainloop": [plan.mainloop],
            "epilogue": [epilogue_form(plan)],
        }


class DenseProving(GemmProving):
    given_draw = None

    def list_problems(self, plan: KernelPlan) -> Iterator[Problem]:
        return self._space(plan).list_problems(plan.tilings, plan)

    def list_small_problems(self, plan: KernelPlan, sms: int) -> Iterator[Problem]:
        return self._space(plan).small_problems(plan.tilings, sms, plan)

    def name_axes(self, plan: KernelPlan, output: int) -> Sequence[str]:
        m_axis, n_axis, *batch = _axes(plan, output)
        names = {m_axis: "m", n_axis: "n", **dict.fromkeys(batch, "batch")}
        return [names.get(axis, "") for axis in range(len(plan.outputs[output].dims))]

    def locate(self, plan: KernelPlan, output: int, shape: Sequence[int], index: Sequence[int], tiling: Any) -> str:
        m_axis, n_axis, *_ = _axes(plan, output)
        if m_axis is None or n_axis is None:
            return ""
        return locate_in_tile(index[m_axis], index[n_axis], tiling, ARCHS[plan.arch].mma_m)

    def list_baselines(self, plan: KernelPlan) -> Iterator[Baseline]:
        return list_dense_baselines(plan)

    def bench_dims(self, plan: KernelPlan) -> Iterator[Mapping[str, int]]:
        return self._space(plan).bench_dims()

    def _space(self, plan: KernelPlan) -> ProductSpace:
        steps = {d: step_of(d, (*plan.inputs, *plan.outputs)) for d in plan.dims}
        return ProductSpace(plan.dims, steps, self.name_roles(plan))


def _axes(plan: KernelPlan, output: int) -> Sequence[int | None]:
    """Axes of an output that have m and n, and the batch; None for a reduction: every tile of a row has a part in
    it."""
    axes = plan.outputs[output].axes
    return axes if len(axes) >= 2 else (None, None)


PROVING: Proving = DenseProving()
