"""What `check`, `bench` and `tune` are given: specs, generated packages, Python files, and shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from cutegen.cli import console
from cutegen.config import SUITES
from cutegen.diagnostics import CutegenError, suggest

if TYPE_CHECKING:
    from cutegen.run.subject import Subject

targets_argument = click.argument("targets", nargs=-1, required=True, metavar="SPEC|FILE.py|PACKAGE...",
                                  shell_complete=console.complete_files,
                                  callback=lambda ctx, parameter, value: target_files(map(Path, value)))  # fmt: skip
shapes_option = click.option("--shape", "shapes", multiple=True, metavar="DIM=EXTENT,..",
                             help="A problem; repeatable.",
                             callback=lambda ctx, parameter, value: _readable(value))  # fmt: skip


def suite_option(does: str) -> Callable[[console.Command], console.Command]:
    """`--suite`; does: what the command does with the problems."""
    described = f"{does} the problems of specs/suites/NAME.yaml."
    return click.option("--suite", default="", metavar="NAME", help=described, callback=_named,
                        shell_complete=_complete_suites)  # fmt: skip


def _complete_suites(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suites next to the specs of the working directory, and those that cutegen ships."""
    from cutegen.render.environment import data_folder

    folders = (Path("specs"), data_folder("specs"))
    names = {path.stem for folder in folders for path in (folder / SUITES).glob("*.yaml")}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _named(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
        remedy = "name a suite, such as --suite llm_gemm, or leave it out"
        raise CutegenError("--suite is empty: is a variable of the shell not set?", remedy, exit_code=2)
    return value


def target_files(paths: Iterable[Path]) -> list[Path]:
    """Python files and generated packages as they are; specs, and the specs of a folder."""
    found: list[Path] = []
    for path in console.without_locks(paths):
        plain = path.suffix == ".py" or (path / "plan.py").is_file()
        found += [path] if plain and path.exists() else console.spec_files([path])
    return list(dict.fromkeys(found))


def _readable(shapes: tuple[str, ...]) -> tuple[str, ...]:
    """The same texts. CutegenError before anything is built or run: one is no shape."""
    from cutegen.run.shapes import read_shape

    for text in shapes:
        read_shape(text)
    return shapes


def refuse_tiling(subject: Subject, tiling: str) -> None:
    """CutegenError (exit 2): it has no tiling of that name."""
    if tiling and tiling not in subject.tilings:
        known = suggest(tiling, subject.tilings) or f"it has {', '.join(subject.tilings)}"
        raise CutegenError(f"--tiling: {subject.name} has no {tiling}", known, exit_code=2)
