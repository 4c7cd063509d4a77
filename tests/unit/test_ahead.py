"""Kernels that are compiled ahead by children: they import what their parent could, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cutegen.runtime.ahead import compile_ahead, usable_cpus


def test_a_child_imports_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -c` would put it first."""
    code = "from pathlib import Path\nclass PLAN:\n    compile = Path({!r}).write_text\n"
    folders = [tmp_path / "here", tmp_path / "installed"]
    for folder in folders:
        folder.mkdir()
        (folder / "planned.py").write_text(code.format(str(folder / "imported")))
    monkeypatch.chdir(folders[0])
    monkeypatch.setattr(sys, "path", [str(folders[1]), *(entry for entry in sys.path if entry)])
    compile_ahead("planned", ["key"], 1)
    assert [(folder / "imported").exists() for folder in folders] == [False, True]
    assert usable_cpus() >= 1
