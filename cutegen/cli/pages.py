"""Sections of README.md and of pages of docs/ that are generated: from stored results and from the winners of locks.

    <!-- report: docs/measurements/NAME.json --by m -->
    <!-- /report -->

The first line has the words of `cutegen report ... --markdown`, paths from the folder that docs/ is in. `<!-- winners:
SPEC... -->` lists what locks say of their winners. What stands between the two lines is written anew.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from cutegen.diagnostics import CutegenError

_BEGIN = re.compile(r"^<!-- (report|winners): (.*?) -->$")
_MARK = re.compile(r"^<!-- /?(?:report|winners)\b")


def draw_tables(
    files: Sequence[Path], by: str | None, full: bool, kernels: Sequence[str], libraries: Sequence[str],
    page: Path | None = None, root: Path = Path(),
) -> str:  # fmt: skip
    """Of the results in these files, below `root`. page: where the tables will stand; links are relative to it.
    CutegenError (exit 2): a file is no result, or there is nothing to show."""
    from cutegen.report.markdown import Source, View, markdown
    from cutegen.report.result import load_result

    dims = tuple(filter(None, (by or "").replace(" ", "").split(",")))
    sources = [Source(_link(root / file, page), load_result(root / file)) for file in files]
    return markdown(sources, View(dims, full, tuple(kernels), tuple(libraries)))


def _link(file: Path, page: Path | None) -> str:
    return Path(os.path.relpath(file, page.parent) if page else file).as_posix()


def list_pages(folder: Path) -> list[Path]:
    """Those that may have generated sections: README.md beside the folder of the docs, and all in it."""
    readme = folder.resolve().parent / "README.md"
    return [*([readme] if readme.is_file() else []), *sorted(folder.glob("**/*.md"))]


def fill_sections(page: Path, root: Path) -> str | None:
    """The text of a page with its generated sections written anew; None where it has none. root: what paths in marks
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
            remedy = "begin with <!-- report: FILE... --> or <!-- winners: SPEC... -->, end with <!-- /report --> or "
            raise CutegenError(f"{page}:{number}: this begins no section", f"{remedy}<!-- /winners -->")
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
    from cutegen.cli.report import report_

    with report_.make_context("report", list(words), resilient_parsing=False) as context:
        given = context.params
    tables = {key: given.pop(key) for key in ("files", "by", "full", "kernels", "libraries")}
    extra = [key for key, value in given.items() if context.get_parameter_source(key) == _GIVEN and key != "markdown"]
    if extra:
        raise ValueError(f"`{extra[0]}` goes without --markdown")
    return draw_tables(**tables, page=page, root=root)


_GIVEN = click.core.ParameterSource.COMMANDLINE


def _draw_winners(words: Sequence[str], page: Path, root: Path) -> str:
    """Words: specs, folders of them, and --below for the rows whose speed is below 1."""
    from cutegen.config import Config
    from cutegen.report.winners import read_locks, slower_table, summary_table
    from cutegen.resolve.lock import lock_path

    if unknown := [word for word in words if word.startswith("-") and word != "--below"]:
        raise ValueError(f"`{unknown[0]}` is not an option of a list of winners: there is --below")
    given = [root / word for word in words if not word.startswith("-")]
    if missing := [path for path in given if not path.exists()]:
        raise ValueError(f"{missing[0]} does not exist")
    specs = [spec for path in given for spec in (Config(path).find_specs(path) if path.is_dir() else [path])]
    locks = read_locks([(spec, _link(lock_path(spec), page)) for spec in specs])
    return "\n".join(slower_table(locks) if "--below" in words else summary_table(locks))


_DRAW = {"report": _draw_report, "winners": _draw_winners}
