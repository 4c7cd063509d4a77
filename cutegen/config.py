"""[tool.cutegen] of pyproject.toml: which files are specs, and where packages go. Options of a command go before it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cutegen.diagnostics import Diagnostic, Location, SpecError, declare, suggest
from cutegen.files import LOCK_SUFFIX
from cutegen.roots import read_file

FILE = "pyproject.toml"
SECTION = "tool.cutegen"
INCLUDE = ("*.yaml", "*.yml")
SUITES = "suites"  # a folder of problems to measure, which are YAML and no specs
FOREIGN = ("pyvenv.cfg", "kernel.o")  # in a virtual environment; in what `build --keep` or the cache has of a kernel
MAX_BYTES = 1 << 20

CONFIG_SYNTAX = declare(
    "config-syntax",
    "pyproject.toml is not TOML",
    "cutegen reads `[tool.cutegen]` of the nearest pyproject.toml that has it, from the working directory up to the "
    "root of the repository. The whole file has to be TOML for that.",
)
CONFIG_KEY = declare(
    "config-key",
    "an unknown key in [tool.cutegen] of pyproject.toml",
    "The keys are `specs`, the files and folders that commands take where none is named; `output`, the folder of "
    "packages; `include` and `exclude`, globs that say which files of a folder are specs.",
)
CONFIG_VALUE = declare(
    "config-value",
    "a value in [tool.cutegen] of pyproject.toml does not fit its key",
    "`specs`, `include` and `exclude` are lists of text, `output` is text. Paths are relative to the folder of "
    "pyproject.toml, and paths in `specs` have to exist.",
)


@dataclass(frozen=True)
class Config:
    """folder: of pyproject.toml, or the working directory where there is none. specs, output: relative to the working
    directory. include, exclude: globs, see `compile_glob`. text: of the file."""

    folder: Path
    specs: tuple[Path, ...] = ()
    output: Path | None = None
    include: tuple[str, ...] = INCLUDE
    exclude: tuple[str, ...] = ()
    text: str = ""

    def find_specs(self, folder: Path) -> list[Path]:
        """The specs of a folder and of the folders in it, sorted. Locks and suites are none; hidden folders, virtual
        environments and compiled kernels are not looked into."""
        return sorted(self._walk(folder))

    def _walk(self, folder: Path) -> Iterator[Path]:
        for place, folders, files in os.walk(folder):
            inside = Path(place)
            folders[:] = [name for name in folders if self._enters(inside / name)]
            for name in files:
                path = inside / name
                if name.startswith(".") or name.endswith(LOCK_SUFFIX) or not path.is_file():
                    continue
                if self._matches(path, self._included) and not self._matches(path, self._excluded):
                    yield path

    def _enters(self, folder: Path) -> bool:
        if folder.name.startswith(".") or folder.name == SUITES or any((folder / name).is_file() for name in FOREIGN):
            return False
        return not self._matches(folder, self._excluded)

    @cached_property
    def _included(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(compile_glob, self.include))

    @cached_property
    def _excluded(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(compile_glob, self.exclude))

    def _matches(self, path: Path, globs: tuple[re.Pattern[str], ...]) -> bool:
        return any(glob.fullmatch(f"/{Path(os.path.relpath(path, self.folder)).as_posix()}") for glob in globs)

    def existing_specs(self) -> tuple[Path, ...]:
        """SpecError: one of `specs` does not exist."""
        for path in self.specs:
            if not path.exists():
                raise _refuse(self.folder / FILE, self.text, CONFIG_VALUE, "specs", f"{path} does not exist",
                              "paths are relative to the folder of pyproject.toml")  # fmt: skip
        return self.specs


def compile_glob(text: str) -> re.Pattern[str]:
    """A glob for `/path/from/the/folder`: `*` and `?` stop at `/`, `**` does not. One without `/` is for names in any
    folder; one with `/` inside is for the whole path."""
    anchored = "/" in text.strip("/")
    pattern = "/" if anchored else "/(?:.*/)?"
    for part in re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", text.strip("/")):
        if part in ("**/", "**", "*", "?"):
            pattern += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[part]
        elif part.startswith("[") and part.endswith("]") and len(part) > 2:
            inner = part[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            pattern += f"[{'^/' + inner[1:] if inner.startswith('!') else inner}]"
        else:
            pattern += re.escape(part)
    return re.compile(pattern)


def find_config(start: Path) -> Config:
    """That of the nearest pyproject.toml with the section, `start` or above, at most at the root of the repository.
    SpecError with the places of what is wrong in it."""
    for folder in (start, *start.parents):
        path = folder / FILE
        if path.is_file() and (config := read_config(path, start)):
            return config
        if (folder / ".git").exists():
            break
    return Config(start)


def read_config(path: Path, start: Path) -> Config | None:
    """None: the file has no such section. start: what paths are shown relative to."""
    raw = read_file(path, MAX_BYTES)[:MAX_BYTES]
    if b"cutegen" not in raw:  # nothing here is for us, whatever it is
        return None
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if not re.search(r"^\s*\[\s*tool\s*\.\s*[\"']?cutegen\b", text, re.MULTILINE):
            return None
        raise _syntax_error(path, text, str(error)) from None
    section = tables.get("tool", {})
    section = section.get("cutegen") if isinstance(section, dict) else None
    if section is None:
        return None
    if not isinstance(section, dict):
        raise _refuse(path, text, CONFIG_VALUE, "", "`cutegen` is a table", f"write [{SECTION}] and its keys below it")
    return _checked(path, text, section, start)


def _checked(path: Path, text: str, section: Mapping[str, Any], start: Path) -> Config:
    findings: list[Diagnostic] = []
    lists, known = ("specs", "include", "exclude"), ("specs", "output", "include", "exclude")
    for key, value in section.items():
        if key not in known:
            remedy = suggest(key, known) or f"the keys are {', '.join(known)}"
            findings += _refuse(path, text, CONFIG_KEY, key, f"`{key}` is not a key of [{SECTION}]", remedy).diagnostics
        elif key in lists and not (isinstance(value, list) and all(isinstance(v, str) and v for v in value)):
            found = _refuse(path, text, CONFIG_VALUE, key, f"`{key}` must be a list of text", f'write {key} = ["..."]')
            findings += found.diagnostics
        elif key not in lists and not (isinstance(value, str) and value):
            found = _refuse(path, text, CONFIG_VALUE, key, f"`{key}` must be text", f'write {key} = "..."')
            findings += found.diagnostics
    if findings:
        raise SpecError(findings)

    def shown(name: str) -> Path:
        return Path(os.path.relpath(path.parent / name, start))

    output = section.get("output")
    return Config(
        path.parent,
        tuple(map(shown, section.get("specs", ()))),
        shown(output) if output else None,
        tuple(section.get("include", INCLUDE)),
        tuple(section.get("exclude", ())),
        text,
    )


def _syntax_error(path: Path, text: str, said: str) -> SpecError:
    place = re.search(r" \(at line (\d+), column (\d+)\)$", said)
    lines = text.rstrip().split("\n")
    line, column = (int(place[1]), int(place[2])) if place else (len(lines), len(lines[-1]) + 1)
    message = said[: place.start()] if place else said.removesuffix(" (at end of document)")
    where = Location(_show(path), line, column, column + 1)
    source = lines[line - 1] if line <= len(lines) else ""
    return SpecError([Diagnostic(CONFIG_SYNTAX, f"TOML: {message}", where, "correct pyproject.toml", source)])


def _refuse(path: Path, text: str, rule: str, key: str, message: str, remedy: str) -> SpecError:
    """A finding about a key of the section, where it is written in the usual form; else about the section."""
    place = None
    lines = text.split("\n")
    inside = False
    for number, line in enumerate(lines, 1):
        if header := re.match(r"\s*\[+\s*([^\]]*?)\s*\]", line):
            inside = re.sub(r"[\s\"']", "", header[1]) == SECTION
            if inside:
                place = place or (number, header.start(1) + 1, header.end(1) + 1)
        elif inside and key and (found := re.match(rf"\s*([\"']?{re.escape(key)}[\"']?)\s*=", line)):
            place = (number, found.start(1) + 1, found.end(1) + 1)
            break
    where = Location(_show(path), *place) if place else None
    shown = message if place else f"{_show(path)}: {message}"
    return SpecError([Diagnostic(rule, shown, where, remedy, lines[place[0] - 1] if place else "")])


def _show(path: Path) -> str:
    return Path(os.path.relpath(path)).as_posix()
