"""Text from outside as a terminal may show it: a line, with nothing that moves the cursor or turns the writing."""

from __future__ import annotations

import re

# What `click.style` writes for the colours of a report: it changes how text looks, and nothing else.
_COLOURS = r"\x1b\[(?:0|1|4|3[0-7])m"
# How a line begins that a workflow's runner takes for a command.
_COMMAND = re.compile(rf"^((?:\s|{_COLOURS})*)(:|#)(?=:|#\[)", re.MULTILINE)
_STYLE = re.compile(rf"(\n|\t|{_COLOURS})")
_BETWEEN = re.compile(r"(\n|\t)")


MAX_QUOTED = 48  # characters of a value in a message: any legal name
MAX_LINE = 1000  # of a message


def cut(text: str, most: int = MAX_QUOTED) -> str:
    """A value as a message quotes it."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def printable(text: str) -> str:
    """One line: what is not printable is written as Python does, `\\n`, `\\x1b` or `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def plain_lines(text: str) -> str:
    """The same for text of several lines, before any of it is coloured: colours that it brings along are escaped."""
    return "".join(part if i % 2 else printable(part) for i, part in enumerate(_BETWEEN.split(text)))


def printable_lines(text: str) -> str:
    """What is printed: lines whose colours are ours, see `plain_lines`. None of them is a command for a workflow."""
    shown = "".join(part if i % 2 else printable(part) for i, part in enumerate(_STYLE.split(text)))
    return _COMMAND.sub(lambda begin: f"{begin[1]}\\x{ord(begin[2]):02x}", shown)


def printable_data(data: object) -> object:
    """Plain data whose texts, keys among them, are one line each."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, dict):
        return {printable_data(key): printable_data(value) for key, value in data.items()}
    return [printable_data(item) for item in data] if isinstance(data, list) else data


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
