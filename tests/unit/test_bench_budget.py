"""`bench --sms`: a budget that runs no cluster of a kernel is an error before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from gemm_specs import PLAIN

from cutegen.cli import main

SPEC = Path(__file__).parents[2] / "specs" / "gemm_bf16_sm90a.yaml"

pytest.importorskip("torch")


def test_a_budget_that_runs_no_cluster_is_told_before_a_gpu_is_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the tilings of a portfolio those are chosen whose clusters a budget can run: one that runs any is enough."""
    pairs = tmp_path / "in_pairs.yaml"
    pairs.write_text(PLAIN + "tiling: {tile: [128, 128, 64], cluster: [2, 1]}\nportfolio: 1\n")
    assert main(["bench", str(pairs), "--sms", "1"]) == 2
    err = capsys.readouterr().err
    assert "--sms 1: the smallest cluster of in_pairs has 2 CTAs" in err
    assert "use at least 2" in err
    assert main(["bench", str(SPEC), "--sms", "1"]) == 2
    assert "cluster" not in capsys.readouterr().err
