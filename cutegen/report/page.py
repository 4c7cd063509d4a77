"""A result as a picture (SVG) and as a page (HTML) that one can send: everything in one file, nothing fetched.

Every text of a result is escaped by the template engine: names come from specs and suites of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cutegen.diagnostics import CutegenError
from cutegen.render.environment import render_markup, render_template
from cutegen.report.chart import NARROW, WIDE, Layout, draw_chart
from cutegen.report.result import CandidateResult, IntervalResult, Result
from cutegen.report.table import RIGHT, clock, describe_run, describe_skipped, rates
from cutegen.run.intervals import ratio_text


@dataclass(frozen=True, slots=True)
class Cell:
    """detail: a second line, in smaller letters."""

    text: str
    number: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TableRow:
    """kind: "kernel", "wrong", "" for a baseline, or "group" for the title of the rows below it."""

    cells: tuple[Cell, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class PageSection:
    """charts: for wide and for narrow windows."""

    title: str
    lines: tuple[str, ...] = ()
    header: tuple[Cell, ...] = ()
    rows: tuple[TableRow, ...] = ()
    charts: tuple[str, ...] = ()
    command: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    subtitle: str
    style: Markup
    notes: tuple[str, ...]
    sections: tuple[PageSection, ...]


def render_chart(result: Result) -> str:
    """A whole SVG file."""
    return _chart(result, _style())


def render_page(result: Result) -> str:
    """A whole HTML file."""
    return render_markup("report/page.html.jinja", p=_page(result))


def _style() -> Markup:
    return Markup(render_template("report/style.css.jinja", themes=("light", "dark")))


def _chart(result: Result, style: Markup, layout: Layout = WIDE) -> str:
    if not any(True for p in result.problems for _ in p.kernels()):
        raise CutegenError("the result holds no kernel: there is nothing to draw", exit_code=2)
    return render_markup("report/chart.svg.jinja", c=draw_chart(result, layout), style=style)


def _page(result: Result) -> Page:
    measured = f", measured {at}" if (at := result.environment.get("measured_at")) else ""
    counts = f"{len(result.problems)} problems" + (f", {len(result.left_out)} left out" if result.left_out else "")
    run: list[str] = []
    notes: list[str] = []
    for text in describe_run(result):
        (notes if text.startswith("note: ") else run).append(text.removeprefix("note: "))
    if any(c.right is False for p in result.problems for c in p.kernels()):
        notes.insert(0, "a kernel computed a wrong result: its figures mean nothing")
    return Page(
        title=f"cutegen bench: {result.suite}" if result.suite else "cutegen bench",
        subtitle=f"{result.device()}; {counts}{measured}",
        style=_style(),
        notes=tuple(notes),
        sections=tuple(_sections(result, [line for line in run if ": geomean " not in line])),
    )


def _sections(result: Result, run: Sequence[str]) -> Iterator[PageSection]:
    header = ("kernel", "relative to", "problems", "geomean", "slowest", "fastest", "below 1")
    rows = [
        (kernel, library, str(s.problems), ratio_text(s.geomean), f"{s.least:.3f}", f"{s.most:.3f}", str(s.below_one))
        for kernel, by_library in result.summaries.items()
        for library, s in by_library.items()
    ]
    if rows:
        yield PageSection("Speeds over all problems", (), *_as_table(header, rows))
    yield PageSection("Each problem", charts=tuple(Markup(_chart(result, Markup(), x)) for x in (WIDE, NARROW)))
    yield PageSection("Times", tuple(run), _heads(_columns(result)), tuple(_candidates(result)))
    skipped = list(describe_skipped(result))
    if skipped:
        yield PageSection("Left out", tuple(skipped))
    yield PageSection("Machine and software", (), *_as_table(("what", "which"), list(_environment(result))))
    yield PageSection("Measure it again", command=result.command)


def _columns(result: Result) -> tuple[str, ...]:
    libraries = (f"x {library}" for library in result.libraries())
    return ("candidate", "us", "TFLOP/s", "TB/s", "of floor", *libraries, "MHz", "result")


def _candidates(result: Result) -> Iterator[TableRow]:
    """The candidates of each problem below its title. Intervals are second lines: so the columns of many libraries fit
    side by side."""
    libraries = result.libraries()
    for problem in result.problems:
        yield TableRow((Cell(problem.title),), "group")
        for c in problem.candidates:
            us, *others = rates(c)
            figures = (
                Cell(us, True, _microseconds(c.seconds)),
                *(Cell(text, True) for text in others),
                *(_ratio(c.speeds.get(library)) for library in libraries),
                Cell(clock(c), True),
            )
            yield TableRow((Cell(c.name, detail=c.tiling or c.does), *figures, Cell(RIGHT[c.right])), _kind(c))


def _ratio(speed: IntervalResult | None) -> Cell:
    if speed is None:
        return Cell("", True)
    median, _, interval = ratio_text(speed).partition(" ")
    return Cell(median, True, interval)


def _kind(c: CandidateResult) -> str:
    return "wrong" if c.right is False else "" if c.baseline else "kernel"


def _microseconds(interval: IntervalResult) -> str:
    return f"[{interval.low * 1e6:.2f}, {interval.high * 1e6:.2f}]"


def _environment(result: Result) -> Iterator[tuple[str, str]]:
    gpu = result.environment.get("gpu")
    if isinstance(gpu, dict):
        yield from ((f"GPU, {name.replace('_', ' ')}", str(value)) for name, value in gpu.items() if name != "uuid")
    for name, value in result.environment.items():
        if name not in ("gpu", "measured_at"):
            yield name, "not installed" if value is None else str(value)
    yield "rounds", f"{result.rounds} of {result.slice_seconds * 1e3:g} ms each"


def _as_table(header: Iterable[str], rows: Sequence[Sequence[str]]) -> tuple[tuple[Cell, ...], tuple[TableRow, ...]]:
    cells = tuple(TableRow(tuple(Cell(text, _is_figure(text)) for text in row)) for row in rows)
    return _heads(header), cells


def _heads(header: Iterable[str]) -> tuple[Cell, ...]:
    words = ("problem", "candidate", "what", "which", "kernel", "relative to", "result")
    return tuple(Cell(text, text not in words) for text in header)


def _is_figure(text: str) -> bool:
    return bool(re.fullmatch(r"[\d.]+( \[[\d., ]+\])?", text))
