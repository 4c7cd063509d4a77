"""What plan.py.jinja of every family reads of a resolved kernel: its tilings, and the dispatch among them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from cutegen.families.resolved import DeviceRow, DispatchRow, ResolvedTiling
from cutegen.render.layout import bracketed


@dataclass(frozen=True, slots=True)
class FieldText:
    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class TilingText:
    name: str
    fields: tuple[FieldText, ...]


@dataclass(frozen=True, slots=True)
class RowText:
    when: str
    tiling: str


@dataclass(frozen=True, slots=True)
class PointText:
    """What was measured for calls that agree in all dims that decide, but one.

    answers: a tuple of (last extent, tiling).
    """

    point: str
    answers: str


@dataclass(frozen=True, slots=True)
class DeviceText:
    device: str
    points: tuple[PointText, ...]


def tiling_texts(tilings: Iterable[ResolvedTiling[Any]]) -> tuple[TilingText, ...]:
    return tuple(
        TilingText(
            t.name,
            tuple(
                FieldText(f.name, repr(getattr(t.numbers, f.name)), t.sources[f.name])
                for f in fields(t.numbers)
                if f.name in t.sources  # the others stand as their class has them
            ),
        )
        for t in tilings
    )


def row_texts(dispatch: Iterable[DispatchRow], dim: str) -> tuple[RowText, ...]:
    """The rows of every device. dim: how the plan reads a dim, {} being its name."""
    return tuple(
        RowText(" and ".join(f"{dim.format(name)} {op} {value}" for name, op, value in row.when), row.tiling)
        for row in dispatch
        if not isinstance(row, DeviceRow)
    )


def device_texts(dispatch: Iterable[DispatchRow], dims: Iterable[str], along: str) -> tuple[DeviceText, ...]:
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
    return tuple(
        DeviceText(json.dumps(device), tuple(_point(point, rows) for point, rows in sorted(points.items())))
        for device, points in sorted(found.items())
    )


def keys_of_all_devices(dispatch: Iterable[DispatchRow]) -> str:
    """A tuple of the tilings that devices without measurements run."""
    keys = dict.fromkeys(row.tiling for row in dispatch if not isinstance(row, DeviceRow))
    return bracketed("(", [json.dumps(key) for key in keys], ")", indent=4, used=len("anywhere = "), literal=True)


def _point(point: tuple[int, ...], rows: list[tuple[int, int, str]]) -> PointText:
    """Ranges by ascending extents; neighbours with one tiling are joined, gaps are the default's."""
    answers: list[tuple[int, str]] = []
    for low, high, tiling in sorted(rows):
        before = answers[-1][0] if answers else 0
        if low > before + 1:
            answers.append((low - 1, ""))
        elif answers and answers[-1][1] == tiling:
            answers.pop()
        answers.append((high, tiling))
    text = str(point)
    parts = [f"({last}, {json.dumps(tiling)})" for last, tiling in answers]
    return PointText(text, bracketed("(", parts, ")", indent=8, used=len(text) + 3, literal=True))
