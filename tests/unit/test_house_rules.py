"""Sizes and names of source files."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = {".py": 400, ".jinja": 200}
EMPTY_NAMES = ("utils", "util", "helpers", "helper", "misc", "common", "manager")
SOURCES = sorted(
    path
    for folder in ("cutegen", "templates", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in MAX_LINES
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES[path.suffix]
    assert path.name.partition(".")[0] not in EMPTY_NAMES
