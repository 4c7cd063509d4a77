"""What `report` prints and writes: files first, only what changed, kernels that can be told apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from bench_results import parsed, problem, result

from cutegen.cli import main
from cutegen.report.chart import NARROW, WIDE, Layout, draw_chart
from cutegen.report.page import render_chart, render_page
from cutegen.report.result import Result

SVG = "{http://www.w3.org/2000/svg}"


def two_kernels() -> Result:
    problems = [problem(8.0 + m / 100, m, "a long name of a layer, decode") for m in (1, 16, 4096)]
    for p in problems:
        p["candidates"].insert(1, {**p["candidates"][0], "name": "gemm_bf16_with_a_long_name_pingpong_sm90a"})
    return parsed(*problems)


def classes(chart: str) -> list[str]:
    return [e.attrib["class"] for e in ElementTree.fromstring(chart).iter(f"{SVG}path")]


def test_several_kernels_have_colours_and_every_other_is_hollow() -> None:
    assert classes(render_chart(parsed(problem(8.0)))) == ["s0", "s0"]  # the library in the legend, and the mark
    found = classes(render_chart(two_kernels()))
    assert found[:3] == ["plain", "s0", "s1 hollow"]  # cuBLAS, and the two kernels
    assert found[3:] == ["s0", "s1 hollow"] * 3
    texts = ["".join(e.itertext()) for e in ElementTree.fromstring(render_chart(two_kernels())).iter(f"{SVG}text")]
    assert "gemm_bf16_with_a_long_name_pingpong_sm90a" in texts  # what the colour stands for


@pytest.mark.parametrize("layout", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("make", [two_kernels, lambda: parsed(problem(8.0))], ids=["two kernels", "one"])
def test_a_chart_keeps_to_its_width(layout: Layout, make: Any) -> None:
    chart = draw_chart(make(), layout)
    assert chart.width == layout.width
    assert chart.shares[1] <= chart.figures <= chart.width
    for line in chart.lines:
        assert len(line.title) + len(line.detail) + 2 <= layout.room
        assert line.y < line.label <= line.middle + 5 < line.y + layout.line
        assert all(chart.speeds[0] <= x <= chart.speeds[1] for m in line.marks for x in (m.low, m.high))
    assert all(mark.x + 6 * len(mark.text) <= chart.width for mark in chart.legend)
    legend = [(mark.x, mark.y) for mark in chart.legend]
    assert len(set(legend)) == len(legend)
    assert all(chart.heads[1] < mark.y < chart.top - 20 for mark in chart.legend)
    ys = [line.y for line in chart.lines]
    assert ys == sorted(set(ys))


class Tables(HTMLParser):
    """Column names of every cell, and the number of cells of every row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.columns: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "td":
            self.columns.append(dict(attrs).get("data-column"))


def test_cells_of_a_page_know_their_column() -> None:
    """In a narrow window rows become lists of column and value."""
    page = render_page(two_kernels())
    columns = Tables(page).columns
    assert columns
    assert all(columns)
    assert "x cuBLAS" in columns
    assert page.count('class="chart broad"') == page.count('class="chart narrow"') == 1


def stored(tmp_path: Path, name: str, *times: float) -> str:
    path = tmp_path / name
    path.write_text(json.dumps(result(*(problem(us, 16 * i, f"layer {i}") for i, us in enumerate(times, 1)))))
    return str(path)


def test_files_are_written_before_anything_is_printed(tmp_path: Path) -> None:
    """`cutegen report R.json --html page.html | head -1` leaves a page."""
    old, page, svg = stored(tmp_path, "old.json", 8.0), tmp_path / "page.html", tmp_path / "chart.svg"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        command = [sys.executable, "-m", "cutegen", "report", old, "--html", str(page), "--svg", str(svg)]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert page.read_text().endswith("</html>\n")
    assert svg.read_text().endswith("</svg>\n")


def test_a_comparison_shows_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = stored(tmp_path, "old.json", 8.0, 8.0, 8.0), stored(tmp_path, "new.json", 8.0, 8.5, 7.5)
    assert main(["report", new, "--compare", old]) == 1
    out = capsys.readouterr().out
    assert ["layer 1" in out, "layer 2" in out, "layer 3" in out] == [False, True, True]
    assert "3 compared, beyond 1.0%: 1 slower, 1 equal, 1 faster" in out
    assert "; --all shows the equal ones\n" in out
    assert main(["report", new, "--compare", old, "--all"]) == 1
    out = capsys.readouterr().out
    assert ["layer 1" in out, "layer 2" in out, "--all" in out] == [True, True, False]
    assert main(["report", old, "--compare", old]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 compared, beyond 1.0%: 0 slower, 3 equal, 0 faster; ")  # no table
    assert main(["report", new, "--compare", old, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["comparison"]["rows"]) == 3
