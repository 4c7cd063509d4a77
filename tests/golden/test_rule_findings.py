"""The text of findings about knobs and devices: one illegal spec a file, and beside it exactly what the user reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cutegen.diagnostics import SpecError
from cutegen.resolve import resolve_file

HERE = Path(__file__).parent / "rules"
CASES = sorted(HERE.glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_text_of_findings(path: Path, golden: Callable[[Path, str], None]) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_file(path)
    golden(path.with_suffix(".txt"), caught.value.report().replace(path.as_posix(), path.name) + "\n")


def test_every_case_has_its_text() -> None:
    assert len(CASES) >= 13
    assert {path.stem for path in CASES} == {path.stem for path in HERE.glob("*.txt")}
