"""What every command prints with: results on stdout, everything about the run on stderr, colour only on a terminal and
not where NO_COLOR is set."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from cutegen.diagnostics import CutegenError, SpecError, suggest
from cutegen.files import LOCK_SUFFIX

_MARKS = (
    (re.compile(r"(?:^|(?<=: ))(?:internal )?error(?:\[[a-z0-9-]+\])?:", re.MULTILINE), "red"),
    (re.compile(r"(?<=\| ) *\^+$", re.MULTILINE), "red"),
    (re.compile(r"^  = help:", re.MULTILINE), "cyan"),
)

LEAST_COLUMN = 12  # characters that a column of text keeps at least

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")


class FiniteRange(click.FloatRange):
    """A range that `nan`, which no comparison excludes, is not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is no number", param, ctx)
        return found


def json_option(command: Command) -> Command:
    """`--json`, given to the command as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(command)


def specs_argument(command: Command) -> Command:
    """`SPEC...`, given to the command as `specs`, a list of files: a folder stands for the specs in it."""
    return click.argument(
        "specs",
        nargs=-1,
        required=True,
        metavar="SPEC...",
        callback=lambda ctx, parameter, value: spec_files(map(Path, value)),
    )(command)


def spec_argument(command: Command) -> Command:
    """`SPEC`, given to the command as `spec`, a file."""
    return click.argument("spec", metavar="SPEC", callback=lambda ctx, parameter, value: spec_file(Path(value)))(
        command
    )


def spec_file(path: Path) -> Path:
    """The path itself; CutegenError (exit 2) when there is no such file."""
    if (path / "plan.py").is_file():
        raise CutegenError(f"{path} is a generated package", "name the spec that it was rendered from", exit_code=2)
    if path.is_dir():
        raise CutegenError(f"{path} is a folder", "name one spec in it", exit_code=2)
    if path.suffix == ".py" and path.is_file():
        raise CutegenError(f"{path} is Python, no spec", "`check` and `bench` take Python files", exit_code=2)
    if path.exists():
        return path
    folder = path.parent if path.parent.is_dir() else Path()
    inside = Path("specs", f"{path.stem}.yaml")
    near = f"did you mean `{inside}`?" if inside.is_file() else suggest(path.name, [p.name for p in specs_in(folder)])
    hint = near or "`cutegen list` shows the specs, `cutegen new gemm NAME` writes one"
    raise CutegenError(f"{path} does not exist", hint, exit_code=2)


def spec_files(paths: Iterable[Path]) -> list[Path]:
    """Files, and for a folder the specs in it, each once; CutegenError (exit 2) for what is missing or empty."""
    found: dict[Path, None] = {}
    for path in without_locks(paths):
        folder = path.is_dir() and not (path / "plan.py").is_file()
        inside = specs_in(path) if folder else [spec_file(path)]
        if not inside:
            raise CutegenError(
                f"no spec (*.yaml, *.yml) in the folder {path}", "name another folder, or a spec", exit_code=2
            )
        found.update(dict.fromkeys(inside))
    return list(found)


def without_locks(paths: Iterable[Path]) -> list[Path]:
    """Less the locks whose specs are among the paths, too: a shell makes both of `specs/*.yaml`."""
    given = list(paths)
    beside = {path.with_suffix(LOCK_SUFFIX) for path in given if path.suffix}
    return [path for path in given if path not in beside]


def specs_in(folder: Path) -> list[Path]:
    """The specs of a folder, sorted; locks lie beside them and are none."""
    found = [*folder.glob("*.yaml"), *folder.glob("*.yml")]
    return sorted(p for p in found if p.is_file() and not p.name.endswith(LOCK_SUFFIX))


def written_files(files: Sequence[Path]) -> str:
    """What a render did, in words."""
    return f"{len(files)} file{'s' * (len(files) != 1)} written" if files else "unchanged"


def keep_apart(written: Mapping[str, Path | None], read: Iterable[Path | None]) -> None:
    """CutegenError (exit 2): of the files that a command writes, by option, one is read or written otherwise, too."""
    taken = {path.resolve(): "is read by this command" for path in read if path}
    for option, path in written.items():
        if path is None or (path.exists() and not path.is_file()):
            continue  # a device or pipe, such as /dev/null
        if said := taken.get(path.resolve()):
            raise CutegenError(f"{option} {path}: {said}, and would be overwritten", "name another file", exit_code=2)
        taken[path.resolve()] = f"is written by {option}"


def say(text: str = "") -> None:
    """A line of the result, on stdout."""
    click.echo(text, color=_colour())


def note(text: str) -> None:
    """A line about the run, on stderr; the marks of an error report are coloured."""
    for pattern, colour in _MARKS:
        text = pattern.sub(click.style(r"\g<0>", fg=colour, bold=True), text)
    click.echo(text, err=True, color=_colour())


def _colour() -> bool | None:
    """None: where the stream is a terminal. False: nowhere, because the environment says so (https://no-color.org)."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def print_json(result: object) -> None:
    """The result as JSON on stdout; nothing else may go there in this mode."""
    click.echo(json.dumps(result, indent=2, default=str))


def verdict(ok: bool, word: str = "") -> str:
    """`ok` in green or `failed` in red, or another word in that colour."""
    return click.style(word or ("ok" if ok else "failed"), fg="green" if ok else "red")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns aligned by blanks; columns whose cells are all numbers are aligned to the right. On a terminal, text that
    does not fit goes on below, in its column."""
    cells = [[str(c) for c in row] for row in rows]
    columns = list(zip(header, *cells))
    right = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(header))]
    folds = [not r and click.unstyle("".join(c)) == "".join(c) for r, c in zip(right, columns)]
    widths = _widths(columns, folds)

    def line(row: Sequence[str]) -> str:
        parts = [_fold(c, w) if f else [c] for c, w, f in zip(row, widths, folds)]
        return "\n".join(_aligned(part, widths, right) for part in itertools.zip_longest(*parts, fillvalue=""))

    return "\n".join([click.style(line(header), bold=True), *map(line, cells)])


def paragraph(text: str) -> str:
    """A line; what a terminal has no room for goes on below, indented by two more."""
    indent = " " * (len(text) - len(text.lstrip()))
    first, *rest = _fold(text[len(indent) :], _terminal_width() - len(indent) - 2)
    return "\n".join([indent + first, *(f"{indent}  {line}" for line in rest)])


def _widths(columns: Sequence[Sequence[str]], folds: Sequence[bool]) -> list[int]:
    """Characters of each column: of its widest cell; on a terminal less for the widest that fold, if that suffices."""
    widths = [max(len(click.unstyle(c)) for c in column) for column in columns]
    room = _terminal_width() - 2 * len(columns)
    words = [max(len(word) for cell in column for word in (*cell.split(), "")) for column in columns]
    least = [min(n, max(w, LEAST_COLUMN)) if f else n for w, f, n in zip(words, folds, widths)]
    if sum(least) > room:
        return widths
    while sum(widths) > room:
        widths[max(range(len(widths)), key=lambda i: widths[i] if widths[i] > least[i] else 0)] -= 1
    return widths


def _terminal_width() -> int:
    """Characters that fit beside each other; lines that do not go to a terminal stay whole."""
    if sys.stdout is None or not sys.stdout.isatty():
        return sys.maxsize
    import shutil  # late: a render prints no table

    return shutil.get_terminal_size().columns


def _fold(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _aligned(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    blanks = [" " * (w - len(click.unstyle(c))) for c, w in zip(cells, widths)]
    return "  ".join(b + c if r else c + b for c, b, r in zip(cells, blanks, right)).rstrip()


def _is_number(cell: str) -> bool:
    return cell.strip("-+%x ").replace(".", "").replace(",", "").isdigit() or cell in ("-", "")


def attempt(action: Callable[[Path], Result], path: Path) -> Result | CutegenError:
    """The result of action(path), or the error it raised, so that one bad file does not hide the others."""
    try:
        return action(path)
    except CutegenError as error:
        return error


def worst(results: Iterable[object], otherwise: int = 0) -> int:
    """The exit code of several results of `attempt`: the highest of an error, or `otherwise` where none is one."""
    return max((result.exit_code for result in results if isinstance(result, CutegenError)), default=otherwise)


def findings(error: CutegenError | None) -> list[dict[str, object]]:
    """An error as JSON: the findings of a SpecError, or one without rule and place."""
    if error is None:
        return []
    if isinstance(error, SpecError):
        left: dict[str, object] = {"rule": None, "message": f"{error.more} more findings", "file": None, "line": None}
        return [*(d.to_json() for d in error.diagnostics), *([left] if error.more else [])]
    return [{"rule": None, "message": error.message, "file": None, "line": None, "remedy": error.remedy}]
