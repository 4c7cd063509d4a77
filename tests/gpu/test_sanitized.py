"""`check --sanitize` with NVIDIA's tools: a kernel that they find nothing in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutegen.cli import main
from cutegen.run.sanitizer import find_sanitizer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not find_sanitizer(), reason="compute-sanitizer, of the CUDA toolkit, is not installed"),
]
ROOT = Path(__file__).parents[2]


def test_a_product_is_clean_under_every_tool(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", str(ROOT / "generated" / "gemm_bf16_batched_sm90a"), "--sanitize", "all", "--json"])
    (report,) = json.loads(capsys.readouterr().out)["checks"]
    assert code == 0, report
    assert [tool["tool"] for tool in report["tools"]] == ["memcheck", "racecheck", "synccheck", "initcheck"]
    assert all(tool["cases"] >= len(tool["kernels"]) > 0 for tool in report["tools"])
