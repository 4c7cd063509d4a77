"""How far untuned kernels with an epilogue are behind tuned ones, as docs/performance/gemm.md has it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "performance" / "gemm.md").read_text()
STORED = DOCS / "measurements" / "h100_epilogues"


@pytest.mark.parametrize("name", ["bias_gelu", "swiglu", "residual"])
def test_figures_are_those_of_the_tune(name: str) -> None:
    problems = json.loads((STORED / f"tune_{name}.json").read_text())["problems"]
    gains = []
    for problem in problems:
        winner = next((c for c in problem["candidates"] if c["name"] == problem["winner"]), None)
        gains.append(winner["speed"]["median"] if winner else 1.0)
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    (n,), (k,) = ({p["problem"][dim] for p in problems} for dim in "nk")
    ahead = sum(gain > 1 for gain in gains)
    assert f"| `{name}` | {n}, {k} | {len(gains)} | {mean:.3f} | {max(gains):.3f} | {ahead} |" in PAGE
