"""The methods `consume` and `accumulate` of the kernel: where a warpgroup works, and what it calls."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.text.consumers import ConsumersText
from cutegen.families.gemm.text.functions import Parameter
from cutegen.families.gemm.text.groups import GroupText
from cutegen.families.gemm.text.mainloop import MainloopText
from cutegen.families.gemm.text.store import StoreText
from cutegen.families.gemm.text.work import WorkText


@dataclass(frozen=True, slots=True)
class ConsumeText:
    """What the templates read as k.consume. at: names for the place of a tile. accumulate_parameters: of that method,
    besides the usual ones; accumulate_arguments: of the call."""

    at: str
    accumulate_parameters: tuple[Parameter, ...]
    accumulate_arguments: tuple[str, ...]


def consume_text(
    problem: GemmProblem,
    consumers: ConsumersText,
    work: WorkText,
    mainloop: MainloopText,
    store: StoreText,
    groups: GroupText | None,
) -> ConsumeText:
    """In the kernel's frame."""
    vectors = [o for o in problem.kernel_epilogue.operands if o.kind in ("row_vector", "column_vector")]
    batch_is_read = (
        (groups and groups.ragged)
        or mainloop.batched
        or any(o.batched for o in vectors)
        or any(p.name == "batch" for p in store.parameters)
    )
    parts = [(Parameter("steps", "Int32"), "o.split.steps(index)")] if work.split else []
    parts += [(Parameter(name, "Int32"), value) for name, value in mainloop.scaled_at]
    parts += [(Parameter(name, kind), name) for name, kind in _TURNS] if consumers.pingpong else []
    return ConsumeText(
        at=f"m, n, {'batch' if batch_is_read else '_'}",
        accumulate_parameters=tuple(parameter for parameter, _ in parts),
        accumulate_arguments=("o", "tCrA", "tCrB", "acc", "read", *(value for _, value in parts)),
    )


_TURNS = (("group", "Int32"), ("more", "Boolean"))  # which group has the tensor cores, and whether the other is next
