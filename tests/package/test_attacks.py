"""A few cases of each attack; `python -m tests.attacks NAME` runs many, with another seed each time."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = {"specs": 60, "hostile": 20, "links": 60}  # some 10 s of CPU time in all; names: tests/property/test_names.py


@pytest.mark.parametrize("name", CASES)
def test_attack(name: str) -> None:
    assert list(importlib.import_module(f"attacks.{name}").attack(CASES[name], seed=1)) == []


def test_attacks_have_a_command() -> None:
    command = [sys.executable, "-m", "tests.attacks", "specs", "--count", "3", "--seed", "7"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("specs: 3 cases, seed 7\n0 of 3 cases fell short")
