"""What plan.py.jinja of every family reads of a resolved kernel: its tilings, and the dispatch among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, TypeVar

from cutegen.families.resolved import DeviceRow, DispatchRow, ResolvedTiling

Winners: TypeAlias = dict[str, dict[tuple[int, ...], tuple[tuple[int, str], ...]]]
"""By device and by point, the extents of a call in all dims that decide but one: (last extent of that, tiling)."""


@dataclass(frozen=True, slots=True)
class FieldText:
    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class TilingsText:
    """What _shared/tilings.py.jinja reads as p.tilings. kind: the class of a tiling's numbers. shared: numbers that all
    tilings have alike. columns, partial: where the others come from, and those that only some tilings have; rows: by
    module and tiling, in that order, up to the last number that is not as the class has it."""

    kind: str
    shared: tuple[FieldText, ...]
    columns: Mapping[str, str]
    partial: Mapping[str, str]
    rows: Mapping[str, Mapping[str, tuple[Any, ...]]]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tilings."""
        return tuple(name for rows in self.rows.values() for name in rows)


Tiling = TypeVar("Tiling", bound=ResolvedTiling[Any])


def _no_facts(tiling: ResolvedTiling[Any]) -> tuple[str, ...]:
    return ()


def tilings_text(tilings: Sequence[Tiling], describe: Callable[[Tiling], tuple[str, ...]] = _no_facts) -> TilingsText:
    """describe: in words what may decide where a number comes from, in equal order for all tilings."""
    defaults = {f.name: f.default for f in fields(tilings[0].numbers)}
    have = {name: [t for t in tilings if name in t.sources] for name in defaults}
    values = {name: [getattr(t.numbers, name) for t in tilings] for name in defaults}
    one = tilings[0].sources if len(tilings) == 1 else None
    legend = {name: one[name] if one else _legend(name, own, describe) for name, own in have.items() if own}
    shared = [name for name in legend if len(have[name]) == len(tilings) and len(set(values[name])) == 1]
    columns = [name for name in legend if len(have[name]) == len(tilings) and name not in shared]
    partial = sorted((name for name in legend if len(have[name]) < len(tilings)), key=lambda name: -len(have[name]))
    rows: dict[str, dict[str, tuple[Any, ...]]] = {}
    for i, t in enumerate(tilings):
        row = [values[name][i] for name in (*columns, *partial)]
        while len(row) > len(columns) and row[-1] == defaults[partial[len(row) - len(columns) - 1]]:
            row.pop()
        rows.setdefault(t.module, {})[t.name] = tuple(row)
    return TilingsText(
        kind=type(tilings[0].numbers).__name__,
        shared=tuple(FieldText(name, values[name][0], legend[name]) for name in shared),
        columns={name: legend[name] for name in columns},
        partial={name: legend[name] for name in partial},
        rows=rows,
    )


def _legend(name: str, tilings: Sequence[Tiling], describe: Callable[[Tiling], tuple[str, ...]]) -> str:
    """Where a number of several tilings comes from; where that is not alike, the one thing that decides, or else their
    names, before all but the first."""
    texts = [t.formulas.get(name, t.sources[name]) for t in tilings]
    for words in (*zip(*map(describe, tilings)), [f"of {t.name}" for t in tilings]):
        found = dict(zip(words, texts))
        if [found[word] for word in words] == texts:
            break
    cases: dict[str, list[str]] = {}
    for word, text in found.items():
        cases.setdefault(text, []).append(word)
    first, *others = cases
    return "; ".join((first, *(f"{', '.join(cases[text])}: {text}" for text in others)))


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
