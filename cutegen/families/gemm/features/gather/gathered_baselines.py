"""Baselines of products of gathered rows: other libraries multiply what torch.index_select has gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from cutegen.families.proving import Baseline
from cutegen.runtime.baselines import Bind, Ways
from cutegen.runtime.gemm.gathered_rows import gather_apart
from cutegen.runtime.gemm.plan import KernelPlan


def after_gather(plan: KernelPlan, baselines: Iterable[Baseline]) -> Iterator[Baseline]:
    """The baselines, with the gather as a part of what is timed; those of a plan without a gather as they are."""
    for baseline in baselines:
        if plan.gathered is None:
            yield baseline
        else:
            does = f"index_select, then {baseline.does}"
            if baseline.ways:
                bind = _gather_with(plan, baseline.bind)
                yield replace(baseline, does=does, bind=bind, ways=_gathering(baseline.ways))
            else:
                yield replace(baseline, does=does, bind=_gather_first(plan, baseline.bind))


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


def _gather_with(plan: KernelPlan, inner: Bind) -> Bind:
    """Of each set a gather, and the values of its product."""

    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Any:
        apart, gather = gather_apart(plan, inputs)
        gather()
        return gather, inner(apart, outputs)

    return bind


def _gathering(ways: Ways) -> Ways:
    def gathering(values: Any) -> Iterator[Callable[[Any], Any]]:
        for way in ways(values[1]):

            def run(values: Any, way: Callable[[Any], Any] = way) -> Any:
                gather, product = values
                gather()
                return way(product)

            yield run

    return gathering
