"""8-bit products on the PTX machine, whose tensor core sums fp8 with 14 bits: fast and promoted, and integers."""

from __future__ import annotations

import importlib.util
import re

import pytest

pytest.importorskip("numpy")
pytest.importorskip("torch")

from gemm_specs import EDGES, FP8, resolve_text
from ptx_machine import Simulation, assert_passes, load_resolution, run
from ptx_machine.host import missing_tool

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
CASES = [name for name, text in EDGES.items() if "e4m3" in text or "i8" in text]


@pytest.mark.parametrize("name", CASES)
def test_an_edge_over_several_tiles_per_cta(name: str) -> None:
    assert_passes(load_resolution(resolve_text(EDGES[name]), Simulation(sm_count=2)), {"m": 300, "n": 272, "k": 272})


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        # The first MMA of a part goes on with the last part's sum.
        (r"(mov\.b32\s+%r\d+), 0;(?=\s*// begin inline asm\s*\{\s*\.reg \.pred p;)", r"\1, 1;"),
        # The part is added before it is there.
        (r"wgmma\.wait_group\.sync\.aligned\s+0;", ""),
    ],
)
def test_a_wrong_promotion_is_seen(pattern: str, replacement: str) -> None:
    def mutate(text: str) -> str:
        changed, count = re.subn(pattern, replacement, text)
        assert count
        return changed

    subject = load_resolution(resolve_text(FP8), Simulation(sm_count=2, mutate=mutate))
    assert run(subject, {"m": 128, "n": 128, "k": 256}).status in ("wrong", "raised")
