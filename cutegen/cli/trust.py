"""`--root` and `--no-ops`, which every command has: what it may read and run of a checkout that nobody vouches for."""

from __future__ import annotations

import os

import click

from cutegen.distributions import NO_OPS
from cutegen.roots import ROOTS


def add_trust_options(command: click.Command) -> click.Command:
    """The same command, with both options."""
    if not any(parameter.name == "no_ops" for parameter in command.params):
        command.params += [
            click.Option(
                ["--root", "roots"], multiple=True, type=click.Path(exists=True, file_okay=False), metavar="DIR",
                is_eager=True, expose_value=False, callback=_add_roots,
                help=f"Folder that links of specs, locks and packages may lead into; {ROOTS} has more.",
            ),
            click.Option(
                ["--no-ops", "no_ops"], is_flag=True, is_eager=True, expose_value=False, callback=_refuse_ops,
                help=f"Import no epilogue op or kernel family of another package; so does {NO_OPS}=1.",
            ),
        ]  # fmt: skip
    return command


def _add_roots(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
    if value:
        _set(context, ROOTS, os.pathsep.join((*filter(None, [os.environ.get(ROOTS)]), *map(os.path.abspath, value))))


def _refuse_ops(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        _set(context, NO_OPS, "1")


def _set(context: click.Context, variable: str, value: str) -> None:
    """For this command, and the processes that it starts."""
    before = os.environ.get(variable)
    os.environ[variable] = value

    @context.call_on_close
    def restore() -> None:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
