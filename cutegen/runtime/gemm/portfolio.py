"""Which of a plan's tilings runs a shape that nobody measured: the one that takes least by the cost model.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cutegen.runtime.device_rates import Rates
from cutegen.runtime.gemm.cost_model import MODELS, Form, Instance, describe_work, order, spend


class Traits(NamedTuple):
    """What the cost model reads of a tiling besides its numbers, see `Instance` in cost_model.py."""

    pingpong: bool = False
    swap_ab: bool = False
    split_k_sum: str = "none"
    promote_every: int = 0
    gather: str = "none"
    pdl_wait: bool = True
    load_ahead_a: bool = False
    load_ahead_b: bool = False


_NUMBERS = tuple(name for name in Instance._fields if name not in Traits._fields)


@dataclass(frozen=True)
class Portfolio:
    """model: version of the cost model that chose the tilings, and picks among them. form: what the product takes.
    traits: of each tiling with all operands, by key. keys: those to pick from, in the order that settles ties."""

    model: int
    form: Form
    traits: Mapping[str, Traits]
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        """ValueError: a model of another version."""
        if self.model not in MODELS:
            known = ", ".join(map(str, MODELS))
            said = f"the package picks tilings by version {self.model} of the cost model, and this cutegen has {known}"
            raise ValueError(f"{said}: install the one that rendered it, or render it again")

    def rank(
        self, tilings: Mapping[str, Any], rates: Rates, extents: tuple[int, int, int, int], keys: Iterable[str] = ()
    ) -> list[tuple[int, str]]:
        """(clocks, key) of `keys`, by default those of the portfolio, fastest first. extents: m, n, k, batch; with
        groups, of the call: m as its tensors have it, batch the groups."""
        instances = {key: self.instance(tilings, key) for key in keys or self.keys}
        return rank_instances(self.model, self.form, instances, rates, extents)

    def instance(self, tilings: Mapping[str, Any], key: str) -> Instance:
        """What the cost model reads of a tiling."""
        known = self._instances
        if key not in known:
            t = tilings[key]
            numbers = {name: getattr(t, name) for name in _NUMBERS}
            known[key] = Instance(**numbers, **self.traits[key]._asdict())
        return known[key]

    @cached_property
    def _instances(self) -> dict[str, Instance]:
        return {}


def rank_instances(
    model: int, form: Form, instances: Mapping[str, Instance], rates: Rates, extents: tuple[int, int, int, int]
) -> list[tuple[int, str]]:
    """(clocks, name) of instances by a version of the cost model, fastest first; their order settles ties."""
    constants, work, found = MODELS[model], describe_work(form, rates, *extents), []
    for place, (name, instance) in enumerate(instances.items()):
        found.append((*order(spend(instance, form, work, rates, constants)), place, name))
    return [(clocks, name) for clocks, *_, name in sorted(found)]
