"""README and docs say what is there: excerpts are from the files, links lead somewhere, commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from cutegen.cli import root
from cutegen.cli.commands import HIDDEN
from cutegen.cli.pages import fill_sections

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OF_FOLDERS = sorted(page for folder in ("docs", "examples") for page in (ROOT / folder).glob("**/*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *OF_FOLDERS]
COMMANDS = root.list_commands(click.Context(root))
EXCERPTS = re.findall(r"<!-- excerpt: (\S+) -->\n```\w*\n(.*?)```", README, re.DOTALL)


def list_anchors(page: Path) -> list[str]:
    """Of the headings of a page, as they are linked: equal ones are numbered."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = [re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in titles]
    return [a if (n := anchors[:i].count(a)) == 0 else f"{a}-{n}" for i, a in enumerate(anchors)]


def test_there_are_excerpts() -> None:
    assert [Path(path).suffix for path, _ in EXCERPTS] == [".yaml", ".py", ".yaml"]


@pytest.mark.parametrize(("path", "text"), EXCERPTS, ids=lambda value: value[:20])
def test_excerpts_are_from_the_file(path: str, text: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    for part in text.split("\n...\n"):
        assert part.strip("\n") in source


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8")):
        if not link.startswith(("http://", "https://")):
            target = page.parent / link if link else page
            assert target.exists(), link
            assert not anchor or target.is_dir() or anchor in list_anchors(target), f"{link}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_pages_show_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    shown = re.findall(r"\bcutegen ([a-z]+)", code) + re.findall(r"`cutegen ([a-z]+)", text)
    assert set(shown) <= set(COMMANDS)


def test_every_command_is_in_the_readme() -> None:
    table = README.partition("## Commands")[2].partition("##")[0]
    for command in set(COMMANDS) - set(HIDDEN):  # these are for those who write families, or change cutegen
        assert re.search(rf"`{command}\b", table), command


RESULTS = [ROOT / "README.md", ROOT / "docs" / "performance.md", *sorted((ROOT / "docs" / "performance").glob("*.md"))]
SCORED = "cost-model.md"  # its tables are compared with the stored times by test_cost_model_score.py


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.name)
def test_figures_are_made_from_data(page: Path) -> None:
    """Outside of generated sections no table has a ratio of speeds, and what sections have is what data says."""
    filled = fill_sections(page, ROOT)
    assert filled in (None, page.read_text(encoding="utf-8")), "run `cutegen docs`"
    text = re.sub(r"^<!-- (report|winners): .*?^<!-- /\1 -->$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert page.name == SCORED or not re.findall(r"^\|.*\b\d\.\d{2,3}\b.*$", text, re.M)


def test_notebooks_say_what_they_are() -> None:
    for page in sorted((ROOT / "docs" / "lab").glob("2*.md")):
        label = page.read_text(encoding="utf-8").split("\n\n")[1].replace("\n> ", " ")
        assert label.startswith("> A notebook"), page
        assert "cannot be recomputed" in label, page
