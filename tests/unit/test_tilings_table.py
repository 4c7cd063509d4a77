"""Several tilings of a plan are a table of plain data, which gives the numbers that the kernels were resolved with."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import PLAIN, resolve_text

from cutegen.families.gemm.rendering import render
from cutegen.render.layout import WIDTH, entry
from cutegen.resolve import resolve_file
from cutegen.runtime.base import read_tilings

ROOT = Path(__file__).parents[2]
SPECS = sorted(path for path in (ROOT / "specs").glob("*.yaml") if not path.name.endswith(".lock.yaml"))
TABLE = ("SHARED", "COLUMNS", "ROWS")


def plan_text(spec: Path) -> str:
    return (ROOT / "generated" / spec.stem / "plan.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_shipped_plans_have_the_numbers_of_their_tilings(spec: Path) -> None:
    plan, resolved = importlib.import_module(f"generated.{spec.stem}.plan"), resolve_file(spec).resolved
    instances = getattr(resolved, "instances", resolved.tilings)
    assert list(plan.TILINGS.items()) == [(t.name, t.numbers) for t in instances]
    assert getattr(plan, "MODULES", None) in (None, {t.name: t.module for t in instances})


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_a_table_is_data_with_a_source_for_each_number(spec: Path) -> None:
    text, resolved = plan_text(spec), resolve_file(spec).resolved
    found = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in TABLE
    }
    assert set(found) == (set(TABLE) if len(resolved.tilings) > 1 else set())
    for name in (*found.get("SHARED", ()), *found.get("COLUMNS", ())):
        assert re.search(rf'(?m)^    "{name}"(: .*)?,  # \S|^    # \S.*\n(    #.*\n)*    "{name}"', text), name
    rows = re.search(r"(?s)# fmt: off\n(.*)# fmt: on\n", text)
    if rows:
        tilings = sum(map(len, found["ROWS"].values()))
        assert len(rows[1].splitlines()) <= 2 + 2 * len(found["ROWS"]) + 2 * tilings
    assert max(len(line) for line in text.splitlines() if not line.endswith("# noqa: E501")) <= WIDTH


def test_one_tiling_is_written_field_by_field() -> None:
    text = render(resolve_text(PLAIN).resolved)["plan.py"]
    assert '": GemmTiling(\n        tile=(128, 256, 64),  # tiling.tile\n' in text
    assert "read_tilings" not in text


def test_the_legend_says_what_decides() -> None:
    text = plan_text(ROOT / "specs" / "gemm_bf16_llama3_8b_sm90a.yaml")
    assert '"multicast",  # tma.a.multicast, tma.b.multicast; with swap_ab: tma.b.multicast, tma.a.multicast\n' in text
    assert '"stage_bytes",  # (tile m x 2 B + tile n x 2 B) x tile k\n' in text


@dataclass(frozen=True)
class Numbers:
    threads: int
    stages: int = 2
    tile: tuple[int, int] = (8, 8)


def test_a_row_is_as_long_as_it_needs_to_be() -> None:
    rows: dict[str, Any] = {"kernel": {"a": (64,), "b": (128, (16, 8))}, "kernel_wide": {"c": (256,)}}
    tilings, modules = read_tilings(Numbers, {"stages": 4}, ("threads", "tile"), rows)
    assert tilings == {"a": Numbers(64, 4), "b": Numbers(128, 4, (16, 8)), "c": Numbers(256, 4)}
    assert modules == {"a": "kernel", "b": "kernel", "c": "kernel_wide"}
    with pytest.raises(ValueError, match="a has 2 numbers, and there are 1 columns"):
        read_tilings(Numbers, {}, ("threads",), {"kernel": {"a": (1, 2)}})
    with pytest.raises(ValueError, match="warps"):
        read_tilings(Numbers, {}, ("warps",), rows)


@pytest.mark.parametrize(("count", "lines"), [(4, 1), (14, 2), (18, 2)])
def test_a_row_takes_at_most_two_lines(count: int, lines: int) -> None:
    text = entry("t64x64x64_a_kernel", ((64, 64),) * count, 8)
    assert len(text.splitlines()) == lines
    assert max(map(len, (" " * 8 + text).splitlines())) <= WIDTH
    assert ast.literal_eval(f"{{{text}}}") == {"t64x64x64_a_kernel": ((64, 64),) * count}
