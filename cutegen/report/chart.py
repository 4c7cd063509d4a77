"""The chart of a result: where everything stands. Numbers are decided here, the template only prints them.

A line for each kernel and problem; on the left its speeds relative to libraries, on a logarithmic axis, so that
twice as fast and half as fast are equally far from 1; on the right its share of the floor. A library is a shape, and a
colour where there is one kernel; of several kernels each has a colour, and every other one is hollow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cutegen.report.result import CandidateResult, ProblemResult, Result
from cutegen.run.intervals import ratio_text

BOTTOM, EDGE, BAR_INSET = 34, 12, 5  # pixels
HEAD, TEXT_LINE, AXIS = 22, 18, 34  # where the first text stands; from text to text; from the last to the lines
MARK = 4.5  # half of a marker
CHARACTER = 6.7  # width of a character of a label, about
TICKS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 5, 7, 10)
TICK_DISTANCE = 36
SHARE_TICKS = (0, 0.25, 0.5, 0.75, 1)
LEAST, MOST = 0.8, 1.25  # the axis reaches at least so far
SHARE_MOST = 1.1
SERIES = 4  # colours and shapes there are; further libraries and kernels begin again


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes in pixels. labels: where the speeds begin; 0 puts labels above their line, and heads below the title.
    line: height of a line; text, mark: where its label and its marks stand in it. The figures are at the right edge."""

    width: int
    labels: int
    speeds: int
    shares: int
    gap: int
    line: int
    text: int
    mark: int

    @property
    def stacked(self) -> bool:
        return not self.labels

    @property
    def room(self) -> int:
        """Characters of a label."""
        return int(((self.labels or self.width - EDGE) - EDGE) / CHARACTER)


WIDE = Layout(width=1080, labels=400, speeds=330, shares=190, gap=30, line=24, text=16, mark=12)
NARROW = Layout(width=364, labels=0, speeds=190, shares=90, gap=16, line=44, text=16, mark=31)


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A speed: its colour, whether it is hollow, the path of its shape, its interval, and what it says when pointed
    at."""

    series: int
    hollow: bool
    path: str
    low: float
    high: float
    says: str


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel on one problem. y, label, middle, baseline, bar_y: the line's top, its label, its marks, its figures
    and its bar. shade: every other problem has one. bar: width of the share of the floor."""

    y: float
    label: float
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
    """A library or a kernel. series: None for a shape that kernels have in colours of their own."""

    series: int | None
    hollow: bool
    x: float
    y: float
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """kind: the name of its layout. speeds, shares: left and right of the two parts. labels, share_text, figures: where
    texts stand. heads: height of the title and of the heads. top, bottom: of the lines; the numbers of the axes stand
    at both."""

    kind: str
    title: str
    width: int
    height: float
    heads: tuple[float, float]
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


def draw_chart(result: Result, layout: Layout = WIDE) -> Chart:
    """Of a result with at least one problem."""
    left = float(layout.labels or EDGE)
    right = left + layout.speeds
    shares = (right + layout.gap, right + layout.gap + layout.shares)
    axis = _scale(result, left, right)
    libraries, kernels = result.libraries(), _kernels(result)
    heads = (HEAD, HEAD + TEXT_LINE * layout.stacked)
    legend = tuple(_legend(result, libraries, kernels, layout, left, heads[1] + TEXT_LINE))
    top = max((mark.y for mark in legend), default=heads[1]) + AXIS
    lines: list[Line] = []
    for number, problem in enumerate(result.problems):
        for c in problem.kernels():
            marks = _marks(c, libraries, kernels, axis, top + layout.line * len(lines) + layout.mark)
            lines.append(_line(problem, c, marks, top + layout.line * len(lines), number % 2 == 1, layout, shares))
    bottom = top + layout.line * len(lines)
    return Chart(
        kind="narrow" if layout.stacked else "broad",
        title=_shorten(f"{result.suite or 'bench'} on {result.device()}", layout.room),
        width=layout.width,
        height=bottom + BOTTOM,
        heads=heads,
        lines=tuple(lines),
        speeds=(left, right),
        shares=shares,
        speed_ticks=tuple(axis.ticks()),
        share_ticks=tuple(Tick(_share_place(s, shares), f"{s:.0%}") for s in SHARE_TICKS[:: 1 + layout.stacked]),
        one=axis.place(1),
        legend=legend,
        top=top,
        bottom=bottom,
        axes=(top - 8, bottom + 18),
        labels=EDGE,
        share_text=shares[0] + 6,
        figures=layout.width - EDGE,
        line_height=layout.line,
        bar_height=WIDE.line - 2 * BAR_INSET,
    )


def _kernels(result: Result) -> list[str]:
    return list(dict.fromkeys(c.name for p in result.problems for c in p.kernels()))


def _scale(result: Result, left: float, right: float) -> _Axis:
    """All medians are inside; ends of intervals too, unless they are further than the last tick."""
    speeds = [s for p in result.problems for c in p.kernels() for s in c.speeds.values()]
    low = min([LEAST, *(max(s.low, TICKS[0]) / 1.02 for s in speeds)])
    high = max([MOST, *(min(s.high, TICKS[-1]) * 1.02 for s in speeds)])
    return _Axis(low, high, left, right)


def _marks(
    c: CandidateResult, libraries: Sequence[str], kernels: Sequence[str], axis: _Axis, middle: float
) -> Iterator[Mark]:
    number = kernels.index(c.name)
    for library, s in c.speeds.items():
        shape = libraries.index(library)
        says = f"{ratio_text(s)} of {library} ({s.against})"
        path = _shape(shape, axis.place(s.median), middle)
        colour = number if len(kernels) > 1 else shape
        yield Mark(colour % SERIES, number % 2 == 1, path, axis.place(s.low), axis.place(s.high), says)


def _line(
    problem: ProblemResult,
    c: CandidateResult,
    marks: Iterable[Mark],
    top: float,
    shade: bool,
    layout: Layout,
    shares: tuple[float, float],
) -> Line:
    share = c.share_of_floor or 0.0
    extents = " x ".join(str(n) for n in problem.shape.values())
    title, detail = (problem.name, extents) if problem.name else (problem.dims, "")
    if len(list(problem.kernels())) > 1:
        detail = f"{detail}, {c.name}" if detail else c.name
    title = _shorten(title, max(layout.room - len(detail) - 2, 16))
    middle = top + layout.mark
    return Line(
        y=top,
        label=top + layout.text,
        middle=middle,
        baseline=middle + 4,
        bar_y=middle - WIDE.line / 2 + BAR_INSET,
        shade=shade,
        title=title,
        detail=_shorten(detail, layout.room - len(title) - 2),
        marks=tuple(marks),
        bar=_round(_share_place(share, shares) - shares[0]),
        share=f"{share:.0%}" if share else "",
        us=f"{c.seconds.median * 1e6:.4g} us",
        wrong=c.right is False,
    )


def _share_place(share: float, shares: tuple[float, float]) -> float:
    return _round(shares[0] + (shares[1] - shares[0]) * min(share, SHARE_MOST) / SHARE_MOST)


def _legend(
    result: Result, libraries: Sequence[str], kernels: Sequence[str], layout: Layout, left: float, y: float
) -> Iterator[Legend]:
    """Libraries above the speeds, side by side or, with stacked labels, one below the other; several kernels above the
    labels."""
    several, x = len(kernels) > 1, left
    for shape, library in enumerate(libraries):
        geomeans = [by[library].geomean for by in result.summaries.values() if library in by]
        text = f"{library}, geomean {geomeans[0].median:.3f}" if len(geomeans) == 1 else library
        text = _shorten(text, int((layout.width - x - EDGE) / CHARACTER))
        colour = None if several else shape % SERIES
        yield Legend(colour, False, _round(x + 10), y, _shape(shape, x, y - 4), text)
        if layout.stacked:
            y += TEXT_LINE
        else:
            x += 26 + CHARACTER * len(text)
    for number, kernel in enumerate(kernels if several else ()):
        path, text = _shape(0, EDGE + MARK, y - 4), _shorten(kernel, layout.room - 2)
        yield Legend(number % SERIES, number % 2 == 1, EDGE + 15, y, path, text)
        y += TEXT_LINE


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
