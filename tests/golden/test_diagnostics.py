"""The text of diagnostics: one bad spec a file, and beside it exactly what the user reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cutegen.diagnostics import CutegenError
from cutegen.spec import load_document, parse_spec

HERE = Path(__file__).parent / "diagnostics"
CASES = sorted(HERE.glob("*.yaml"))


def findings(path: Path) -> str:
    with pytest.raises(CutegenError) as caught:
        parse_spec(load_document(path))
    return caught.value.report().replace(path.as_posix(), path.name) + "\n"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_text_of_findings(path: Path, golden: Callable[[Path, str], None]) -> None:
    golden(path.with_suffix(".txt"), findings(path))


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 45
    assert {path.stem for path in CASES} == {path.stem for path in HERE.glob("*.txt")}
