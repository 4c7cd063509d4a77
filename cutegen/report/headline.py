"""The chart of a README: the geomean speeds of stored results, a bar for each, relative to the library that they were
measured with. What it shows is listed in a JSON file, and numbers come from the results alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cutegen.diagnostics import CutegenError
from cutegen.render.environment import render_markup, render_template
from cutegen.report.markdown import Source, summarise
from cutegen.report.result import describe_fault, is_tuned, load_result, read_json
from cutegen.report.winners import Proved, Tuned, read_locks, read_tune, summarise_proofs

THEMES = ("light", "dark")
WIDTH, EDGE = 840, 12  # pixels
LABELS, BARS = 316, 330  # where the bars begin; how wide the axis is
TOP, LINE, BAR, BOTTOM = 62, 44, 22, 44  # above the first line; a line; a bar; below the last line
STEP = 0.25  # of the axis


class Entry(BaseModel):
    """A bar. files: results of `bench -o`, one of `tune --json`, or a spec with winners in its lock; `*` stands for
    any part of a name. against: the library as the result calls it; of winners, the baseline. peer: its name in the
    chart. does: shown next to the label."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    does: str
    files: list[str] = Field(min_length=1)
    against: str
    peer: str


class Listed(BaseModel):
    """title: without what the speeds are relative to, which each bar says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    bars: list[Entry] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Bar:
    """Speeds over problems relative to a library. low: of the geomean. least: the problem's on which it is slowest."""

    label: str
    does: str
    device: str
    rival: str
    problems: int
    geomean: float
    low: float
    least: float

    @property
    def detail(self) -> str:
        return f"{self.does}; {self.problems} problems, {self.device}"

    @property
    def figure(self) -> str:
        return f"{self.geomean:.2f}x {self.rival}"

    @property
    def says(self) -> str:
        return f"{self.label}, {self.detail}: {self.figure}, the slowest problem {self.least:.2f}x"


@dataclass(frozen=True, slots=True)
class Line:
    """A bar and where it stands: the top of the bar, its end, the lower end of the geomean, the slowest problem."""

    bar: Bar
    y: float
    end: float
    low: float
    least: float


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    width: int
    height: int
    edge: int
    left: int
    top: int
    bottom: int
    bar_height: int
    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]
    one: float


def read_bars(path: Path, root: Path) -> tuple[str, list[Bar]]:
    """The title and the bars of a chart. root: what its paths are relative to. CutegenError (exit 2): the list or a
    result in it is damaged, or has no such library."""
    try:
        listed = Listed.model_validate(read_json(path))
    except ValidationError as error:
        raise CutegenError(f"{path}: {describe_fault(error)}", "a chart has `title` and `bars`", 2) from error
    return listed.title, [_read_bar(entry, root) for entry in listed.bars]


def _read_bar(entry: Entry, root: Path) -> Bar:
    files = [root / file for name in entry.files for file in expand_files(name, root)]
    if missing := [file for file in files if not file.is_file()]:
        raise CutegenError(f"{missing[0]} does not exist", "name a result, or a spec with winners", 2)
    if files[0].suffix == ".json" and not is_tuned(read_json(files[0])):
        device, s = summarise([Source(file.name, load_result(file)) for file in files], entry.against)
        figures = (s.problems, s.geomean.median, s.geomean.low, s.least)
    else:
        device, proved = _read_proofs(files, entry.against)
        figures = (proved.problems, proved.geomean, proved.low, proved.least)
    return Bar(entry.label, entry.does, _shorten(device), entry.peer, *figures)


def expand_files(name: str, root: Path) -> list[str]:
    """What a shell would make of a name below a folder: those that match, in order, or the name itself."""
    found = sorted(root.glob(name)) if "*" in name else []
    return [path.relative_to(root).as_posix() for path in found] or [name]


def _read_proofs(files: Sequence[Path], baseline: str) -> tuple[str, Proved]:
    found: list[Tuned] = []
    for file in files:
        found += [read_tune(file, "")] if file.suffix == ".json" else read_locks([(file, "")])
    chosen = [(d, w) for tuned in found for (d, b), winners in tuned.proofs().items() if b == baseline for w in winners]
    devices = list(dict.fromkeys(device for device, _ in chosen))
    if len(devices) != 1:
        names = ", ".join(str(file) for file in files)
        raise CutegenError(
            f"{names}: winners relative to `{baseline}` on {len(devices)} devices", "there is to be one", 2
        )
    return devices[0], summarise_proofs([winner for _, winner in chosen])


def _shorten(device: str) -> str:
    """`NVIDIA H100 80GB HBM3, 700 W` is an H100."""
    return device.partition(",")[0].removeprefix("NVIDIA ").partition(" ")[0]


def render_headline(title: str, bars: Sequence[Bar], theme: str) -> str:
    """A whole SVG file in the colours of a theme: a page chooses, since an image does not know the page's theme."""
    style = Markup(render_template("report/style.css.jinja", themes=(theme,)))
    return render_markup("report/headline.svg.jinja", p=_draw(title, bars), style=style)


def _draw(title: str, bars: Sequence[Bar]) -> Picture:
    most = STEP * ceil(max(1.0, *(bar.geomean for bar in bars)) / STEP)

    def place(speed: float) -> float:
        return round(LABELS + BARS * speed / most, 1)

    lines = tuple(
        Line(bar, TOP + LINE * i + (LINE - BAR) / 2, place(bar.geomean), place(bar.low), place(bar.least))
        for i, bar in enumerate(bars)
    )
    bottom = TOP + LINE * len(bars)
    ticks = tuple((place(STEP * i), f"{STEP * i:g}") for i in range(round(most / STEP) + 1))
    return Picture(title, WIDTH, bottom + BOTTOM, EDGE, LABELS, TOP, bottom, BAR, lines, ticks, place(1))
