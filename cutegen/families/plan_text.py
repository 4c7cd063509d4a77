"""What plan.py.jinja of every family reads of a resolved kernel: its tilings, and the dispatch among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from cutegen.families.resolved import DeviceRow, DispatchRow, ResolvedTiling

Winners: TypeAlias = dict[str, dict[tuple[int, ...], tuple[tuple[int, str], ...]]]
"""By device and by point, the extents of a call in all dims that decide but one: (last extent of that, tiling)."""


@dataclass(frozen=True, slots=True)
class FieldText:
    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class TilingText:
    name: str
    fields: tuple[FieldText, ...]


def tiling_texts(tilings: Iterable[ResolvedTiling[Any]]) -> tuple[TilingText, ...]:
    return tuple(
        TilingText(
            t.name,
            tuple(
                FieldText(f.name, getattr(t.numbers, f.name), t.sources[f.name])
                for f in fields(t.numbers)
                if f.name in t.sources  # the others stand as their class has them
            ),
        )
        for t in tilings
    )


def rows_of_all_devices(dispatch: Iterable[DispatchRow]) -> tuple[DispatchRow, ...]:
    """What devices without measurements run by."""
    return tuple(row for row in dispatch if not isinstance(row, DeviceRow))


def list_winners(dispatch: Iterable[DispatchRow], dims: Iterable[str], along: str) -> Winners:
    """The rows of single devices as tables. dims: those that make up a point; along: the other one, which rows are
    ranges of, and do not overlap."""
    found: dict[str, dict[tuple[int, ...], list[tuple[int, int, str]]]] = {}
    names = tuple(dims)
    for row in dispatch:
        if isinstance(row, DeviceRow):
            bounds = {(name, sign): bound for name, sign, bound in row.when}
            exact = bounds.get((along, "=="))
            low, high = (exact, exact) if exact is not None else (bounds[along, ">="], bounds[along, "<="])
            point = tuple(bounds[name, "=="] for name in names)
            found.setdefault(row.device, {}).setdefault(point, []).append((low, high, row.tiling))
    return {
        device: {point: _answers(rows) for point, rows in sorted(points.items())}
        for device, points in sorted(found.items())
    }


def _answers(rows: list[tuple[int, int, str]]) -> tuple[tuple[int, str], ...]:
    """Ranges by ascending extents; neighbours with one tiling are joined, gaps are the default's."""
    answers: list[tuple[int, str]] = []
    for low, high, tiling in sorted(rows):
        before = answers[-1][0] if answers else 0
        if low > before + 1:
            answers.append((low - 1, ""))
        elif answers and answers[-1][1] == tiling:
            answers.pop()
        answers.append((high, tiling))
    return tuple(answers)
