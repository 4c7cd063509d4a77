"""Parameters that a template states once, one a line: `name: kind = value  # note`. They are declared by their names,
kinds and notes, and made of their values; without one the value is the variable of that name."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE = re.compile(r"^((\w+): [^=#\n]*?)(?: = ([^#\n]*?))?((?:  #.*)?)$", re.MULTILINE)


def find_declarations(text: str) -> Iterator[tuple[slice, slice]]:
    """Where a line is declared: what is before its value, and what is behind it."""
    return ((slice(*line.span(1)), slice(*line.span(4))) for line in _LINE.finditer(text))


def find_values(text: str) -> Iterator[slice]:
    return (slice(*line.span(3 if line[3] else 2)) for line in _LINE.finditer(text))


def declared(text: str) -> str:
    return "\n".join(text[begin] + text[end] for begin, end in find_declarations(text))


def values(text: str) -> list[str]:
    return [text[place] for place in find_values(text)]
