"""Roles over time, from what a run on the machine noted: when each warp worked and what it waited for.

Time is in steps: an instruction takes a warp one, and a wait ends at the step in which what it waits for is signalled,
or what was issued then arrives. Nothing takes longer than something else, so lengths are not times: what can be seen is
who waits for whom, and what may go on at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from cutegen.machine.parser import PtxError

WARPS = 64  # that a timeline shows: those of the first clusters
WIDTH, LEFT, ROW, TOP, BOTTOM = 1100, 210, 16, 44, 30  # pixels
BAR = 12
COLUMNS = 100  # of the text
LABEL = "by steps of the PTX machine, not by time"
KINDS = {"load": "loads", "product": "multiplies", "store": "stores"}


@dataclass(frozen=True, slots=True)
class Wait:
    """From a step to another. what: it waits for, with the place of the instruction."""

    start: int
    end: int
    what: str


@dataclass(frozen=True, slots=True)
class WarpRow:
    """A warp. role: what it did, in words. end: the step in which it left. marks: kinds of asynchronous work that it
    issued, by step."""

    cta: tuple[int, int, int]
    warp: int
    role: str
    end: int
    waits: tuple[Wait, ...]
    marks: tuple[tuple[int, str], ...]

    @property
    def name(self) -> str:
        return f"CTA {','.join(map(str, self.cta))} warp {self.warp}" + (f": {self.role}" if self.role else "")


def collect(machine: Any) -> tuple[WarpRow, ...]:
    """Of a machine that was told to take notes."""
    rows = []
    for warp in machine.all_warps[:WARPS]:
        waits = tuple(Wait(start, end, what) for start, end, what in warp.waits if end > start)
        kinds = dict.fromkeys(KINDS[kind] for _, kind in warp.marks)
        rows.append(WarpRow(warp.cta.where, warp.index, ", ".join(kinds), warp.time, waits, tuple(warp.marks)))
    return tuple(rows)


def draw(rows: Sequence[WarpRow], title: str, form: str) -> str:
    """form: svg or txt."""
    if not rows:
        raise PtxError("nothing was executed that a timeline could show")
    return "".join(_svg(rows, title)) if form == "svg" else "\n".join(_text(rows, title)) + "\n"


def _svg(rows: Sequence[WarpRow], title: str) -> Iterator[str]:
    last = max(1, *(row.end for row in rows))
    scale = (WIDTH - LEFT - 10) / last
    height = TOP + ROW * len(rows) + BOTTOM
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">\n<style>.w{fill:#3b7dd8}.i{fill:#d8d8d8}.load{fill:#1a7f37}'
        ".product{fill:#b3261e}.store{fill:#8a5a00}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        f'<text x="10" y="18" font-size="14">{escape(title)}</text>\n'
        f'<text x="10" y="34">{LABEL}; grey: waits; green: issues loads, red: products, brown: stores</text>\n'
    )
    for i, row in enumerate(rows):
        y = TOP + ROW * i
        yield f'<text x="10" y="{y + BAR - 2}">{escape(row.name)}</text>\n'
        yield f'<rect class="w" x="{LEFT}" y="{y}" width="{row.end * scale:.1f}" height="{BAR}"/>\n'
        for wait in row.waits:
            yield (
                f'<rect class="i" x="{LEFT + wait.start * scale:.1f}" y="{y}" '
                f'width="{(wait.end - wait.start) * scale:.1f}" height="{BAR}"><title>{escape(wait.what)}, '
                f"{wait.end - wait.start} steps</title></rect>\n"
            )
        for step, kind in row.marks:
            yield f'<rect class="{kind}" x="{LEFT + step * scale:.1f}" y="{y}" width="1.5" height="{BAR}"/>\n'
    yield f'<text x="{LEFT}" y="{height - 10}">0</text>\n'
    yield f'<text x="{WIDTH - 10}" y="{height - 10}" text-anchor="end">{last} steps</text>\n</svg>\n'


def _text(rows: Sequence[WarpRow], title: str) -> Iterator[str]:
    last = max(1, *(row.end for row in rows))
    yield f"{title}\n{LABEL}: {last} steps. # works, . waits, L M S: issues loads, products, stores\n"
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
            yield f"{row.name:<{wide}}  {steps:>7} steps  {what}"
