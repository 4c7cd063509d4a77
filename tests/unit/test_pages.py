"""Tables of pages: made from stored results and from locks, written into marked sections, and compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench_results import GPU, NOISE, candidate, problem, result
from gemm_specs import PLAIN

from cutegen.cli import main
from cutegen.cli.commands import COMMANDS, HIDDEN
from cutegen.cli.pages import fill_sections
from cutegen.diagnostics import CutegenError
from cutegen.report.markdown import Source, View, markdown
from cutegen.report.result import parse_result
from cutegen.report.stored import pack
from cutegen.resolve import lock_path, resolve_file
from cutegen.resolve.winners import DEFAULT, Winner


def sources(*results: Any) -> list[Source]:
    return [Source(f"measurements/r{i}.json", parse_result(r)) for i, r in enumerate(results)]


def rows(text: str) -> list[list[str]]:
    """The cells of a table, its header first."""
    return [[c.strip() for c in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| ")]


TWO_ROWS = result(problem(8.0, 16, "qkv"), problem(12.5, 16, "up"), problem(5.0, 64, "qkv"))


def test_a_summary_has_geomean_least_and_what_is_below_1() -> None:
    header, rule, row = rows(markdown(sources(TWO_ROWS), View()))
    assert header == ["kernel", "relative to", "problems", "geomean speed", "least", "below 1"]
    assert rule[0] == "---"
    assert row[:3] == ["`gemm`", "cuBLAS", "3"]
    assert row[3].startswith("1.260 [1.2")
    assert row[4:] == ["0.800", "1"]


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        (("m",), [("16", "2", "1"), ("64", "1", "0"), ("all", "3", "1")]),
        (("name",), [("qkv", "2", "0"), ("up", "1", "1"), ("all", "3", "1")]),
        (("n", "k"), [("64, 64", "3", "1"), ("all", "3", "1")]),
    ],
)
def test_a_summary_by_extents_or_names(by: tuple[str, ...], groups: list[tuple[str, str, str]]) -> None:
    _, _, *found = rows(markdown(sources(TWO_ROWS), View(by)))
    assert [(r[2], r[3], r[6]) for r in found] == groups


def test_every_problem_has_a_row_where_that_is_asked_for() -> None:
    header, _, *found = rows(markdown(sources(TWO_ROWS), View(full=True)))
    assert header[:6] == ["problem", "m", "n", "k", "kernel", "us"]
    assert header[-1] == "x cuBLAS"
    assert [(r[0], r[1]) for r in found] == [("qkv", "16"), ("up", "16"), ("qkv", "64")]
    assert found[1][-1].startswith("0.800 [0.")


def test_several_results_together() -> None:
    other = result(problem(5.0, 128), problem(5.0, 256))
    _, _, row = rows(markdown(sources(TWO_ROWS, other), View()))
    assert row[2] == "5"
    h100 = result(problem(5.0, 16), environment={"gpu": GPU | {"name": "NVIDIA H100"}})
    header, _, first, second = rows(markdown(sources(TWO_ROWS, h100), View()))
    assert header[0] == "GPU"
    assert (first[0], second[0]) == ("NVIDIA H200, 700 W", "NVIDIA H100, 700 W")


def test_runs_of_unequal_rounds_are_put_together() -> None:
    baseline = [10.0] * 15
    long = problem(8.0, 512) | {
        "candidates": [candidate("gemm", [8.0] * 15, baseline), candidate("torch.mm", baseline)]
    }
    _, _, row = rows(markdown(sources(result(problem(8.0, 16), long)), View()))
    assert (row[2], row[3][:5]) == ("2", "1.250")


def test_each_result_is_named_with_its_machine_and_command() -> None:
    text = markdown(
        sources(result(problem(8.0), environment={"gpu": GPU, "torch": "2.11", "measured_at": "2026-11-24T08"})), View()
    )
    last = text.splitlines()[-1]
    assert last.startswith("- [r0.json](measurements/r0.json): NVIDIA H200, 700 W; measured 2026-11-24; PyTorch 2.11; ")
    assert last.endswith("9 rounds of 60 ms. Again: `cutegen bench gemm.yaml`")


def test_a_command_that_names_many_shapes_is_in_the_file_alone() -> None:
    text = markdown(
        sources(result(problem(8.0), command="cutegen bench gemm.yaml" + " --shape m=1,n=8,k=8" * 60)), View()
    )
    assert text.endswith(" ms. The file has the command\n")


def test_nothing_that_speaks_against_a_result_is_left_out() -> None:
    wrong = result(
        problem(8.0, right=False), problem(5.0, 32) | {"first": problem(11.0)["candidates"]}, floor=0.98,
        complete=False, notes=["another process came onto the GPU: do not trust these figures"],
        left_out=[{"shape": {"m": 1}, "name": "", "reasons": {"": "no"}}],
    )  # fmt: skip
    text = markdown(sources(wrong), View(full=True))
    assert "`gemm` (WRONG)" in text
    for said in (
        "WRONG results of `gemm` on 1 problems", "stopped before it was complete", "do not trust these figures",
        "Not measured: 1 problems of 3", "measured again, because a lower end was under 0.98",
    ):  # fmt: skip
        assert said in text


def test_slow_problems_alone_the_slowest_first() -> None:
    slower = result(problem(20.0, 128), problem(12.5, 16), problem(5.0, 64))
    _, _, *found = rows(markdown(sources(slower), View(below=1)))
    assert [r[0] for r in found] == ["128", "16"]
    assert "No speed is below 0.2." in markdown(sources(slower), View(below=0.2))


def test_kernels_together_are_one_row() -> None:
    p = problem(8.0, 32)
    p["candidates"][0]["name"] = "other"
    results = sources(result(problem(12.5, 16)), result(p))
    assert len(rows(markdown(results, View()))) == 4
    _, _, row = rows(markdown(results, View(together=True)))
    assert row[:3] == ["2 kernels", "cuBLAS", "2"]
    assert row[3].startswith("1.000 [")


def test_files_of_one_machine_share_a_line() -> None:
    text = markdown(sources(result(problem(8.0, 16)), result(problem(8.0, 32))), View())
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(lines) == 1
    assert lines[0].startswith("- [r0.json](measurements/r0.json), [r1.json](measurements/r1.json): ")
    assert lines[0].endswith("Each file has its command")


def test_launches_behind_different_kernels_are_kept_apart() -> None:
    plain = result(problem(8.0, 32), behind="plain")
    assert "behind a plain kernel" in markdown(sources(plain), View())
    assert "behind themselves" in markdown(sources(result(problem(8.0, 32), behind="itself")), View())
    with pytest.raises(CutegenError, match="timed behind nothing and plain"):
        markdown(sources(result(problem(8.0, 16)), plain), View())


def test_only_some_kernels_or_libraries() -> None:
    p = problem(8.0)
    other = candidate("other", [4 * n for n in NOISE], [10 * n for n in NOISE])
    p["candidates"].append(other | {"speeds": other["speeds"] | {"quack": {**other["speed"], "against": "torch.mm"}}})
    text = markdown(sources(result(p)), View(kernels=("other",), against=("quack",)))
    assert [r[:2] for r in rows(text)[2:]] == [["`other`", "quack"]]
    with pytest.raises(CutegenError, match="these results have no `othr`") as caught:
        markdown(sources(result(p)), View(kernels=("othr",)))
    assert "other" in caught.value.remedy


@pytest.mark.parametrize(
    ("results", "view", "message"),
    [
        ((TWO_ROWS, TWO_ROWS), View(), "gemm on .* is in measurements/r0.json and in measurements/r1.json"),
        ((TWO_ROWS,), View(by=("x",)), "has no dim `x` to group by"),
        ((result(),), View(), "no kernel of these results was measured against another library"),
    ],
)
def test_what_cannot_be_shown_is_refused(results: tuple[Any, ...], view: View, message: str) -> None:
    with pytest.raises(CutegenError, match=message) as caught:
        markdown(sources(*results), view)
    assert caught.value.exit_code == 2


def test_names_end_no_cell_and_no_section() -> None:
    text = markdown(sources(result(problem(8.0, 1, "a | b\n<!-- /report -->"))), View(full=True))
    assert "a \\| b &lt;!-- /report -->" in text
    assert "\n<!--" not in text


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with docs, a stored result and a page about it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "measurements").mkdir(parents=True)
    (tmp_path / "docs" / "measurements" / "one.json").write_text(pack(TWO_ROWS))
    assert main(["docs"]) == 0
    return tmp_path


ONE = "<!-- report: docs/measurements/one.json -->"
SECTION = "# Title\n\n<!-- report: docs/measurements/one.json --by m -->\nold\n<!-- /report -->\n\nMore.\n"


def test_a_file_and_a_marked_section_are_all_it_takes(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, readme = site / "docs" / "speed" / "page.md", site / "README.md"
    page.parent.mkdir()
    for path in (page, readme):
        path.write_text(SECTION)
    assert main(["docs", "--check"]) == 1
    assert page.read_text() == SECTION
    said = capsys.readouterr().out
    assert "README.md" in said
    assert "page.md" in said
    assert main(["docs"]) == 0
    assert main(["docs", "--check"]) == 0
    text = page.read_text()
    assert text.startswith("# Title\n\n<!-- report: docs/measurements/one.json --by m -->\n\n| kernel | ")
    assert text.endswith("\n\n<!-- /report -->\n\nMore.\n")
    assert "old" not in text
    assert "[one.json](../measurements/one.json)" in text
    assert "[one.json](docs/measurements/one.json)" in readme.read_text()
    (site / "docs" / "measurements" / "one.json").write_text(pack(result(problem(8.0))))
    assert main(["docs", "--check"]) == 1  # other data, another table


def test_the_same_words_print_the_table(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = site / "docs" / "page.md"
    page.write_text(SECTION)
    capsys.readouterr()
    assert main(["report", "docs/measurements/one.json", "--by", "m", "--markdown"]) == 0
    shown = rows(capsys.readouterr().out)
    filled = fill_sections(page, site)
    assert filled
    assert rows(filled) == shown


def test_examples_in_code_and_pages_without_sections_are_left_alone(site: Path) -> None:
    page = site / "docs" / "page.md"
    page.write_text(f"```\n{SECTION}```\n")
    assert fill_sections(page, site) in (None, page.read_text())
    page.write_text("# Title\n")
    assert fill_sections(page, site) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n<!-- report: docs/measurements/one.json -->\n", "page.md:2: the section that begins here does not end"),
        (
            "<!-- report: docs/measurements/one.json -->\n<!-- report: b.json -->\n<!-- /report -->\n",
            "page.md:1: the section that begins",
        ),
        ("<!-- /report -->\n", "page.md:1: this begins no section"),
        ("<!-- report: none.json -->\n<!-- /report -->\n", "page.md:1: .*none.json: No such file"),
        ("<!-- report: -->\n<!-- /report -->\n", "page.md:1: "),
        ("<!-- report: docs/measurements/one.json --wat -->\n<!-- /report -->\n", "page.md:1: No such option.*--wat"),
        ("<!-- report: docs/measurements/one.json --html x -->\n<!-- /report -->\n", "page.md:1: `html` goes without"),
        ("<!-- report: 'docs -->\n<!-- /report -->\n", "page.md:1: No closing quotation"),
        ("<!-- report: docs/measurements/one.json --by x -->\n<!-- /report -->\n", "page.md:1: .*has no dim `x`"),
        ("<!-- winners: nowhere -->\n<!-- /winners -->\n", "page.md:1: .*nowhere does not exist"),
        ("<!-- chart: docs/measurements/one.json -->\n<!-- /chart -->\n", "page.md:1: .*one.json: "),
        ("<!-- chart: none.json -->\n<!-- /chart -->\n", "page.md:1: .*none.json"),
        ("<!-- commands: git -->\n<!-- /commands -->\n", "page.md:1: the commands are those of `cutegen`"),
        ("<!-- winners: docs/measurements/one.json -->\n<!-- /winners -->\n", "page.md:1: .*is not what `cutegen tune"),
        ("<!-- winners: docs --wat -->\n<!-- /winners -->\n", "page.md:1: `--wat` is not an option"),
    ],
)
def test_a_section_that_cannot_be_made_is_named(site: Path, text: str, message: str) -> None:
    page = site / "docs" / "page.md"
    page.write_text(text)
    with pytest.raises(CutegenError, match=message):
        fill_sections(page, site)
    assert main(["docs"]) in (1, 2)
    assert page.read_text() == text


def test_winners_of_locks(site: Path) -> None:
    spec = site / "specs" / "product.yaml"
    spec.parent.mkdir()
    spec.write_text(PLAIN)
    tilings = {"flat": {"tiling.tile": [128, 64, 64]}}

    def won(m: int, tiling: str, median: float, unused: str = "") -> Winner:
        calls, speed = {"m": (1, m), "n": 4096, "k": 4096}, (median - 0.01, median, median + 0.01)
        tools = "dsl 4.8.1 cu13, kernels 1"
        return Winner("NVIDIA H200", calls, tiling, 8.25, None, "torch.mm", speed, "abc", tools, "0" * 16, unused)

    winners = [won(16, "flat", 1.21), won(64, DEFAULT, 0.9), won(128, "flat", 1.0), won(256, "flat", 3.0, "stale")]
    lock_path(spec).write_text(resolve_file(spec).lock.with_winners(tilings, winners).to_text())
    page = site / "docs" / "page.md"
    page.write_text(
        "<!-- winners: specs -->\n<!-- /winners -->\n<!-- winners: specs/product.yaml --below -->\n<!-- /winners -->\n"
    )
    filled = fill_sections(page, site)
    assert filled
    _, _, row, _, _, below = rows(filled)
    assert row[0] == "[product](../specs/product.lock.yaml)"
    assert row[3:] == ["3", "1.029", "1.019", "0.900", "1"]  # a winner that no call runs does not count
    assert below == [
        "product",
        "m 64, n 4096, k 4096",
        "NVIDIA H200",
        "`default`",
        "8.2",
        "`torch.mm`",
        "0.900 [0.890, 0.910]",
    ]


def test_options_of_markdown_go_with_it(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = "docs/measurements/one.json"
    for words in (
        ["--by", "m"],
        ["--full"],
        ["--below", "1"],
        ["--together"],
        ["--kernel", "gemm"],
        ["--against", "cuBLAS"],
    ):
        assert main(["report", one, *words]) == 2
        assert "has no effect without --markdown" in capsys.readouterr().err
    for words in (["--html", "x.html"], ["--json"], ["-o", "x.json"], ["--compare", one]):
        assert main(["report", one, "--markdown", *words]) == 2
        assert "contradict each other" in capsys.readouterr().err
    assert main(["report", one, one]) == 2
    assert "several results are shown together by --markdown only" in capsys.readouterr().err


BAR = {
    "label": "GEMM <&>",
    "does": "not tuned",
    "files": ["docs/measurements/o*.json"],
    "against": "cuBLAS",
    "peer": "cuBLAS",
}


def write_chart(site: Path, *bars: dict[str, Any]) -> None:
    (site / "docs" / "chart.json").write_text(json.dumps({"title": "Speeds", "bars": bars}))


def test_a_chart_of_stored_results(site: Path) -> None:
    write_chart(site, BAR)
    readme = site / "README.md"
    readme.write_text("<!-- chart: docs/chart.json -->\n<!-- /chart -->\n")
    assert main(["docs", "--check"]) == 1
    assert main(["docs"]) == 0
    assert main(["docs", "--check"]) == 0
    light, dark = ((site / "docs" / f"chart-{theme}.svg").read_text() for theme in ("light", "dark"))
    for picture in (light, dark):
        ElementTree.fromstring(picture)
        assert "GEMM &lt;&amp;&gt;" in picture
        assert "not tuned; 3 problems, H200" in picture
        assert "1.26x cuBLAS" in picture
        assert "prefers-color-scheme" not in picture  # which page it is on, a picture cannot know
    assert light != dark
    text = readme.read_text()
    assert '<img src="docs/chart-light.svg"' in text
    assert 'srcset="docs/chart-dark.svg"' in text
    assert "the slowest problem 0.80x" in text
    (site / "docs" / "measurements" / "one.json").write_text(pack(result(problem(8.0))))
    assert main(["docs", "--check"]) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"against": "cuBLOS"}, "these results have no `cuBLOS`"),
        ({"files": ["none.json"]}, "none.json does not exist"),
        ({"files": []}, "chart.json: .*files"),
        ({"colour": "red"}, "chart.json: .*colour"),
    ],
)
def test_a_chart_that_cannot_be_drawn(
    site: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    write_chart(site, BAR | change)
    assert main(["docs"]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not list(site.glob("docs/*.svg"))


def test_winners_of_a_tune(site: Path) -> None:
    entry = {
        "device": "NVIDIA H100 80GB", "calls": {"m": [1, 16], "n": 4096, "k": 4096}, "tiling": "flat", "us": 8.25,
        "gain": None, "baseline": "torch.mm", "speed": [1.1, 1.2, 1.3], "beside": "abc", "toolchain": "dsl 4.8.1",
        "measured": "0" * 16, "unused": "",
    }  # fmt: skip
    tuned = {"spec": "specs/kernel.yaml", "problems": [], "winners": [entry, entry | {"speed": [0.8, 0.9, 1.0]}]}
    (site / "docs" / "measurements" / "tune.json").write_text(json.dumps(tuned))
    page = site / "docs" / "page.md"
    page.write_text("<!-- winners: docs/measurements/tune.json --all -->\n<!-- /winners -->\n")
    _, _, first, second = rows(fill_sections(page, site) or "")
    assert (first[1], first[-1], second[-1]) == ("m 16, n 4096, k 4096", "1.200 [1.100, 1.300]", "0.900 [0.800, 1.000]")
    write_chart(site, BAR | {"files": ["docs/measurements/tune.json"], "against": "torch.mm"})
    assert main(["docs"]) == 0
    assert "2 problems, H100" in (site / "docs" / "chart-dark.svg").read_text()
    (site / "docs" / "measurements" / "tune.json").write_text(json.dumps(tuned | {"winners": [{"device": 1}]}))
    with pytest.raises(CutegenError, match=r"tune\.json is damaged"):
        fill_sections(page, site)


def test_the_commands(site: Path) -> None:
    page = site / "docs" / "page.md"
    page.write_text("<!-- commands: cutegen -->\n<!-- /commands -->\n")
    found = [row[0] for row in rows(fill_sections(page, site) or "")[2:]]
    assert found == [f"`{name}`" for name in COMMANDS if name not in HIDDEN]
