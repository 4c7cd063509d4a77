"""The numbers of a tiling that are the same on every architecture, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from cutegen.families.mla_decode.candidate import ANY, Candidate
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.runtime.mla_decode.tiling import MlaTiling


def describe_numbers(
    problem: MlaProblem, c: Candidate, own: Mapping[str, tuple[Any, str]]
) -> tuple[MlaTiling, dict[str, str]]:
    """The numbers of one kernel, as Candidate.instances has them, and for each the spec key or the formula. own: those
    of the architecture's lowering, each with its source."""
    any_splits = c.max_splits == ANY
    numbers = {
        "cluster": (c.cluster, f"variant {c.variant}"),
        "page_size": (problem.page_size, "kv_cache.page_size"),
        "unit": (c.unit, "scheduler.unit"),
        "overhead": (c.overhead, "scheduler.overhead"),
        "join_ratio": (c.join_ratio, "scheduler.join_ratio"),
        "max_splits": (0 if any_splits else c.max_splits, "split_kv.max" + f" = {ANY}" * any_splits),
        "split_columns": (c.split_columns, "scheduler.split_columns"),
        "prefetch": (c.prefetch, "pipeline.prefetch"),
        "pdl_wait": (c.pdl_wait, "pdl.wait"),
        "pdl_trigger": (c.pdl_trigger != "none", "pdl.trigger"),
        "pdl_schedule_ahead": (c.pdl_schedule_ahead, "pdl.schedule_ahead"),
        "pdl_load_ahead": (c.pdl_load_ahead, "pdl.load_ahead"),
        **own,
    }
    sources = {f.name: numbers[f.name][1] for f in fields(MlaTiling) if f.name in numbers}
    return MlaTiling(**{name: value for name, (value, _) in numbers.items()}), sources
