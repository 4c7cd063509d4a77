"""A spec that is read from standard input, as an editor or a hook has it before it is a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cutegen.diagnostics import CutegenError

STDIN = "-"
UNNAMED = Path("stdin.yaml")
READERS = "`-` is for validate, explain, resolve, and render with --check, --diff or --origin"
_NAME, _TEXT = "cutegen.stdin.name", "cutegen.stdin.text"  # of a click context's meta

Command = TypeVar("Command", bound=Callable[..., Any])


def stdin_option(command: Command) -> Command:
    """`--stdin-filename`, for a command whose SPEC may be `-`."""
    return click.option(
        "--stdin-filename", type=click.Path(path_type=Path), metavar="NAME", default=UNNAMED, is_eager=True,
        expose_value=False, callback=lambda ctx, parameter, value: ctx.meta.update({_NAME: value}),
        help="What `-`, a spec on standard input, is called: its lock and suites are those next to this file.",
    )(command)  # fmt: skip


def read_stdin() -> Path:
    """The path that standard input stands for; `typed_text` has what was read. CutegenError (exit 2): the command takes
    no such spec, or nothing can be read."""
    from cutegen.spec.text_rules import MAX_BYTES

    meta = click.get_current_context().meta
    if _NAME not in meta:
        raise CutegenError("this command does not read a spec from standard input", READERS, exit_code=2)
    path: Path = meta[_NAME]
    if sys.stdin is None:  # closed by the caller: `<&-`
        raise CutegenError("standard input is closed", "write a spec to it", exit_code=2)
    if _TEXT not in meta:
        meta[_TEXT] = {path: sys.stdin.buffer.read(MAX_BYTES + 1)}
    return path


def refuse_unnamed(path: Path) -> None:
    """CutegenError (exit 2): a spec whose lock has to hold was read from standard input, and is of no file."""
    if typed_text(path) is not None and path == UNNAMED and not path.exists():
        remedy = "name the file that it stands for: --stdin-filename NAME"
        raise CutegenError("a spec on standard input has no lock by itself", remedy, exit_code=2)


def typed_text(path: Path) -> bytes | None:
    """What was read from standard input for a path; None where the file counts."""
    context = click.get_current_context(silent=True)
    found: bytes | None = context.meta.get(_TEXT, {}).get(path) if context else None
    return found
