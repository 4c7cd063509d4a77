"""Errors as workflow commands of GitHub Actions, which shows them next to the lines of a pull request.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import os
from pathlib import Path

from cutegen.diagnostics import CutegenError, SpecError, printable

_DATA = {"%": "%25", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def annotate(error: CutegenError, file: Path | None = None) -> list[str]:
    """A line for each finding. file: what it is about where it has no place."""
    if not isinstance(error, SpecError):
        return [annotation(_with_remedy(error.message, error.remedy), file)]
    lines = []
    for found in error.diagnostics:
        message, place = _with_remedy(found.message, found.remedy), found.location
        if place:
            where = {"line": place.line, "endLine": place.line, "col": place.column, "endColumn": place.end_column - 1}
            lines.append(annotation(message, Path(place.file), found.rule, where))
        else:
            lines.append(annotation(message, file, found.rule))
    return lines


def annotation(message: str, file: Path | None, title: str = "", place: dict[str, int] | None = None) -> str:
    """`::error file=..,line=..::message`, whatever characters the parts hold."""
    properties = {"file": _in_workspace(file) if file else "", **(place or {}), "title": title and f"cutegen: {title}"}
    said = ",".join(f"{name}={_escape(str(value), _PROPERTY)}" for name, value in properties.items() if value)
    return f"::error{' ' * bool(said)}{said}::{_escape(message, _DATA)}"


def _with_remedy(message: str, remedy: str) -> str:
    return f"{message}\n{remedy}" if remedy else message


def _in_workspace(file: Path) -> str:
    """Relative to the checkout, as annotations name files, wherever the command runs in it."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    path = Path(os.path.abspath(file))
    return (path.relative_to(workspace) if workspace and path.is_relative_to(workspace) else file).as_posix()


def _escape(text: str, codes: dict[str, str]) -> str:
    text = "\n".join(map(printable, text.split("\n")))  # a log shows the line as it is
    return "".join(codes.get(c, c) for c in text)
