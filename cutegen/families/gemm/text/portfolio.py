"""The portfolio in a plan: what the cost model reads of the product and of each tiling."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from cutegen.families.gemm.cost_model import form_of, instance_of, list_moved
from cutegen.families.gemm.resolved import ResolvedGemm, ResolvedGemmTiling
from cutegen.render.layout import bracketed
from cutegen.runtime.portfolio import Traits


@dataclass(frozen=True, slots=True)
class NamedText:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class PortfolioText:
    """What the template reads as p.portfolio. form: fields but `moved`, which has a tuple for each tensor. keys: a
    tuple of tilings, as source."""

    model: int
    form: tuple[NamedText, ...]
    moved: tuple[NamedText, ...]
    traits: tuple[NamedText, ...]
    keys: str


def portfolio_text(resolved: ResolvedGemm) -> PortfolioText | None:
    """None where one tiling runs all calls."""
    if len(resolved.tilings) < 2:
        return None
    form = form_of(resolved.problem)
    traits = (NamedText(t.name, f"Traits({', '.join(_call(_traits(t)))})") for t in resolved.tilings)
    return PortfolioText(
        model=resolved.model,
        form=tuple(NamedText(name, _source(value)) for name, value in _given(form) if name != "moved"),
        moved=tuple(NamedText(name, _source(value)) for name, value in list_moved(resolved.problem)),
        traits=tuple(traits),
        keys=bracketed("(", [json.dumps(key) for key in resolved.picks], ")", indent=4, used=6, literal=True),
    )


def _traits(t: ResolvedGemmTiling) -> Traits:
    instance = instance_of(t.candidate)
    return Traits(*(getattr(instance, field) for field in Traits._fields))


def _given(values: NamedTuple) -> Iterator[tuple[str, Any]]:
    """The fields that are not as their class has them."""
    for field, value in values._asdict().items():
        if value != values._field_defaults.get(field, ...):
            yield field, value


def _call(values: NamedTuple) -> Iterator[str]:
    return (f"{field}={_source(value)}" for field, value in _given(values))


def _source(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_source, value))}{',' * (len(value) == 1)})"
    return repr(value)
