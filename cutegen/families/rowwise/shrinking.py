"""The loads of a row, and plainer kernels of a spec: what `check --shrink` goes by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.families.rowwise.thread_elements import count_elements, name_columns
from cutegen.families.shrinking import NO_OVERLAP, Plainer, Shrinking, pin_decisions
from cutegen.families.single import SingleKernel
from cutegen.runtime.rowwise.plan import RowPlan


class RowShrinking:
    keeps = False  # zeros in a row do not tell a load from one that was taken for it

    def count_steps(self, plan: RowPlan, dims: Mapping[str, int], key: str) -> int:
        return -(-count_elements(plan, dims[plan.columns]) // _width(plan, key)) if plan.summed else 0

    def keep_steps(self, plan: RowPlan, inputs: Sequence[Any], key: str, count: int) -> tuple[Any, ...]:
        raise NotImplementedError

    def describe_step(self, plan: RowPlan, dims: Mapping[str, int], key: str, step: int) -> str:
        tiling, width = plan.tilings[key], _width(plan, key)
        columns = dims[plan.columns]
        end = min(count_elements(plan, columns), (step + 1) * width)
        turn = "" if tiling.most else f", turn {step // tiling.vectors} of the CTA over the row"
        has = name_columns(plan, step * width, end, columns)
        return f"load {step % tiling.vectors} of each thread ({has}){turn}"

    def pin(self, spec: Any, resolved: SingleKernel, key: str, dims: Mapping[str, int]) -> Mapping[str, object]:
        return {**dict.fromkeys(("bench", "check", "instances", "m")), **pin_decisions(resolved)}

    def list_plainer(self, spec: Any, resolved: SingleKernel) -> Iterator[Plainer]:
        yield Plainer("no prefetch", {"prefetch": False})
        yield Plainer("no bounds of rows that registers hold", {"bounds": []})
        yield Plainer("a warp for a row", {"threads": 32, "bounds": []})
        yield NO_OVERLAP


def _width(plan: RowPlan, key: str) -> int:
    """Elements of a row that its threads load at once."""
    tiling = plan.tilings[key]
    return int(tiling.row_threads * tiling.vector)


SHRINKING: Shrinking = RowShrinking()
