"""[tool.cutegen] of pyproject.toml: which files are specs, and where packages go. Options of a command go before it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cutegen.diagnostics import MAX_KEPT, CutegenError, Diagnostic, SpecError, declare, suggest
from cutegen.files import LOCK_SUFFIX
from cutegen.globs import MAX_GLOB, Glob, compile_glob
from cutegen.roots import REMEDY, stay_inside
from cutegen.toml_file import TomlFile, read_toml

FILE = "pyproject.toml"
SECTION = "tool.cutegen"
INCLUDE = ("*.yaml", "*.yml")
SUITES = "suites"  # a folder of problems to measure, which are YAML and no specs
FOREIGN = ("pyvenv.cfg", "kernel.o")  # in a virtual environment; in what `build --keep` or the cache has of a kernel
MAX_LISTED = 256  # entries of a list

CONFIG_KEY = declare(
    "config-key",
    "an unknown key in [tool.cutegen] of pyproject.toml",
    "The keys are `specs`, the files and folders that commands take where none is named; `output`, the folder of "
    "packages; `include` and `exclude`, globs that say which files of a folder are specs.",
)
CONFIG_VALUE = declare(
    "config-value",
    "a value in [tool.cutegen] of pyproject.toml does not fit its key",
    f"`specs`, `include` and `exclude` are lists of text, `output` is text. A list has at most {MAX_LISTED} entries, "
    f"and a glob at most {MAX_GLOB} characters. Paths are relative to the folder of pyproject.toml and stay in it, "
    "links followed, or in a folder that `--root` or `CUTEGEN_ROOTS` names: a file of a checkout does not choose what "
    "is read and written elsewhere. Paths in `specs` have to exist.",
)


@dataclass(frozen=True)
class Config:
    """folder: of pyproject.toml, or the working directory where there is none. specs, output: relative to the working
    directory. include, exclude: globs, see `compile_glob`. file: what it was read from."""

    folder: Path
    specs: tuple[Path, ...] = ()
    output: Path | None = None
    include: tuple[str, ...] = INCLUDE
    exclude: tuple[str, ...] = ()
    file: TomlFile | None = None

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
    def _included(self) -> tuple[Glob, ...]:
        return tuple(map(compile_glob, self.include))

    @cached_property
    def _excluded(self) -> tuple[Glob, ...]:
        return tuple(map(compile_glob, self.exclude))

    def _matches(self, path: Path, globs: tuple[Glob, ...]) -> bool:
        inside = Path(os.path.relpath(path, self.folder))
        return any(glob.fits(inside) for glob in globs)

    def existing_specs(self) -> tuple[Path, ...]:
        """SpecError: one of `specs` does not exist."""
        for path in self.specs:
            if self.file and not path.exists():
                remedy = "paths are relative to the folder of pyproject.toml"
                raise SpecError([self.file.finding(CONFIG_VALUE, "specs", f"{path} does not exist", remedy)])
        return self.specs


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
    file = read_toml(path, SECTION)
    if file is None:
        return None
    if not isinstance(file.section, dict):
        remedy = f"write [{SECTION}] and its keys below it"
        raise SpecError([file.finding(CONFIG_VALUE, "", "`cutegen` is a table", remedy)])
    _check_types(file, file.section)
    section, findings = file.section, list[Diagnostic]()

    def shown(key: str, name: str) -> Path:
        if problem := _find_outside(path.parent, name):
            findings.append(file.finding(CONFIG_VALUE, key, f"`{key}`: {problem}", REMEDY))
        return Path(os.path.relpath(path.parent / name, start))

    for key in ("include", "exclude"):
        for glob in section.get(key, ()):
            try:
                compile_glob(glob)
            except ValueError as error:
                findings.append(file.finding(CONFIG_VALUE, key, f"`{key}`: {error}", "write it in another way"))
    output = section.get("output")
    config = Config(
        path.parent,
        tuple(shown("specs", name) for name in section.get("specs", ())),
        shown("output", output) if output else None,
        tuple(section.get("include", INCLUDE)),
        tuple(section.get("exclude", ())),
        file,
    )
    if findings:
        raise SpecError(findings)
    return config


def _find_outside(folder: Path, name: str) -> str:
    """What is wrong with a path of the file, if anything: a checkout does not choose what is read and written outside
    of it."""
    try:
        stay_inside(folder / name, folder)
    except CutegenError:
        return f"{name} leads out of the folder of pyproject.toml, to {os.path.realpath(folder / name)}"
    except (OSError, ValueError):
        return "no file can have this name"
    return ""


def _check_types(file: TomlFile, section: Mapping[str, Any]) -> None:
    """SpecError: keys that are unknown, or have values of another kind."""
    lists, known = ("specs", "include", "exclude"), ("specs", "output", "include", "exclude")
    unknown = [key for key in section if key not in known]
    findings = []
    for key in unknown[:MAX_KEPT]:
        remedy = suggest(key, known) or f"the keys are {', '.join(known)}"
        findings.append(file.finding(CONFIG_KEY, key, f"`{key}` is not a key of [{SECTION}]", remedy))
    for key in known:
        value = section.get(key, ["x"] if key in lists else "x")
        if key not in lists:
            if not (isinstance(value, str) and value):
                findings.append(file.finding(CONFIG_VALUE, key, f"`{key}` must be text", f'write {key} = "..."'))
        elif not (isinstance(value, list) and all(isinstance(v, str) and v for v in value)):
            message = f"`{key}` must be a list of text"
            findings.append(file.finding(CONFIG_VALUE, key, message, f'write {key} = ["..."]'))
        elif len(value) > MAX_LISTED:
            message = f"`{key}` has {len(value)} entries; {MAX_LISTED} is the most"
            findings.append(file.finding(CONFIG_VALUE, key, message, "name folders in place of files"))
    if findings:
        raise SpecError(findings, len(unknown[MAX_KEPT:]))
