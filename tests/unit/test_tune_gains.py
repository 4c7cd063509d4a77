"""How much faster the winners of a tune are than what ran before, as a table of a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import PLAIN

from cutegen.cli.pages import fill_sections
from cutegen.diagnostics import CutegenError
from cutegen.resolve import lock_path, resolve_file


def test_gains_of_a_tune_are_those_of_its_winners(tmp_path: Path) -> None:
    def tried(name: str, median: float | None) -> dict[str, Any]:
        return {"name": name, "speed": {"median": median, "low": 1.0, "high": 2.0} if median else []}

    problems = [
        {"winner": "fast", "candidates": [tried("fast", 1.21), tried("slow", 0.9)]},
        {"winner": None, "candidates": [tried("slow", 0.9), tried("broken", None)]},
    ]
    tune = {"spec": "a.yaml", "problems": problems, "winners": []}
    (tmp_path / "tune.json").write_text(json.dumps(tune))
    page = tmp_path / "page.md"
    page.write_text("<!-- winners: tune.json --gains -->\n<!-- /winners -->\n")
    filled = fill_sections(page, tmp_path)
    assert filled
    assert filled.splitlines()[-3].endswith("| 2 | 1.100 | 1.210 | 1 |")
    (tmp_path / "product.yaml").write_text(PLAIN)
    page.write_text("<!-- winners: product.yaml --gains -->\n<!-- /winners -->\n")
    lock_path(tmp_path / "product.yaml").write_text(resolve_file(tmp_path / "product.yaml").lock.to_text())
    with pytest.raises(CutegenError, match="keeps no gains"):
        fill_sections(page, tmp_path)
