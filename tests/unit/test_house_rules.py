"""Sizes and names of source files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_LINES = {".py": 400, ".jinja": 200}
EMPTY_NAMES = ("utils", "util", "helpers", "helper", "misc", "common", "manager")
SOURCES = sorted(
    path
    for folder in ("cutegen", "templates", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in MAX_LINES
)


def test_files() -> None:
    """One test for all files: each of them as one costs more than what it looks at."""
    faults = []
    for path in SOURCES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > (most := MAX_LINES[path.suffix]):
            faults.append(f"{path.relative_to(ROOT)} has {lines} lines, at most {most}")
        if path.name.partition(".")[0] in EMPTY_NAMES:
            faults.append(f"{path.relative_to(ROOT)}: the name says nothing")
    assert faults == []
