"""What plan.py.jinja of every family reads of a resolved kernel: its tilings, and the dispatch among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from cutegen.families.resolved import DispatchRow, ResolvedTiling


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


def tiling_texts(tilings: Iterable[ResolvedTiling[Any]]) -> tuple[TilingText, ...]:
    return tuple(
        TilingText(
            t.name,
            tuple(FieldText(f.name, repr(getattr(t.numbers, f.name)), t.sources[f.name]) for f in fields(t.numbers)),
        )
        for t in tilings
    )


def row_texts(dispatch: Iterable[DispatchRow], dim: str) -> tuple[RowText, ...]:
    """dim: how the plan reads a dim, {} being its name."""
    return tuple(
        RowText(" and ".join(f"{dim.format(name)} {op} {value}" for name, op, value in row.when), row.tiling)
        for row in dispatch
    )
