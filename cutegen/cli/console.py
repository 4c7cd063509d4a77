"""What every command prints with: results on stdout, everything about the run on stderr, colour on a terminal unless
--color or the environment says otherwise."""

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
from click.shell_completion import CompletionItem

from cutegen.cli.annotations import annotate
from cutegen.cli.stdin import STDIN, read_stdin
from cutegen.config import FILE, INCLUDE, SECTION, find_config
from cutegen.diagnostics import CutegenError, SpecError, plain_lines, printable_lines, suggest
from cutegen.files import LOCK_SUFFIX, lock_stem

_MARKS = (
    (re.compile(r"(?:^|(?<=: ))(?:internal )?error(?:\[[a-z0-9-]+\])?:", re.MULTILINE), "red"),
    (re.compile(r"(?<=\| ) *\^+$", re.MULTILINE), "red"),
    (re.compile(r"^  = help:", re.MULTILINE), "cyan"),
)

FORMAT = "format"  # of the object of a click context: json, github or text
OUTPUT = Path("generated")  # of packages, where nothing says so
COLOURS = ("auto", "always", "never")
_colours = "auto"

LEAST_COLUMN = 12  # characters that a column of text keeps at least

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")


class FiniteRange(click.FloatRange):
    """A range that `nan`, which no comparison excludes, is not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not a number", param, ctx)
        return found


def drop_winners_option(command: Command) -> Command:
    """`--drop-winners`, given to the command as `drop_winners`."""
    said = "Take winners out of the lock that no call runs by now; else they stay in it, marked."
    return click.option("--drop-winners", is_flag=True, help=said)(command)


def json_option(command: Command) -> Command:
    """`--json`, given to the command as `as_json`; so is `--output-format json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the result as JSON.",
        callback=lambda ctx, parameter, value: value or output_format() == "json",
    )(command)  # fmt: skip


def format_option(command: Command) -> Command:
    """`--output-format` and `--json`; the command reports errors by `report`, which knows the format."""
    option = click.option(
        "--output-format", type=click.Choice(("text", "json", "github")), expose_value=False,
        help="github: text, and annotations for a workflow.",
    )  # fmt: skip
    return option(json_option(command))


def asked_format(command: click.Command, arguments: Sequence[str]) -> str:
    """json, github or text: what click reads of a command's options before any is looked at, so that it is known
    whatever the command ends with."""
    context = click.Context(command, resilient_parsing=True, ignore_unknown_options=True)
    options, left, _ = command.make_parser(context).parse_args(list(arguments))
    inner = command.commands.get(left[0]) if isinstance(command, click.Group) and left else None
    if inner and (asked := asked_format(inner, left[1:])) != "text":
        return asked
    return "json" if options.get("as_json") else str(options.get("output_format") or "text")


def output_format() -> str:
    """json, github or text, as the command that runs was asked for."""
    context = click.get_current_context(silent=True)
    return (context.obj or {}).get(FORMAT, "text") if context else "text"


def specs_argument(command: Command) -> Command:
    """`SPEC...`, given to the command as `specs`, a list of files: a folder stands for the specs in it; none at all for
    those of pyproject.toml."""
    return click.argument(
        "specs", nargs=-1, metavar="[SPEC]...", callback=_named_specs, shell_complete=complete_files
    )(command)  # fmt: skip


def _named_specs(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> list[Path]:
    named = [*map(Path, value)] or [*find_config(Path.cwd()).existing_specs()]
    if not named:
        remedy = f"Name a spec or a folder, or set `specs` in [{SECTION}] of {FILE}."
        raise click.MissingParameter(remedy, context, parameter, "'SPEC...'")
    return spec_files(named)


def spec_argument(command: Command) -> Command:
    """`SPEC`, given to the command as `spec`, a file."""
    return click.argument(
        "spec", metavar="SPEC", shell_complete=complete_files,
        callback=lambda ctx, parameter, value: spec_file(Path(value)),
    )(command)  # fmt: skip


def complete_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell completes names of files itself."""
    return [CompletionItem(incomplete, type="file")]


def output_option(command: Command) -> Command:
    """`-o`, given to the command as `output`: the folder of packages."""
    return click.option(
        "-o", "--output", type=click.Path(path_type=Path), metavar="DIR",
        callback=lambda ctx, parameter, value: value or default_output(),
        help=f"Folder of the packages; `output` of [{SECTION}] in {FILE}, else {OUTPUT}.",
    )(command)  # fmt: skip


def default_output() -> Path:
    """Where packages go if no option says so."""
    return find_config(Path.cwd()).output or OUTPUT


def spec_file(path: Path) -> Path:
    """The path itself, for `-` the one that standard input stands for; CutegenError (exit 2) when there is no such
    file."""
    if str(path) == STDIN:
        return read_stdin()
    if (path / "plan.py").is_file():
        raise CutegenError(f"{path} is a generated package", "name the spec that it was rendered from", exit_code=2)
    if path.is_dir():
        raise CutegenError(f"{path} is a folder", "name one spec in it", exit_code=2)
    if path.suffix == ".py" and path.is_file():
        raise CutegenError(f"{path} is a Python file, not a spec", "`check` and `bench` take Python files", exit_code=2)
    if path.exists():
        return path
    folder = path.parent if path.parent.is_dir() else Path()
    inside = Path("specs", f"{path.stem}.yaml")
    siblings = [p.name for glob in INCLUDE for p in sorted(folder.glob(glob)) if not p.name.endswith(LOCK_SUFFIX)]
    near = f"did you mean `{inside}`?" if inside.is_file() else suggest(path.name, siblings)
    hint = near or "`cutegen list` shows the specs, `cutegen new gemm NAME` writes one"
    raise CutegenError(f"{path} does not exist", hint, exit_code=2)


def spec_files(paths: Iterable[Path]) -> list[Path]:
    """Files, and for a folder the specs in it and in its folders, each once; CutegenError (exit 2) for what is missing
    or empty."""
    found: dict[Path, None] = {}
    for path in without_locks(paths):
        folder = path.is_dir() and not (path / "plan.py").is_file()
        inside = find_config(Path.cwd()).find_specs(path) if folder else [spec_file(path)]
        if not inside:
            raise CutegenError(
                f"no spec (*.yaml, *.yml) in the folder {path}", "name another folder, or a spec", exit_code=2
            )
        found.update(dict.fromkeys(inside))
    return list(found)


def without_locks(paths: Iterable[Path]) -> list[Path]:
    """Less the locks whose specs are among the paths, too: a shell makes both of `specs/*.yaml`."""
    given = list(paths)
    stems = {path.with_suffix("") for path in given if path.suffix and not path.name.endswith(LOCK_SUFFIX)}
    return [path for path in given if not (path.name.endswith(LOCK_SUFFIX) and lock_stem(path) in stems)]


def claim_name(owners: dict[str, Path], name: str, path: Path) -> None:
    """Notes whose kernel has this name. CutegenError: that of another spec of this call has it, too."""
    if (other := owners.setdefault(name, path)) != path:
        raise CutegenError(f"{path} and {other} are both named `{name}`", "rename one")


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
    click.echo(printable_lines(text), color=_colour())


def note(text: str) -> None:
    """Lines about the run, on stderr; the marks of an error report are coloured, and nothing else."""
    text = plain_lines(text)
    for pattern, colour in _MARKS:
        text = pattern.sub(click.style(r"\g<0>", fg=colour, bold=True), text)
    click.echo(printable_lines(text), err=True, color=_colour())


def report(error: CutegenError, spec: Path | None = None, end: str = "") -> None:
    """An error on stderr; for a workflow its annotations as well, at the spec where it has no place. Nothing where the
    result is JSON, which has its findings."""
    if output_format() == "json":
        return
    note(f"{error.report()}{end}")
    mark(annotate(error, spec))


def mark(annotations: Iterable[str]) -> None:
    """Annotations for a workflow, on stdout; nothing where they were not asked for."""
    if output_format() == "github":
        for line in annotations:
            click.echo(line)


def choose_colour(context: click.Context, parameter: click.Parameter, when: str | None) -> None:
    """Of this run; None leaves what was chosen, so that a command keeps what its group was given."""
    global _colours
    if when or context.parent is None:
        _colours = when or "auto"


def _colour() -> bool | None:
    """None: where the stream is a terminal. The command line comes first, then NO_COLOR (https://no-color.org), then
    FORCE_COLOR and CLICOLOR_FORCE."""
    if _colours != "auto":
        return _colours == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return False if os.environ.get("TERM") == "dumb" else None


def print_json(result: object) -> None:
    """The result as JSON on stdout; nothing else may go there in this mode."""
    click.echo(json.dumps(result, indent=2, default=str))


def verdict(ok: bool, word: str = "") -> str:
    """`ok` in green or `failed` in red, or another word in that colour."""
    return click.style(word or ("ok" if ok else "failed"), fg="green" if ok else "red")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns aligned by blanks; columns whose cells are all numbers are aligned to the right. On a terminal, text that
    does not fit goes on below, in its column."""
    cells = [[str(c).replace("\n", "\\n") for c in row] for row in rows]
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
