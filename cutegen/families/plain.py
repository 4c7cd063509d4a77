"""Members of a family that has no cost model and nothing to tune."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cutegen.families.tuning import TuningSpace


def describe_problem(problem: Any) -> object:
    """problem: a dataclass."""
    return asdict(problem)


def tuning_space(spec: Any, resolved: Any) -> TuningSpace | None:
    return None


def estimate(resolved: Any, instance: str | Mapping[str, object], shape: Mapping[str, int]) -> float | None:
    return None
