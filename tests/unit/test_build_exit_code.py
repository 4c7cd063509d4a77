"""The exit code of `build`: 1 tells of a kernel, 2 that nothing is known of it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gemm_specs import PLAIN

from cutegen.build.worker import Outcome
from cutegen.cli.build import exit_code

ROOT = Path(__file__).parents[2]


def report(ok: bool, **outcome: Any) -> Any:
    return SimpleNamespace(ok=ok, outcome=Outcome(**outcome))


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        ([], 0),
        ([report(True)], 0),
        ([report(True), report(False)], 1),
        ([report(False, starved=True), report(False)], 2),
        ([report(False, killed=True)], 2),
    ],
)
def test_what_could_not_run_is_2(reports: list[Any], code: int) -> None:
    assert exit_code(reports) == code


@pytest.mark.dsl
def test_a_full_disk_says_nothing_of_a_kernel(tmp_path: Path) -> None:
    pytest.importorskip("cutlass")
    (tmp_path / "plain.yaml").write_text(PLAIN + "portfolio: 1\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUTEGEN_CACHE_DIR": str(tmp_path / "cache")}
    limit = (100_000, 100_000)  # room for the package, and none for what the compiler writes
    run = subprocess.run(
        [sys.executable, "-m", "cutegen", "build", "plain.yaml"], cwd=tmp_path, env=environment, text=True,
        capture_output=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )  # fmt: skip
    assert run.returncode == 2, run.stderr
    assert "not built" in run.stdout
    assert "the disk is full" in run.stdout
    assert "failed" not in run.stdout
