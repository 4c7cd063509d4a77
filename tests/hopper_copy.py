"""Kernels of sm_120a on Hopper, for their numerics: mma.sync, ldmatrix and TMA are there as well, in the same PTX."""

from __future__ import annotations

import shutil
from pathlib import Path


def copy_for_hopper(package: Path, folder: Path) -> Path:
    """A copy of a generated package of sm_120a in `folder`, whose plan has its kernels compiled for sm_90a."""
    copied = shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    plan = copied / "plan.py"
    text = plan.read_text(encoding="utf-8")
    assert text.count('arch = "sm_120a"') == 1
    plan.write_text(text.replace('arch = "sm_120a"', 'arch = "sm_90a"'), encoding="utf-8")
    return copied
