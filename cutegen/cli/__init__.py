"""The command line: `main` is the entry point and the only place where an exception becomes an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from cutegen import __version__, elsewhere
from cutegen.cli.annotations import annotate
from cutegen.cli.commands import COMMANDS, GROUPS, describe_examples
from cutegen.cli.console import COLOURS, FORMAT, asked_format, choose_colour, findings, note, print_json
from cutegen.cli.progress import show_line
from cutegen.cli.trust import add_trust_options
from cutegen.defaults import TRACEBACK
from cutegen.diagnostics import CutegenError, cut, describe_error, printable, suggest
from cutegen.interrupts import EXIT_CODE, CountDropped, is_interrupt

_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space, or write to another disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "change its permissions, or write to another folder"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "a file is in the way: move it, or write to another folder"),
}


class LazyGroup(click.Group):
    """A group that imports the module of a command when it needs the command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            hint = elsewhere.COMMANDS.get(args[0].lower()) or suggest(args[0], COMMANDS)
            ctx.fail(f"there is no command `{args[0]}`{f'; {hint}' if hint else ''}")
        found = super().resolve_command(ctx, args)
        if found[1] and ctx.obj is not None:
            ctx.obj[FORMAT] = asked_format(found[1], found[2])
        return found

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        command.epilog = describe_examples(entry)
        return _share_options(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each command, whole, by group; imports none of them."""
        width = max(map(len, COMMANDS))
        for title, entries in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.sentence) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands with their sentences; imports none of them."""
        entries = (pair for group in GROUPS.values() for pair in group.items())
        found = [CompletionItem(n, help=entry.sentence) for n, entry in entries if n.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)


# Of the group and of every command: `cutegen --color always check`, `cutegen check --color always`.
COLOUR = click.Option(
    ["--color"],
    type=click.Choice(COLOURS),
    expose_value=False,
    is_eager=True,
    callback=choose_colour,
    help="Colour: on a terminal (auto, the default), always, or never.",
)


def _share_options(command: click.Command) -> click.Command:
    """The same command, with the options that all have; so have the commands of a group."""
    if COLOUR not in command.params:
        command.params.append(COLOUR)
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _share_options(inner)
    return add_trust_options(command)


@click.group(cls=LazyGroup, params=[COLOUR], context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cutegen")
def root() -> None:
    """Turn YAML specs into readable, proven CuTe DSL kernels.

    Exit code 0: fine; 1: a finding (invalid spec, failed contract or check, drift); 2: usage or internal error, or
    something could not be read or run; 130: interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. No traceback reaches the user unless CUTEGEN_TRACEBACK is 1."""
    asked: dict[str, str] = {}  # by the command, once it is known
    if os.environ.get(TRACEBACK) == "1":
        return _run(arguments, asked)
    try:
        return _run(arguments, asked)
    except CutegenError as error:
        _print_findings(error, asked)
        note(error.report())
        return error.exit_code
    except click.ClickException as error:
        if _is_bare(error):
            click.echo(error.message, err=True)  # of a group that is called without a command: its help
            return error.exit_code
        vars(error)["message"] = printable(error.message)  # it quotes arguments
        _print_findings(CutegenError(error.format_message()), asked)
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        note("interrupted")
        return EXIT_CODE
    except BrokenPipeError:
        # The reader went away (`cutegen list | head`); keep the interpreter from complaining when it flushes.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            os.dup2(nowhere, stream.fileno())
        return 1
    except OSError as error:
        where = f"{printable(str(error.filename))}: " if error.filename else ""
        return _end(f"{where}{error.strerror or error}", _REMEDIES.get(error.errno or 0, ""), asked)
    except UnicodeEncodeError as error:  # half of a surrogate pair, or what a terminal has no letters for
        remedy = "choose another name, or set PYTHONIOENCODING=utf-8"
        return _end(f"`{printable(cut(error.object))}` cannot be written as {error.encoding}", remedy, asked)
    except Exception as error:
        remedy = f"this is a bug in cutegen; {TRACEBACK}=1 shows where"
        return _end(describe_error(error), remedy, asked, "internal error")


def _end(said: str, remedy: str, asked: Mapping[str, str], kind: str = "error") -> int:
    """The exit code of a command that something other than a finding has ended, which it reports."""
    _print_findings(CutegenError(said if kind == "error" else f"{kind}: {said}", remedy), asked)
    note(f"{kind}: {said}")
    if remedy:
        note(f"  = help: {remedy}")
    return 2


def _print_findings(error: CutegenError, asked: Mapping[str, str]) -> None:
    """As JSON or annotations, where that was asked for; standard output may be what the error is about."""
    with suppress(OSError):
        if asked.get(FORMAT) == "json":
            print_json({"ok": False, "findings": findings(error)})
        for line in annotate(error) if asked.get(FORMAT) == "github" else ():
            click.echo(line)


def _is_bare(error: click.ClickException) -> bool:
    """Whether it is the help of a group, which click 8.2 and later raise."""
    kind = getattr(click.exceptions, "NoArgsIsHelpError", None)
    return kind is not None and isinstance(error, kind)


def _run(arguments: Sequence[str] | None, asked: dict[str, str]) -> int:
    """The exit code of one command. KeyboardInterrupt: it was interrupted, whatever became of that."""
    try:
        with CountDropped() as dropped:
            code = _call(arguments, asked)
    except BaseException as error:
        if is_interrupt(error) or (dropped.came and not isinstance(error, (CutegenError, click.ClickException))):
            raise KeyboardInterrupt from error
        raise
    if dropped.count:
        raise KeyboardInterrupt
    return code


def _call(arguments: Sequence[str] | None, asked: dict[str, str]) -> int:
    try:
        with show_line():
            result = root.main(arguments, prog_name="cutegen", standalone_mode=False, obj=asked)
    except click.Abort as abort:
        if isinstance(abort.__cause__, EOFError):  # click takes it for the end of an answer, and nothing is asked here
            raise abort.__cause__ from None
        raise
    if sys.stdout is not None:  # closed by the caller: `>&-`
        sys.stdout.flush()  # here, so that a full disk is an error with a message
    return result if isinstance(result, int) else 0
