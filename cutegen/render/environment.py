"""The template environment. A template gets one typed object; a name that does not exist is an error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cutegen.diagnostics import CutegenError

_PACKAGE = Path(__file__).resolve().parent.parent


@cache
def data_folder(name: str) -> Path:
    """`templates` or `specs`: beside the package in a checkout, inside it when installed from a wheel."""
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise CutegenError(f"the folder `{name}` is missing from this installation", "reinstall cutegen", exit_code=2)


@cache
def _environment(markup: bool = False) -> Environment:
    return Environment(
        loader=FileSystemLoader(data_folder("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=markup,
    )


def render_markup(name: str, **objects: Any) -> str:
    """The text of a template of HTML or SVG: what it is given is escaped, unless it is Markup."""
    return _environment(markup=True).get_template(name).render(**objects).rstrip("\n") + "\n"


def render_template(name: str, **objects: Any) -> str:
    """The text of template `name`, ending in one newline."""
    return _environment().get_template(name).render(**objects).rstrip("\n") + "\n"
