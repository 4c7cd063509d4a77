"""The chart of a result: where everything stands. Numbers are decided here, the template only prints them.

A line for each kernel and problem; on the left its speeds relative to libraries, on a logarithmic axis, so that
twice as fast and half as fast are equally far from 1; on the right its share of the floor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutegen.report.result import CandidateResult, ProblemResult, Result
from cutegen.run.intervals import ratio_text

WIDTH, LABELS, SPEEDS, SHARES, GAP, FIGURES = 1080, 400, 330, 190, 30, 90  # pixels; the figures stand at the right edge
TOP, LINE, BOTTOM = 74, 24, 34
EDGE, BAR_INSET = 12, 5
MARK = 4.5  # half of a marker
CHARACTER = 6.7  # width of a character of a label, about
TICKS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 5, 7, 10)
TICK_DISTANCE = 36
LEAST, MOST = 0.8, 1.25  # the axis reaches at least so far
SHARE_MOST = 1.1
SERIES = 4  # colours and shapes there are; further libraries begin again


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A speed: its place, the path of its shape, its interval, and what it says when pointed at."""

    series: int
    path: str
    low: float
    high: float
    says: str


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel on one problem. y, middle, baseline, bar_y: the line's top, its marks, its text and its bar. shade:
    every other problem has one. bar: width of the share of the floor."""

    y: float
    middle: float
    baseline: float
    bar_y: float
    shade: bool
    title: str
    detail: str
    marks: tuple[Mark, ...]
    bar: float
    share: str
    us: str
    wrong: bool


@dataclass(frozen=True, slots=True)
class Legend:
    series: int
    x: float
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """speeds, shares: left and right of the two parts. labels, share_text, figures: where texts stand. top, bottom: of
    the lines; the numbers of the axes stand at both."""

    title: str
    width: int
    height: float
    lines: tuple[Line, ...]
    speeds: tuple[float, float]
    shares: tuple[float, float]
    speed_ticks: tuple[Tick, ...]
    share_ticks: tuple[Tick, ...]
    one: float
    legend: tuple[Legend, ...]
    top: float
    bottom: float
    axes: tuple[float, float]
    labels: float
    share_text: float
    figures: float
    line_height: int
    bar_height: int


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis from `low` to `high` over pixels."""

    low: float
    high: float
    left: float
    right: float

    def place(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return _round(
            self.left + (self.right - self.left) * math.log(inside / self.low) / math.log(self.high / self.low)
        )

    def ticks(self) -> Iterator[Tick]:
        """1, and as many others as stand apart."""
        taken = [self.place(1)]
        yield Tick(taken[0], "1")
        for value in sorted(TICKS, key=lambda v: abs(math.log(v))):
            x = self.place(value)
            if self.low <= value <= self.high and all(abs(x - other) >= TICK_DISTANCE for other in taken):
                taken.append(x)
                yield Tick(x, f"{value:g}")


def draw_chart(result: Result) -> Chart:
    """Of a result with at least one problem."""
    left = float(LABELS)
    right = left + SPEEDS
    shares = (right + GAP, right + GAP + SHARES)
    axis = _scale(result, left, right)
    libraries = result.libraries()
    lines: list[Line] = []
    for number, problem in enumerate(result.problems):
        kernels = list(problem.kernels())
        for c in kernels:
            lines.append(_line(problem, c, len(kernels) > 1, len(lines), number % 2 == 1, libraries, axis, shares))
    bottom = TOP + LINE * len(lines)
    return Chart(
        title=f"{result.suite or 'bench'} on {result.device()}",
        width=WIDTH,
        height=bottom + BOTTOM,
        lines=tuple(lines),
        speeds=(left, right),
        shares=shares,
        speed_ticks=tuple(axis.ticks()),
        share_ticks=tuple(Tick(_share_place(s, shares), f"{s:.0%}") for s in (0, 0.25, 0.5, 0.75, 1)),
        one=axis.place(1),
        legend=tuple(_legend(result, libraries, left)),
        top=TOP,
        bottom=bottom,
        axes=(TOP - 8, bottom + 18),
        labels=EDGE,
        share_text=shares[0] + 6,
        figures=WIDTH - EDGE,
        line_height=LINE,
        bar_height=LINE - 2 * BAR_INSET,
    )


def _scale(result: Result, left: float, right: float) -> _Axis:
    """All medians are inside; ends of intervals too, unless they are further than the last tick."""
    speeds = [s for p in result.problems for c in p.kernels() for s in c.speeds.values()]
    low = min([LEAST, *(max(s.low, TICKS[0]) / 1.02 for s in speeds)])
    high = max([MOST, *(min(s.high, TICKS[-1]) * 1.02 for s in speeds)])
    return _Axis(low, high, left, right)


def _line(
    problem: ProblemResult,
    c: CandidateResult,
    several: bool,
    index: int,
    shade: bool,
    libraries: Sequence[str],
    axis: _Axis,
    shares: tuple[float, float],
) -> Line:
    top = TOP + LINE * index
    middle = top + LINE / 2
    marks = []
    for library, s in c.speeds.items():
        x, series = axis.place(s.median), libraries.index(library)
        says = f"{ratio_text(s)} of {library} ({s.against})"
        marks.append(Mark(series % SERIES, _shape(series, x, middle), axis.place(s.low), axis.place(s.high), says))
    share = c.share_of_floor or 0.0
    extents = " x ".join(str(n) for n in problem.shape.values())
    title, detail = (problem.name, extents) if problem.name else (problem.dims, "")
    room = int((LABELS - EDGE) / CHARACTER)
    if several:
        detail = f"{detail}, {c.name}" if detail else c.name
    title = _shorten(title, max(room - len(detail) - 2, 16))
    return Line(
        y=top,
        middle=middle,
        baseline=middle + 4,
        bar_y=top + BAR_INSET,
        shade=shade,
        title=title,
        detail=_shorten(detail, room - len(title) - 2),
        marks=tuple(marks),
        bar=_round(_share_place(share, shares) - shares[0]),
        share=f"{share:.0%}" if share else "",
        us=f"{c.seconds.median * 1e6:.4g} us",
        wrong=c.right is False,
    )


def _share_place(share: float, shares: tuple[float, float]) -> float:
    return _round(shares[0] + (shares[1] - shares[0]) * min(share, SHARE_MOST) / SHARE_MOST)


def _legend(result: Result, libraries: Sequence[str], left: float) -> Iterator[Legend]:
    x = left
    for series, library in enumerate(libraries):
        geomeans = [by[library].geomean for by in result.summaries.values() if library in by]
        text = f"{library}, geomean {geomeans[0].median:.3f}" if len(geomeans) == 1 else library
        yield Legend(series % SERIES, _round(x + 10), _shape(series, x, 36), text)
        x += 26 + CHARACTER * len(text)


def _shape(series: int, x: float, y: float) -> str:
    """A circle, a square, a diamond or a triangle around a point: told apart without colours, too."""
    r, s, t = MARK, MARK * 0.9, f"{MARK * 1.3:.1f}"
    return (
        f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
        f"M{x - s:.1f} {y - s:.1f}h{2 * s:.1f}v{2 * s:.1f}h{-2 * s:.1f}z",
        f"M{x:.1f} {y - 1.3 * r:.1f}l{t} {t}l-{t} {t}l-{t} -{t}z",
        f"M{x:.1f} {y - 1.2 * r:.1f}l{1.2 * r:.1f} {2.1 * r:.1f}h{-2.4 * r:.1f}z",
    )[series % SERIES]


def _shorten(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def _round(value: float) -> float:
    return round(value, 1)
