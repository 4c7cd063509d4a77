"""Options that were given and have no effect: a command refuses them, rather than do something else than was meant."""

from __future__ import annotations

import click
from click.core import ParameterSource

from cutegen.diagnostics import CutegenError


def refuse_idle(why: str, *names: str) -> None:
    """CutegenError (exit 2): of the parameters `names` of the command that runs, one was given on its command line,
    which has no effect then. why: such as "without --compare"."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            option = max(parameter.opts, key=len)
            do, _, other = why.partition(" ")
            remedy = f"leave out {option}, or {'add' if do == 'without' else 'leave out'} {other}"
            raise CutegenError(f"{option} has no effect {why}", remedy, exit_code=2)
