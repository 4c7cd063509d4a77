"""Roles over time: when each warp worked, and what it waited for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from cutegen.diagnostics import CutegenError

WARPS = 64  # that a timeline shows: those of the first clusters
WIDTH, LEFT, ROW, TOP, BOTTOM = 1100, 210, 16, 44, 30  # pixels
BAR = 12
COLUMNS = 100  # of the text


class TimeUnit(NamedTuple):
    """unit: of time. said: what that is. marks: whether rows have any."""

    unit: str
    said: str
    marks: bool = False


CYCLES = TimeUnit("cycles", "by cycles of its SM, from the first stamp of each CTA")


@dataclass(frozen=True, slots=True)
class Wait:
    """From a time to another. what: it waits for, with the place of the instruction."""

    start: int
    end: int
    what: str


@dataclass(frozen=True, slots=True)
class WarpRow:
    """A warp. cta: its index, or number, in the grid. role: what it did, in words. end: when it left. marks: kinds of
    asynchronous work that it issued, by time."""

    cta: tuple[int, ...]
    warp: int
    role: str
    end: int
    waits: tuple[Wait, ...]
    marks: tuple[tuple[int, str], ...] = ()

    @property
    def name(self) -> str:
        return f"CTA {','.join(map(str, self.cta))} warp {self.warp}" + (f": {self.role}" if self.role else "")


def draw(rows: Sequence[WarpRow], title: str, form: str, time: TimeUnit, below: Sequence[str] = ()) -> str:
    """form: svg or txt. below: lines of text under the rows. CutegenError: there are no rows."""
    if not rows:
        raise CutegenError("nothing was executed that a timeline could show")
    if form == "svg":
        return "".join(_svg(rows, title, time, below))
    return "\n".join([*_text(rows, title, time), *([""] if below else []), *below]) + "\n"


def _svg(rows: Sequence[WarpRow], title: str, time: TimeUnit, below: Sequence[str]) -> Iterator[str]:
    last = max(1, *(row.end for row in rows))
    wide = (WIDTH - LEFT - 10) / last
    foot = TOP + ROW * len(rows) + BOTTOM
    height = foot + ROW * len(below)
    legend = "; green: issues loads, red: products, brown: stores" * time.marks
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">\n<style>.w{fill:#3b7dd8}.i{fill:#d8d8d8}.load{fill:#1a7f37}'
        ".product{fill:#b3261e}.store{fill:#8a5a00}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        f'<text x="10" y="18" font-size="14">{escape(title)}</text>\n'
        f'<text x="10" y="34">{escape(time.said)}; grey: waits{legend}</text>\n'
    )
    for i, row in enumerate(rows):
        y = TOP + ROW * i
        yield f'<text x="10" y="{y + BAR - 2}">{escape(row.name)}</text>\n'
        yield f'<rect class="w" x="{LEFT}" y="{y}" width="{row.end * wide:.1f}" height="{BAR}"/>\n'
        for wait in row.waits:
            yield (
                f'<rect class="i" x="{LEFT + wait.start * wide:.1f}" y="{y}" '
                f'width="{(wait.end - wait.start) * wide:.1f}" height="{BAR}"><title>{escape(wait.what)}, '
                f"{wait.end - wait.start} {time.unit}</title></rect>\n"
            )
        for step, kind in row.marks:
            yield f'<rect class="{kind}" x="{LEFT + step * wide:.1f}" y="{y}" width="1.5" height="{BAR}"/>\n'
    yield f'<text x="{LEFT}" y="{foot - 10}">0</text>\n'
    yield f'<text x="{WIDTH - 10}" y="{foot - 10}" text-anchor="end">{last} {time.unit}</text>\n'
    for i, line in enumerate(below):
        y = foot + ROW * i + BAR - 2
        yield f'<text x="10" y="{y}" font-family="monospace" xml:space="preserve">{escape(line)}</text>\n'
    yield "</svg>\n"


def _text(rows: Sequence[WarpRow], title: str, time: TimeUnit) -> Iterator[str]:
    last = max(1, *(row.end for row in rows))
    legend = ", L M S: issues loads, products, stores" * time.marks
    yield f"{title}\n{time.said}: {last} {time.unit}. # works, . waits{legend}\n"
    wide = max(len(row.name) for row in rows)
    letters = {"load": "L", "product": "M", "store": "S"}
    for row in rows:
        cells = ["#" if i * last < row.end * COLUMNS else " " for i in range(COLUMNS)]
        for wait in row.waits:
            for i in range(-(-wait.start * COLUMNS // last), min(COLUMNS, wait.end * COLUMNS // last)):
                cells[i] = "."
        for step, kind in row.marks:
            cells[min(COLUMNS - 1, step * COLUMNS // last)] = letters[kind]
        yield f"{row.name:<{wide}}  {''.join(cells)}"
    yield "\nwhat is waited for longest:"
    for row in rows:
        total: dict[str, int] = {}
        for wait in row.waits:
            total[wait.what] = total.get(wait.what, 0) + wait.end - wait.start
        for what, steps in sorted(total.items(), key=lambda item: -item[1])[:3]:
            yield f"{row.name:<{wide}}  {steps:>7} {time.unit}  {what}"
