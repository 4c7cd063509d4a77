"""Baselines of products of gathered rows: other libraries multiply what torch.index_select has gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from cutegen.families.proving import Baseline, Bind
from cutegen.runtime.gemm.gathered_rows import gather_apart
from cutegen.runtime.gemm.plan import KernelPlan


def after_gather(plan: KernelPlan, baselines: Iterable[Baseline]) -> Iterator[Baseline]:
    """The baselines, with the gather as a part of what is timed; those of a plan without a gather as they are."""
    for baseline in baselines:
        if plan.gathered is None:
            yield baseline
        else:
            bind = _gather_first(plan, baseline.bind)
            yield replace(baseline, does=f"index_select, then {baseline.does}", bind=bind)


def _gather_first(plan: KernelPlan, inner: Bind) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        apart, gather = gather_apart(plan, inputs)
        gather()  # some prepare values when they are bound: cuBLAS wants scales of blocks in a layout of its own
        launch = inner(apart, outputs)

        def run() -> Any:
            gather()
            return launch()

        return run

    return bind
