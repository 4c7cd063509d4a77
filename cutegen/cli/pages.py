"""Sections of README.md and of pages of docs/ that are generated, and the chart of README.md.

    <!-- report: docs/measurements/NAME.json --by m -->
    <!-- /report -->

The first line has the words of `cutegen report ... --markdown`, paths from the folder that docs/ is in; `*` in a path
stands for any part of a name. What stands between the two lines is written again. There are also

    <!-- winners: SPEC... -->      what locks, or files of `tune --json`, say of their winners
    <!-- chart: FILE -->           the chart that a JSON file lists (report/headline.py)
    <!-- commands: cutegen -->     the commands
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from markupsafe import escape

from cutegen.cli.report import report_
from cutegen.cli.tables import draw_tables, link_from
from cutegen.diagnostics import CutegenError

_BEGIN = re.compile(r"^<!-- (report|winners|chart|commands): (.*?) -->$")
_MARK = re.compile(r"^<!-- /?(?:report|winners|chart|commands)\b")


def list_pages(folder: Path) -> list[Path]:
    """Those that may have generated sections: README.md next to the folder of the docs, and all in it."""
    readme = folder.resolve().parent / "README.md"
    return [*([readme] if readme.is_file() else []), *sorted(folder.glob("**/*.md"))]


def fill_sections(page: Path, root: Path) -> str | None:
    """The text of a page with its generated sections written again; None where it has none. root: what paths in marks
    are relative to. CutegenError: a section does not end, or cannot be made."""
    lines = page.read_text(encoding="utf-8").splitlines()
    if not any(map(_MARK.match, lines)):
        return None
    return "\n".join(_fill(page, root, lines)) + "\n"


def _fill(page: Path, root: Path, lines: Sequence[str]) -> Iterator[str]:
    end, opened, fenced = "", 0, False
    for number, line in enumerate(lines, 1):
        fenced ^= line.startswith("```")
        begin = None if fenced else _BEGIN.match(line)
        if end:
            if line == end:
                end = ""
                yield line
            elif begin or _MARK.match(line):
                break
            continue
        yield line
        if begin:
            what, words = begin.groups()
            end, opened = f"<!-- /{what} -->", number
            yield from ("", *_draw(page, root, what, words, number).splitlines(), "")
        elif not fenced and _MARK.match(line):
            remedy = f"begin with <!-- WORD: ... -->, end with <!-- /WORD -->; WORD is one of {', '.join(_DRAW)}"
            raise CutegenError(f"{page}:{number}: this begins no section", remedy)
    if end:
        raise CutegenError(f"{page}:{opened}: the section that begins here does not end", f"write {end} below it")


def _draw(page: Path, root: Path, what: str, words: str, number: int) -> str:
    try:
        return _DRAW[what](shlex.split(words), page, root)
    except (click.ClickException, ValueError) as error:
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise CutegenError(f"{page}:{number}: {said}", "the words are those of `cutegen report --markdown`") from None
    except CutegenError as error:
        raise CutegenError(f"{page}:{number}: {error.message}", error.remedy) from None


def _draw_report(words: Sequence[str], page: Path, root: Path) -> str:
    from cutegen.report.headline import expand_files

    expanded = [file for word in words for file in expand_files(word, root)]
    with report_.make_context("report", expanded, resilient_parsing=False) as context:
        given = context.params
    tables = {key: given.pop(key) for key in ("files", "by", "full", "below", "together", "kernels", "libraries")}
    extra = [key for key, value in given.items() if context.get_parameter_source(key) == _GIVEN and key != "markdown"]
    if extra:
        raise ValueError(f"`{extra[0]}` goes without --markdown")
    return draw_tables(**tables, page=page, root=root)


_GIVEN = click.core.ParameterSource.COMMANDLINE


def _draw_winners(words: Sequence[str], page: Path, root: Path) -> str:
    """Words: specs, folders of them and files of `tune --json`; --all for a row of each, --below for those below 1,
    --gains for how much faster than what ran before."""
    from cutegen.config import Config
    from cutegen.report.winners import full_table, gain_table, read_locks, read_tune, slower_table, summary_table
    from cutegen.resolve.lock import lock_path

    tables = {"--below": slower_table, "--all": full_table, "--gains": gain_table}
    options = [word for word in words if word.startswith("-")]
    if unknown := [word for word in options if word not in tables]:
        raise ValueError(f"`{unknown[0]}` is not an option of a list of winners: there are --below, --all and --gains")
    given = [root / word for word in words if word not in options]
    if missing := [path for path in given if not path.exists()]:
        raise ValueError(f"{missing[0]} does not exist")
    tuned = [path for path in given if path.suffix == ".json"]
    others = [path for path in given if path not in tuned]
    specs = [spec for path in others for spec in (Config(path).find_specs(path) if path.is_dir() else [path])]
    locks = read_locks([(spec, link_from(lock_path(spec), page)) for spec in specs])
    locks += [read_tune(path, link_from(path, page)) for path in tuned]
    return "\n".join(tables[options[0]](locks) if options else summary_table(locks))


def _draw_chart(words: Sequence[str], page: Path, root: Path) -> str:
    from cutegen.report.headline import read_bars

    if len(words) != 1:
        raise ValueError("a chart is made from one file")
    title, bars = read_bars(root / words[0], root)
    dark, light = (link_from(_picture_path(root / words[0], theme), page) for theme in ("dark", "light"))
    says = escape(f"{title}. {'. '.join(bar.says for bar in bars)}.")
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{dark}">\n'
        f'  <img src="{light}" alt="{says}">\n</picture>\n'
    )


def draw_charts(folder: Path) -> dict[Path, str]:
    """The pictures of the chart that `chart.json` of the docs lists, one for each theme; none where there is none."""
    listed = folder / "chart.json"
    if not listed.is_file():
        return {}
    from cutegen.report.headline import THEMES, read_bars, render_headline

    title, bars = read_bars(listed, folder.resolve().parent)
    return {_picture_path(listed, theme): render_headline(title, bars, theme) for theme in THEMES}


def _picture_path(listed: Path, theme: str) -> Path:
    return listed.with_name(f"{listed.stem}-{theme}.svg")


def _draw_commands(words: Sequence[str], page: Path, root: Path) -> str:
    from cutegen.cli.commands import GROUPS

    if list(words) != ["cutegen"]:
        raise ValueError("the commands are those of `cutegen`")
    rows = [(name, entry.sentence) for entries in GROUPS.values() for name, entry in entries.items()]
    return "\n".join(["| command | does |", "| --- | --- |", *(f"| `{name}` | {does} |" for name, does in rows)])


_DRAW = {"report": _draw_report, "winners": _draw_winners, "chart": _draw_chart, "commands": _draw_commands}
