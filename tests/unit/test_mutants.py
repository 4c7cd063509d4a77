"""The faults of tests/mutant_list.py can be injected today, and docs/mutants.md shows what became of them."""

from __future__ import annotations

import json
from pathlib import Path

import mutants
import pytest
from mutant_list import MUTANTS

ROOT = Path(__file__).parents[2]


def test_every_fault_has_its_place() -> None:
    """The texts that mutants replace are in their files once, and the tests that they name exist."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert mutants.changed_text(mutant) != (ROOT / mutant.file).read_text(encoding="utf-8")
        for test in mutant.tests:
            file, _, function = test.partition("::")
            assert f"def {function.partition('[')[0]}" in (ROOT / file).read_text(encoding="utf-8"), test


def test_a_fault_without_its_text_is_told(tmp_path: Path) -> None:
    mutant = MUTANTS[0]
    (tmp_path / mutant.file).parent.mkdir(parents=True)
    for text, count in (("", 0), (2 * mutant.old, 2)):
        (tmp_path / mutant.file).write_text(text, encoding="utf-8")
        with pytest.raises(mutants.StaleError, match=f"{mutant.file} has {count} times what the mutant replaces"):
            mutants.changed_text(mutant, tmp_path)


def test_the_page_is_made_of_the_data() -> None:
    rows = json.loads((ROOT / mutants.RESULTS).read_text(encoding="utf-8"))
    assert [row["name"] for row in rows] == [mutant.name for mutant in MUTANTS]
    assert (ROOT / mutants.PAGE).read_text(encoding="utf-8") == mutants.draw_page(rows)
