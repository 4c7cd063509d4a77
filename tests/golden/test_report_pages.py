"""Charts and pages of results: equal bytes, everything escaped, nothing fetched."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from bench_results import GPU, NOISE, candidate, parsed, problem

from cutegen.cli import main
from cutegen.diagnostics import CutegenError
from cutegen.report.page import render_chart, render_page
from cutegen.report.result import Result

HERE = Path(__file__).parent / "report"
HOSTILE = "</title><script>alert('1')</script>&\"<!--"


def suite(name: str = "qkv, decode", kernel: str = "gemm") -> Result:
    quack = [9 * n for n in NOISE]
    problems = [problem(us, m, name) for us, m in ((8.0, 16), (9.9, 512), (12.5, 4096))]
    for p in problems:
        own = p["candidates"][0]
        own |= {"name": kernel, "sm_mhz": [1500, 1510, 1490]}
        faster = candidate(kernel, [s * 1e6 for s in own["samples"]], quack)
        own["speeds"] = {**own["speeds"], "quack": faster["speeds"]["cuBLAS"] | {"against": "quack"}}
        p["candidates"].append(candidate("quack", quack, library="quack", does="quack, tuned"))
    problems[2]["candidates"][0]["right"] = False
    del problems[1]["candidates"][0]["speeds"]["quack"]
    geomean = {"median": 1.02, "low": 1.01, "high": 1.03, "coverage": 0.96}
    summary = {"problems": 3, "geomean": geomean, "least": 0.8, "most": 1.25, "below_one": 1}
    return parsed(
        *problems,
        suite=kernel if kernel == HOSTILE else "layers",
        command=f"cutegen bench {kernel}.yaml --suite layers --rounds 9 --slice 60",
        notes=[f"1 other processes use the GPU: do not trust these figures of {kernel}"],
        environment={"gpu": {**GPU, "sms": 132}, "torch": "2.11", "quack-kernels": None, "measured_at": "2026-11-20"},
        summaries={kernel: {"cuBLAS": summary, "quack": summary}},
        left_out=[{"shape": {"m": 1, "n": 64, "k": 64}, "name": name, "reasons": {kernel: f"it computes `{kernel}`"}}],
    )


def test_chart(golden: Callable[[Path, str], None]) -> None:
    golden(HERE / "suite.svg", render_chart(suite()))


def test_page(golden: Callable[[Path, str], None]) -> None:
    golden(HERE / "suite.html", render_page(suite()))


class Elements(HTMLParser):
    """Tags with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("render", [render_chart, render_page])
def test_every_text_is_escaped_and_nothing_is_fetched(render: Any) -> None:
    text = render(suite(HOSTILE, HOSTILE))
    found, plain = Elements(text), Elements(render(suite()))
    assert "<script" not in text
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "image", "use"})
    assert not {name for _, attributes in found.tags for name in attributes} & {"src", "href", "xlink:href", "onload"}
    assert "url(" not in text
    assert "@import" not in text
    if render is render_page:
        assert HOSTILE in found.text


def test_characters_that_no_page_may_have_are_marked() -> None:
    odd = suite("a\x07\t\ud800\uffff", "b\x1f")
    shown = [e.text or "" for e in ElementTree.fromstring(render_chart(odd)).iter()]
    assert any("a\ufffd\t\ufffd\ufffd" in text for text in shown)
    page = render_page(odd)
    assert "b\ufffd" in page
    assert not {"\x07", "\x1f", "\ud800", "\uffff"} & set(page)


def test_chart_is_xml_and_inside_of_its_frame() -> None:
    root = ElementTree.fromstring(render_chart(suite(HOSTILE, HOSTILE)))
    width = float(root.attrib["width"])
    places = [float(e.attrib[k]) for e in root.iter() for k in ("x", "x1", "x2") if k in e.attrib]
    assert len(places) > 40
    assert all(0 <= x <= width for x in places)
    titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 5
    assert all("of cuBLAS (torch.mm)" in t or "of quack (quack)" in t for t in titles if t)


@pytest.mark.parametrize(("us", "edge"), [(0.05, 730), (10_000.0, 400)])
def test_speeds_beyond_the_axis_stay_at_its_end(us: float, edge: float) -> None:
    root = ElementTree.fromstring(render_chart(parsed(problem(us), problem(10.0))))
    reach = [e for e in root.iter() if e.attrib.get("class") == "s0 reach"]
    assert float(reach[0].attrib["x1"]) == pytest.approx(edge, abs=3)


def test_a_hundred_problems_and_several_kernels_fit() -> None:
    problems = [problem(8.0 + m / 100, m) for m in range(1, 101)]
    for p in problems:
        p["candidates"].insert(1, {**p["candidates"][0], "name": "pingpong"})
    root = ElementTree.fromstring(render_chart(parsed(*problems)))
    assert float(root.attrib["height"]) > 200 * 20
    texts = ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "m=7 n=64 k=64pingpong" in texts


def test_nothing_to_draw_is_an_error() -> None:
    only = problem(8.0)
    del only["candidates"][0]
    with pytest.raises(CutegenError, match="nothing to draw"):
        render_chart(parsed(only))


def test_files_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(suite().model_dump(by_alias=True)))
    svg, html = tmp_path / "out" / "chart.svg", tmp_path / "page.html"
    assert main(["report", str(file), "--svg", str(svg), "--html", str(html)]) == 0
    assert (svg.read_text(), html.read_text()) == (render_chart(suite()), render_page(suite()))
    assert main(["report", str(file), "--svg", str(tmp_path)]) == 2
