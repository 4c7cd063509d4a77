"""A section of a TOML file, and where its keys are written. The file need not be trusted, and the rest of it is not
ours: nothing of that is quoted."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutegen.diagnostics import Diagnostic, Location, SpecError, declare
from cutegen.roots import read_file

MAX_BYTES = 256 << 10
MAX_PARTS = 8  # of a key: `tomllib` takes the square of them, in time and memory
MAX_DEPTH = 32

CONFIG_SYNTAX = declare(
    "config-syntax",
    "pyproject.toml is not TOML, or more than is read",
    "cutegen reads `[tool.cutegen]` of the nearest pyproject.toml that has it, from the working directory up to the "
    f"root of the repository. The whole file has to be TOML for that, of at most {MAX_BYTES >> 10} KiB, with keys of "
    f"at most {MAX_PARTS} parts and values nested at most {MAX_DEPTH} deep. Of lines outside of the section nothing is "
    "printed.",
)

# Strings and comments, closed or not.
_QUOTED = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)'
    r'|"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?|#[^\n]*',
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MAX_PARTS}}}")
_HEADER = re.compile(r"[ \t]*\[{1,2}([^\]\n]*)")
_KEY = re.compile(r"""[ \t]*(["']?([\w-]+)["']?)[ \t]*=""")

Place = tuple[int, int, int]  # line, column and the column after it, from 1


@dataclass(frozen=True)
class TomlFile:
    """section: its value, whatever that is. place: of its header, where it has one. keys: places, where they are
    written in the usual form."""

    path: Path
    lines: tuple[str, ...]
    section: Any
    place: Place | None
    keys: dict[str, Place]

    def finding(self, rule: str, key: str, message: str, remedy: str) -> Diagnostic:
        """About a key of the section, where it has a place; else about the section."""
        if not (place := self.keys.get(key, self.place)):
            return Diagnostic(rule, f"{_show(self.path)}: {message}", None, remedy)
        return Diagnostic(rule, message, Location(_show(self.path), *place), remedy, self.lines[place[0] - 1])


def read_toml(path: Path, section: str) -> TomlFile | None:
    """None: the file has no such section. SpecError: it is not TOML, or more than is read."""
    raw = read_file(path, MAX_BYTES)
    name = section.rpartition(".")[2]
    if len(raw) > MAX_BYTES:
        raise _refuse(path, f"larger than {MAX_BYTES >> 10} KiB")
    if name.encode() not in raw:  # nothing here is for us, whatever it is
        return None
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = tuple(text.split("\n"))
    inside, place, keys = _find_places(lines, section)
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        _check_bounds(text)
        tables: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # an integer of too many digits is not a TOMLDecodeError
        if place is None:
            return None
        raise _syntax_error(path, lines, inside, str(error)) from None
    for part in section.split("."):
        tables = tables.get(part) if isinstance(tables, dict) else None
    return None if tables is None else TomlFile(path, lines, tables, place, keys)


def _check_bounds(text: str) -> None:
    """ValueError: what would take long to read."""
    bare = _QUOTED.sub(lambda quoted: "" if quoted[0][0] == "#" else "q", text)
    if _LONG_KEY.search(bare):
        raise ValueError(f"a key has more than {MAX_PARTS} parts")
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", bare):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"a value is nested deeper than {MAX_DEPTH} levels")


def _find_places(lines: tuple[str, ...], section: str) -> tuple[set[int], Place | None, dict[str, Place]]:
    """The numbers of the section's lines, the place of its header, and those of its keys."""
    inside, place, keys = set[int](), None, dict[str, Place]()
    ours = False
    for number, line in enumerate(lines, 1):
        if header := _HEADER.match(line):
            ours = re.sub(r"[\s\"']", "", header[1]) == section
            if ours:
                place = place or (number, header.start(1) + 1, header.end(1) + 1)
        elif ours and (found := _KEY.match(line)):
            keys.setdefault(found[2], (number, found.start(1) + 1, found.end(1) + 1))
        if ours:
            inside.add(number)
    return inside, place, keys


def _syntax_error(path: Path, lines: tuple[str, ...], inside: set[int], said: str) -> SpecError:
    """What `tomllib` said. Of a line that is not in the section it may name keys."""
    place = re.search(r" \(at line (\d+), column (\d+)\)$", said)
    at_end = said.endswith(" (at end of document)")
    if not (place or at_end):
        return _refuse(path, said if said.startswith("a ") else "a number in it has too many digits")
    last = len("\n".join(lines).rstrip().split("\n"))
    line, column = (int(place[1]), int(place[2])) if place else (last, len(lines[last - 1].rstrip()) + 1)
    message = f"TOML: {said[: place.start()] if place else said.removesuffix(' (at end of document)')}"
    ours = line in inside
    shown = message if ours else "TOML: this line cannot be read"
    where = Location(_show(path), line, column, column + 1)
    source = lines[line - 1] if ours and line <= len(lines) else ""
    return SpecError([Diagnostic(CONFIG_SYNTAX, shown, where, "correct pyproject.toml", source)])


def _refuse(path: Path, problem: str) -> SpecError:
    return SpecError([Diagnostic(CONFIG_SYNTAX, f"{_show(path)}: {problem}", None, "write it as a shorter file")])


def _show(path: Path) -> str:
    return Path(os.path.relpath(path)).as_posix()
