"""A section of what `explain` prints; apart from what fills it, so that ops are explained without models of specs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """lines: text above the table. header, rows: the table; both empty when there is none."""

    title: str
    lines: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
