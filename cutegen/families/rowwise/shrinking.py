"""The loads of a row, and plainer kernels of a spec: what `check --shrink` goes by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.families.shrinking import NO_OVERLAP, Plainer, Shrinking, keep_first, pin_decisions
from cutegen.families.single import SingleKernel
from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.rowwise.plan import RowPlan


class RowShrinking:
    def count_steps(self, plan: RowPlan, dims: Mapping[str, int], key: str) -> int:
        return -(-_columns(plan, dims) // _width(plan, key)) if plan.summed else 0

    def keep_steps(self, plan: RowPlan, inputs: Sequence[Any], key: str, count: int) -> tuple[Any, ...]:
        """Zeros in what has a value for each element of a row."""
        kept = count * _width(plan, key)
        return tuple(
            keep_first(v, v.ndim - 1, kept) if _is_rows(plan, a) and v is not None else v
            for a, v in zip(plan.inputs, inputs)
        )

    def describe_step(self, plan: RowPlan, dims: Mapping[str, int], key: str, step: int) -> str:
        tiling, width = plan.tilings[key], _width(plan, key)
        last = min(_columns(plan, dims), (step + 1) * width) - 1
        turn = "" if tiling.most else f", turn {step // tiling.vectors} of the CTA over the row"
        return f"load {step % tiling.vectors} of each thread ({plan.columns} {step * width} to {last}){turn}"

    def pin(self, spec: Any, resolved: SingleKernel, key: str, dims: Mapping[str, int]) -> Mapping[str, object]:
        return {**dict.fromkeys(("bench", "check", "instances", "m")), **pin_decisions(resolved)}

    def list_plainer(self, spec: Any, resolved: SingleKernel) -> Iterator[Plainer]:
        yield Plainer("no prefetch", {"prefetch": False})
        yield Plainer("no bounds of rows that registers hold", {"bounds": []})
        yield Plainer("a warp for a row", {"threads": 32, "bounds": []})
        yield NO_OVERLAP


def _columns(plan: RowPlan, dims: Mapping[str, int]) -> int:
    return dims[plan.columns]


def _width(plan: RowPlan, key: str) -> int:
    """Elements of a row that its threads load at once."""
    tiling = plan.tilings[key]
    return int(tiling.threads * tiling.vector)


def _is_rows(plan: RowPlan, argument: Any) -> bool:
    tensor = isinstance(argument, TensorArg) and argument.dtype != "int32"
    return tensor and len(argument.dims) > 1 and argument.dims[-1] == plan.columns


SHRINKING: Shrinking = RowShrinking()
