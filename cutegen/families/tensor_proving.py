"""How kernels are proved and measured whose plan is a TensorPlan: problems by the roles of their dims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cutegen.families.proving import ALL_MODES, Baseline, Problem, Roles, operand_dtype
from cutegen.runtime.arguments import legal_extent, step_of
from cutegen.runtime.baselines import bind_compiled, bind_eager
from cutegen.runtime.tensor_plan import TensorPlan

SMALL = 300  # the most of a dim that is executed on a CPU


@dataclass(frozen=True, slots=True)
class TensorProving:
    """problems: by name, the extents of a problem by role of the dim; each is moved to what the plan promises. hard:
    those that every mode runs on. shapes: what to measure when nobody says."""

    problems: Mapping[str, Mapping[str, int]]
    hard: tuple[str, ...]
    shapes: tuple[Mapping[str, int], ...]
    given_draw: Any = None

    guessed_inputs: ClassVar[Sequence[str]] = ()
    cpu_extents: ClassVar[Mapping[str, int]] = {}
    baselines_for: ClassVar[Mapping[str, str]] = {}

    def name_roles(self, plan: TensorPlan) -> Roles:
        return Roles()

    def describe_work(self, plan: TensorPlan) -> Mapping[str, Sequence[str]]:
        return operand_dtype(plan)

    def list_problems(self, plan: TensorPlan) -> Iterator[Problem]:
        for key in plan.tilings:
            for name, extents in self.problems.items():
                modes = ALL_MODES if name in self.hard else ("numerics",)
                yield Problem(name, _legal(plan, extents), key, modes)
        first = _legal(plan, next(iter(self.problems.values())))
        for dim in plan.dims:
            if not isinstance(plan.dims[dim], int):
                yield Problem(f"{dim} = 0", {**first, dim: 0}, None, ("empty",))

    def list_small_problems(self, plan: TensorPlan, sms: int) -> Iterator[Problem]:
        for key in plan.tilings:
            for name in self.hard:
                small = {role: min(n, SMALL) for role, n in self.problems[name].items()}
                yield Problem(name, _legal(plan, small), key, ("numerics", "strides"))

    def draw_as(self, plan: TensorPlan, lengths: str, keys: str) -> Any:
        return None

    def late_rows(self, plan: TensorPlan, inputs: Sequence[Any]) -> Mapping[str, Any]:
        return {}

    def name_axes(self, plan: TensorPlan, output: int) -> Sequence[str]:
        return plan.outputs[output].dims

    def locate(self, plan: TensorPlan, output: int, shape: Sequence[int], index: Sequence[int], tiling: Any) -> str:
        return ""  # the axes say it

    def list_baselines(self, plan: TensorPlan) -> Iterator[Baseline]:
        eager = "PyTorch, one kernel after another"
        yield Baseline("torch eager", eager, bind_eager(plan), complete=False, rival="torch eager")
        compiled = "what Inductor makes of the reference"
        yield Baseline("torch.compile", compiled, bind_compiled(plan), complete=False, rival="torch.compile")

    def bench_dims(self, plan: TensorPlan) -> Iterator[Mapping[str, int]]:
        return (_legal(plan, shape) for shape in self.shapes)


def _legal(plan: TensorPlan, extents: Mapping[str, int]) -> dict[str, int]:
    """The extents of the plan's dims that are nearest to those wanted by role."""
    args, roles = (*plan.inputs, *plan.outputs), {name: role for role, name in plan.roles.items()}
    return {d: legal_extent(allowed, step_of(d, args), extents[roles[d]]) for d, allowed in plan.dims.items()}
