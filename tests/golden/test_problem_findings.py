"""The text of findings about expressions and tensors: a bad spec a file, and beside it exactly what the user reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cutegen.diagnostics import SpecError
from cutegen.families.registry import load_family
from cutegen.spec import SpecDocument, load_document, parse_spec

HERE = Path(__file__).parent / "problems"


def bind(doc: SpecDocument) -> None:
    spec = parse_spec(doc)
    load_family(spec.kernel).bind(spec, doc)


CASES = sorted(HERE.glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_text_of_findings(path: Path, golden: Callable[[Path, str], None]) -> None:
    doc = load_document(path)
    with pytest.raises(SpecError) as caught:
        bind(doc)
    golden(path.with_suffix(".txt"), caught.value.report().replace(path.as_posix(), path.name) + "\n")


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 35
    assert {path.stem for path in CASES} == {path.stem for path in HERE.glob("*.txt")}
