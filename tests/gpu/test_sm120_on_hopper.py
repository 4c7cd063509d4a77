"""Kernels of sm_120a, compiled for Hopper, in every mode of `check`: their numerics on hardware, not their speed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hopper_copy import copy_for_hopper

from cutegen.run.check import check_kernel

pytestmark = pytest.mark.gpu

# All but block-scaled ones: Hopper has no such instruction.
PACKAGES = [
    path
    for path in sorted((Path(__file__).parents[2] / "generated").glob("gemm_*_sm120a"))
    if "block_scale" not in (path / "kernel.py").read_text(encoding="utf-8")
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_numerics_over_edge_shapes(package: Path, tmp_path: Path) -> None:
    report = check_kernel(copy_for_hopper(package, tmp_path))
    assert report.ok, "\n".join((report.summary(), *report.findings()))
    assert {r.case.mode for r in report.results if r.status == "pass"} >= {"numerics", "strides", "graph", "repeat"}
    assert not [r for r in report.results if r.status in ("skipped", "refused")]
