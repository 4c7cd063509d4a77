"""The command line: `main` is the entry point and the only place where an exception becomes an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence

import click

from cutegen import __version__
from cutegen.cli.console import findings, note, print_json
from cutegen.diagnostics import CutegenError, describe_error, suggest
from cutegen.interrupts import EXIT_CODE, count_dropped, is_interrupt

# command -> module:function; a module is imported when its command is asked for
COMMANDS = {
    "run": "cutegen.cli.run:run",
    "validate": "cutegen.cli.author:validate",
    "resolve": "cutegen.cli.decide:resolve",
    "lock": "cutegen.cli.decide:lock",
    "pin": "cutegen.cli.decide:pin",
    "render": "cutegen.cli.render:render",
    "build": "cutegen.cli.build:build",
    "check": "cutegen.cli.run:check",
    "bench": "cutegen.cli.bench:bench",
    "report": "cutegen.cli.bench:report_",
    "tune": "cutegen.cli.tune:tune",
    "explain": "cutegen.cli.decide:explain",
    "new": "cutegen.cli.author:new",
    "list": "cutegen.cli.author:list_",
    "schema": "cutegen.cli.author:schema",
    "doctor": "cutegen.cli.build:doctor",
    "docs": "cutegen.cli.author:docs",
}
TRACEBACK = "CUTEGEN_TRACEBACK"
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
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = suggest(args[0], COMMANDS)
            ctx.fail(f"there is no command `{args[0]}`{f'; {hint}' if hint else ''}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each command, whole."""
        with formatter.section("Commands"):
            commands = ((name, self.get_command(ctx, name)) for name in COMMANDS)
            formatter.write_dl([(name, c.get_short_help_str(200)) for name, c in commands if c and not c.hidden])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cutegen")
def root() -> None:
    """Turn YAML specs into readable, proven CuTe DSL kernels.

    Exit code 0: fine; 1: a finding (invalid spec, failed contract or check, drift); 2: usage or internal error;
    130: interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. No traceback reaches the user unless CUTEGEN_TRACEBACK is 1."""
    if os.environ.get(TRACEBACK) == "1":
        return _run(arguments)
    try:
        return _run(arguments)
    except CutegenError as error:
        if "--json" in (sys.argv[1:] if arguments is None else arguments):
            print_json({"ok": False, "findings": findings(error)})
        note(error.report())
        return error.exit_code
    except click.ClickException as error:
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
        where = f"{error.filename}: " if error.filename else ""
        note(f"error: {where}{error.strerror or error}")
        if remedy := _REMEDIES.get(error.errno or 0):
            note(f"  = help: {remedy}")
        return 2
    except Exception as error:
        note(f"internal error: {describe_error(error)}")
        note(f"  = help: this is a bug in cutegen; {TRACEBACK}=1 shows where")
        return 2


def _run(arguments: Sequence[str] | None) -> int:
    """The exit code of one command. KeyboardInterrupt: it was interrupted, whatever became of that."""
    try:
        with count_dropped() as dropped:
            code = _call(arguments)
    except BaseException as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    if dropped.count:
        raise KeyboardInterrupt
    return code


def _call(arguments: Sequence[str] | None) -> int:
    try:
        result = root.main(arguments, prog_name="cutegen", standalone_mode=False)
    except click.Abort as abort:
        if isinstance(abort.__cause__, EOFError):  # click takes it for the end of an answer, and nothing is asked here
            raise abort.__cause__ from None
        raise
    if sys.stdout is not None:  # closed by the caller: `>&-`
        sys.stdout.flush()  # here, so that a full disk is an error with a message
    return result if isinstance(result, int) else 0
