"""Tilings that were found by measuring, as a lock has them: read and judged again each time, like any decision."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from cutegen.families.decide import Choice
from cutegen.families.knobs import Knob, plain
from cutegen.families.refusal import Refusal
from cutegen.families.resolved import When

Calls: TypeAlias = Mapping[str, "int | tuple[int, int]"]
"""The extent, or the inclusive range of extents, of each dim of a call."""


@dataclass(frozen=True, slots=True)
class TunedRow:
    """The tiling that some calls run on a device. name: what the lock calls it. knobs: its values by dotted key; None:
    these calls run what the decisions say.

    device: as the driver names it. "": the tiling is built, and no call runs it.
    """

    device: str
    calls: Calls
    name: str
    knobs: Mapping[str, object] | None

    @property
    def when(self) -> When:
        comparisons: list[tuple[str, str, int]] = []
        for dim, extent in self.calls.items():
            lo, hi = _span(extent)
            comparisons += [(dim, "==", lo)] if lo == hi else [(dim, ">=", lo), (dim, "<=", hi)]
        return tuple(comparisons)

    def less(self, idle: Collection[str]) -> TunedRow:
        """The row of calls with any extents of these dims."""
        return replace(self, calls={dim: extent for dim, extent in self.calls.items() if dim not in idle})

    def overlaps(self, other: TunedRow) -> bool:
        """Some call is for both."""
        pairs = ((_span(extent), _span(other.calls[dim])) for dim, extent in self.calls.items())
        return self.device == other.device and all(a[0] <= b[1] and b[0] <= a[1] for a, b in pairs)


@dataclass(frozen=True, slots=True)
class Reading:
    """kept: rows with their candidates, less those that run what the decisions say. unfit: rows that do not hold, by
    index, and why."""

    kept: tuple[tuple[TunedRow, Any], ...]
    unfit: Mapping[int, str]


def read_tuned(
    rows: Sequence[TunedRow],
    knobs: Sequence[Knob],
    written: Mapping[str, Any],
    dims: Sequence[str],
    along: str,
    complete: Callable[[Mapping[str, Any]], Choice | tuple[Refusal, ...]],
    refuse: Callable[[Any], Refusal | None],
    idle: Collection[str] = (),
) -> Reading:
    """The candidate of each row that is legal beside the `written` knobs (by candidate field) and for calls of `dims`,
    of which those of one row may have any of a range of `along`, and whatever extents of the `idle` ones: a row's tell
    what was measured.

    complete: the candidate with given knobs, or what refuses it. refuse: what refuses a legal one beside the default.
    """
    judged: dict[str, Any] = {}  # candidate or reason, by name
    kept: list[tuple[TunedRow, Any]] = []
    standing: list[TunedRow] = []
    unfit: dict[int, str] = {}
    for index, row in enumerate(rows):
        if row.knobs is not None and row.name not in judged:
            judged[row.name] = read_candidate(row.knobs, knobs, written, complete, refuse)
        found = judged[row.name] if row.knobs is not None else None
        if fault := found if isinstance(found, str) else _misfit(row, dims, along, idle, standing):
            unfit[index] = fault
            continue
        standing.append(row.less(idle))
        if row.knobs is not None:
            kept.append((standing[-1], found))
    return Reading(tuple(kept), unfit)


def read_candidate(
    tuned: Mapping[str, object],
    knobs: Sequence[Knob],
    written: Mapping[str, Any],
    complete: Callable[[Mapping[str, Any]], Choice | tuple[Refusal, ...]],
    refuse: Callable[[Any], Refusal | None],
) -> Any:
    """The candidate with knob values by dotted key, or in words what is against it; see read_tuned."""
    by_key = {knob.key: knob for knob in knobs}
    values: dict[str, Any] = {}
    for key, value in tuned.items():
        knob = by_key.get(key)
        if knob is None:
            return f"this spec has no knob `{key}`"
        try:
            read = knob.read(value)
        except ValueError as error:
            return f"{key}: {json.dumps(value)} is not {error}"
        if written.get(knob.field, read) != read:
            return f"{key}: the spec now says {json.dumps(plain(written[knob.field]))}, it has {json.dumps(value)}"
        values[knob.field] = read
    result = complete({**written, **values})
    if not isinstance(result, Choice):
        return result[0].reason
    refusal = refuse(result.candidate)
    return refusal.reason if refusal else result.candidate


def _misfit(row: TunedRow, dims: Sequence[str], along: str, idle: Collection[str], before: Sequence[TunedRow]) -> str:
    """Why no call of a kernel with these dims can be meant, or "". Without a device none is."""
    if not row.device:
        return ""
    if set(row.calls) != set(dims):
        return f"its calls give {', '.join(row.calls)}; the dims are {', '.join(dims)}"
    ranges = [dim for dim, extent in row.calls.items() if dim != along and not isinstance(extent, int)]
    if ranges:
        return f"its calls give a range of {', '.join(ranges)}; a range is of {along}"
    if any(row.less(idle).overlaps(other) for other in before):
        return "another winner is for the same calls on this device" + "".join(f", whatever {dim} is" for dim in idle)
    return ""


def _span(extent: int | tuple[int, int]) -> tuple[int, int]:
    return (extent, extent) if isinstance(extent, int) else extent
