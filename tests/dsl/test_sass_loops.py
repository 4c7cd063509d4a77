"""Instructions of loops over k: how they are counted, and what the page about Blackwell says of them."""

from __future__ import annotations

import importlib.util
import json

import pytest
from sass_loops import PAIRS, RESULTS, ROOT, compile_shipped, find_loop, measure

from cutegen.build.facts import disassemble, find_nvdisasm

HELD = json.loads(RESULTS.read_text(encoding="utf-8"))["kernels"]
SASS = """\
.L_x_0:
        /*0000*/                   MOV R1, R2 ;
.L_x_1:
        /*0010*/                   UTCHMMA gdesc[UR4], gdesc[UR6] ;
        /*0020*/              @!P0 SYNCS.PHASECHK R1 ;
        /*0030*/               @P1 BRA `(.L_x_1) ;
        /*0040*/                   UTCHMMA gdesc[UR4], gdesc[UR6] ;
        /*0050*/                   BRA `(.L_x_0) ;
        /*0060*/                   BRA `(.L_x_2) ;
.L_x_2:
        /*0070*/                   EXIT ;
"""


def test_the_shortest_loop_is_counted() -> None:
    assert find_loop(SASS, "UTCHMMA") == (3, 1)
    assert find_loop(SASS, "MOV") == (6, 1)
    with pytest.raises(ValueError, match="no loop has UTMALDG"):
        find_loop(SASS, "UTMALDG")


def test_the_page_has_the_data() -> None:
    page = (ROOT / "docs" / "blackwell.md").read_text(encoding="utf-8")
    for name in PAIRS:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
        found = [float(cell) for cell in row.strip("| ").split(" | ")[2:]]
        assert found == [HELD[name][who][role] for role in ("mma", "load") for who in ("cutegen", "cutlass")]


@pytest.mark.dsl
@pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed")
@pytest.mark.skipif(find_nvdisasm() is None, reason="nvdisasm is not installed")
def test_loops_have_no_more_instructions_than_were_counted() -> None:
    name = "gemm_mxfp8_sm100a"
    found = measure(disassemble(compile_shipped(name)), *PAIRS[name][1:])
    assert all(found[role] <= count for role, count in HELD[name]["cutegen"].items())
