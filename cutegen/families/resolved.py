"""What resolved kernels of every family are made of: decisions, and instances with their models."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from cutegen.model.kernel import KernelModel
from cutegen.runtime.device_rates import is_named

Origin = Literal["spec", "lock", "auto"]
Numbers = TypeVar("Numbers")


@dataclass(frozen=True, slots=True)
class Decision:
    """One user-level knob and why it has its value. key: dotted path in the spec, such as `tiling.tile`."""

    key: str
    value: object
    origin: Origin
    reason: str


@dataclass(frozen=True, slots=True)
class ResolvedTiling(Generic[Numbers]):
    """One kernel instance: its literal numbers, and for each where it comes from (`field -> spec key or formula`).

    module: the generated module that it is an instance of. formulas: `sources` with words for the numbers in them, so
    that all instances have the same; empty where there are none.
    """

    name: str
    numbers: Numbers
    sources: dict[str, str]
    model: KernelModel
    module: str = field(default="kernel", kw_only=True)
    formulas: Mapping[str, str] = field(default_factory=dict, kw_only=True)


COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
When: TypeAlias = tuple[tuple[str, str, int], ...]
"""Comparisons that must all hold, such as ("m", "<=", 128)."""


@dataclass(frozen=True, slots=True)
class DispatchRow:
    """`when` is empty in the last row."""

    when: When
    tiling: str

    @property
    def text(self) -> str:
        return " and ".join(f"{name} {sign} {bound}" for name, sign, bound in self.when) or "else"

    def holds(self, call: Mapping[str, int], device: str) -> bool:
        """Whether it runs such a call on a device."""
        return all(COMPARISONS[sign](call[name], bound) for name, sign, bound in self.when)


@dataclass(frozen=True, slots=True)
class DeviceRow(DispatchRow):
    """A row that was found by measuring. device: what it holds on alone, as the driver names it."""

    device: str

    @property
    def text(self) -> str:
        return f"{self.device}: {DispatchRow.text.fget(self)}"  # type: ignore[attr-defined]

    def holds(self, call: Mapping[str, int], device: str) -> bool:
        return self.device == device and DispatchRow.holds(self, call, device)


def dispatch(rows: Iterable[DispatchRow], call: Mapping[str, int], device: str = "") -> str:
    """The tiling that runs a call with these values, as the generated plan chooses it."""
    return next(row.tiling for row in rows if row.holds(call, device))


def product_name(rows: Iterable[DispatchRow], device: str) -> str:
    """What the GPU that a spec calls `device` is called where one was tuned on, "NVIDIA H200" for h200; "" if none."""
    named = (row.device for row in rows if isinstance(row, DeviceRow))
    return next((name for name in named if is_named(name, device)), "")


@dataclass(frozen=True, slots=True)
class Portfolio:
    """What calls may run that nobody measured, besides what the decisions say. model: version of the cost model that
    chose, and picks at run time. tilings: knob values by dotted key."""

    model: int
    reason: str
    tilings: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """resolved: the family's resolved kernel. notes: locked decisions that could not be kept, and why. unfit: tuned
    rows that do not hold, by index, and why; instances: the tiling of each other one, by the row's name. portfolio:
    None where the family has none, or the extents of calls leave nothing to choose."""

    resolved: Any
    notes: tuple[str, ...]
    unfit: Mapping[int, str] = field(default_factory=dict)
    instances: Mapping[str, str] = field(default_factory=dict)
    portfolio: Portfolio | None = None
