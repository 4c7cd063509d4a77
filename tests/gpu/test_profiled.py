"""`profile` with Nsight Compute itself: what it measures of a product that is compute-bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutegen.cli import main
from cutegen.run.profiling import QUANTITIES, REASONS, find_obstacle

pytestmark = pytest.mark.gpu
SPEC = Path(__file__).parents[2] / "specs" / "gemm_bf16_sm90a.yaml"
SHAPE = "m=4096,n=4096,k=4096"


@pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())
def test_a_product_and_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.ncu-rep"
    code = main(["profile", str(SPEC), "--shape", SHAPE, "-o", str(kept), "--json"])
    said = capsys.readouterr()
    if "ERR_NVGPUCTRPERM" in said.out + said.err:
        pytest.skip("no permission to read the GPU's counters")
    assert code == 0, said.out
    assert kept.stat().st_size > 0
    (found,) = json.loads(said.out)["profiles"]
    (kernel,) = found["kernels"]
    measured, planned = kernel["measured"], found["planned"]
    assert measured.keys() == {q.name for q in QUANTITIES}
    for name in ("registers", "threads", "shared memory", "cluster"):
        assert measured[name] == planned[name], name
    assert measured["duration"] < 3 * planned["duration"]
    assert measured["tensor cores"] > 30
    assert measured["DRAM traffic"] > 0.4 * planned["DRAM traffic"]
    samples = kernel["samples"]
    assert {"load", "accumulate", "store"} <= samples.keys()
    assert {reason for counts in samples.values() for reason in counts} <= REASONS.keys()


def test_ranges_and_a_duration(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["profile", str(SPEC), "--shape", SHAPE, "--mode", "annotation", "--json"])
    (found,) = json.loads(capsys.readouterr().out)["profiles"]
    assert code == 0
    assert found["kernels"][0]["measured"]["duration"] < 3 * found["planned"]["duration"]
