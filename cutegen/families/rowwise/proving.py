"""How row kernels are proved and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.families.proving import ALL_MODES, Baseline, Mode, Problem, Roles, operand_dtype
from cutegen.families.rowwise.thread_elements import find_element
from cutegen.runtime.arguments import legal_extent, step_of
from cutegen.runtime.baselines import bind_compiled, bind_eager
from cutegen.runtime.rowwise.plan import RowPlan, RowTiling
from cutegen.runtime.rowwise.row_functions import find_function
from cutegen.runtime.rowwise.row_libraries import FLASHINFER, LIGER, QUACK, SGL

# (rows, columns) by name, and how hard they are for the kernel; each is moved to what plan and tiling have.
PROBLEMS: Mapping[str, tuple[int, int, Sequence[Mode]]] = {
    "one row of one load": (1, 1, ("numerics",)),
    "one row": (1, 4096, ("numerics",)),
    "fewer loads than threads": (3, 264, ALL_MODES),
    "a part of the last load of a thread": (37, 4104, ALL_MODES),
    "the longest rows": (5, 1 << 17, ("numerics",)),
}
TURNS = 2.5  # of each CTA, where rows are prefetched: the last one has none behind it, and some CTAs have one fewer
SEVERAL: tuple[Mode, ...] = ("numerics", "strides", "repeat")
SMALL = 7  # rows of what is executed on a CPU, at least
SHAPES = ((16384, 4096), (64, 7168), (1, 7168))
# By baseline the library's own name, and what it has by function of rows.
LIBRARIES = {
    "quack": ("quack", QUACK),
    "flashinfer": ("FlashInfer", FLASHINFER),
    "liger": ("Liger", LIGER),
    "sgl_kernel": ("sgl-kernel", SGL),
}


class RowProving:
    given_draw: Any = None
    guessed_inputs: Sequence[str] = ()
    cpu_extents: Mapping[str, int] = {}
    baselines_for: Mapping[str, str] = {
        "quack": "norms of rows and cross-entropy with their gradients, and softmax",
        **dict.fromkeys(("flashinfer", "sgl_kernel"), "norms of rows and gated activations, quantised too"),
        "liger": "norms of rows with their gradients, softmax and gated activations",
    }

    def name_roles(self, plan: RowPlan) -> Roles:
        return Roles()

    def describe_work(self, plan: RowPlan) -> Mapping[str, Sequence[str]]:
        return operand_dtype(plan)

    def list_problems(self, plan: RowPlan) -> Iterator[Problem]:
        """Rows that fill no CTA and those that fill several, ends of the promised ranges, no rows."""
        for key, tiling in plan.tilings.items():
            problems = dict(PROBLEMS)
            problems["more rows than CTAs"] = (_turns(plan, tiling, 132), 1016, ("numerics", "repeat"))
            for name, (rows, columns, modes) in problems.items():
                alias: tuple[Mode, ...] = ("alias",) if plan.aliases and modes == ALL_MODES else ()
                yield Problem(name, _legal(plan, rows, columns, key), key, (*modes, *alias))
        for dim in plan.dims:
            if dim != plan.columns and not isinstance(plan.dims[dim], int):
                yield Problem(f"{dim} = 0", {**_legal(plan, SMALL, 1032), dim: 0}, None, ("empty",))

    def list_small_problems(self, plan: RowPlan, sms: int) -> Iterator[Problem]:
        for key, t in plan.tilings.items():
            streamed = plan.summed and not t.most
            rows = max(SMALL, _turns(plan, t, sms)) if plan.prefetch and not streamed else 3 if streamed else SMALL
            two = t.row_threads * t.vector * (1 + plan.halved) + 1
            yield Problem("a thread has two loads", _legal(plan, 2, two, key), key, ("numerics",))
            most = (t.row_threads * t.vectors + streamed) * t.vector * (1 + plan.halved)
            modes: tuple[Mode, ...] = (*SEVERAL, "alias") if plan.aliases else SEVERAL
            yield Problem("several turns of a CTA", _legal(plan, rows, most - 1, key), key, modes)

    def draw_as(self, plan: RowPlan, lengths: str, keys: str) -> Any:
        return None

    def late_rows(self, plan: RowPlan, inputs: Sequence[Any]) -> Mapping[str, Any]:
        return {}

    def name_axes(self, plan: RowPlan, output: int) -> Sequence[str]:
        return plan.outputs[output].dims

    def locate(self, plan: RowPlan, output: int, shape: Sequence[int], index: Sequence[int], tiling: Any) -> str:
        element = find_element(plan, plan.outputs[output].dims[-1], index[-1], shape[-1])
        if element is None:
            return "thread 0"
        number, lane = divmod(element, tiling.vector)
        turn, thread = divmod(number, tiling.row_threads)
        return f"element {lane} of load {turn % tiling.vectors} of thread {thread}"

    def list_baselines(self, plan: RowPlan) -> Iterator[Baseline]:
        eager = "PyTorch, one kernel after another"
        compiled = "what Inductor makes of the reference"
        yield Baseline("torch.compile", compiled, bind_compiled(plan), complete=False, rival="torch.compile")
        yield Baseline("torch eager", eager, bind_eager(plan), complete=False, rival="torch eager")
        if (computed := find_function(plan)) is None:
            return
        for name, (rival, calls) in LIBRARIES.items():
            if call := calls.get(computed.function):
                yield Baseline(name, call.does, call.bind(computed), call.complete, rival=rival)

    def bench_dims(self, plan: RowPlan) -> Iterator[Mapping[str, int]]:
        return (_legal(plan, *shape) for shape in SHAPES)


def _turns(plan: RowPlan, tiling: RowTiling, sms: int) -> int:
    """Rows that take every CTA, or cluster, that so many SMs have room for several turns: more where others
    take turns on the SMs."""
    room = max(1, sms * tiling.ctas_per_sm // tiling.cluster)
    return int(TURNS * room * (3 if plan.prefetch and not plan.persistent else 1)) * tiling.rows + 1


def _legal(plan: RowPlan, rows: int, columns: int, key: str | None = None) -> dict[str, int]:
    """The extents of the plan's dims nearest to those wanted, that a tiling has; of several dims of rows the first has
    them."""
    args = (*plan.inputs, *plan.outputs)
    first, *others = (dim for dim in plan.dims if dim != plan.columns)
    if key and plan.summed and (most := plan.tilings[key].most):
        columns = min(columns, most - most % step_of(plan.columns, args))
    wanted = {plan.columns: columns, first: rows} | dict.fromkeys(others, 3)
    return {d: legal_extent(allowed, step_of(d, args), wanted[d]) for d, allowed in plan.dims.items()}


PROVING = RowProving()
