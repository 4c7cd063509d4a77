"""A package of which a killed render has replaced a part: told when it is imported, installed or standalone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gemm_specs import PLAIN

from cutegen.render import RenderedPackage, make_standalone, render_package, write_package
from cutegen.resolve import resolve_document
from cutegen.runtime.header import MARK, read_digest
from cutegen.spec import load_text

ROOT = Path(__file__).parents[2]
LONG = "a_kernel_with_a_name_that_makes_its_header_longer"[:48]


def rendered(name: str, stages: int) -> RenderedPackage:
    return render_package(
        resolve_document(load_text(PLAIN + f"portfolio: 1\npipeline: {{stages: {stages}}}\n", name), None).resolved
    )


def import_in(folder: Path, name: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    code = f"import {name}; {name}.PLAN.tilings"  # and no torch
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["plain", LONG])
@pytest.mark.parametrize("standalone", [False, True])
def test_a_package_of_two_renders_is_not_imported(name: str, standalone: bool, tmp_path: Path) -> None:
    first, second = (rendered(name, stages) for stages in (3, 4))
    if standalone:
        first, second = make_standalone(first), make_standalone(second)
    write_package(first, tmp_path)
    paths = () if standalone else (ROOT,)
    assert import_in(tmp_path, name, *paths).returncode == 0
    assert read_digest(tmp_path / name / "kernel.py") == first.digest[:32]
    (tmp_path / name / "kernel.py").write_text(second.files["kernel.py"])
    run = import_in(tmp_path, name, *paths)
    assert run.returncode == 1
    said = f"ImportError: {tmp_path / name}: kernel.py and plan.py come from two renders; render the package again"
    assert said in run.stderr
    write_package(second, tmp_path)
    assert import_in(tmp_path, name, *paths).returncode == 0
    (tmp_path / name / "mine.py").write_text("# not generated\n")
    (tmp_path / name / "odd.py").write_bytes(b"\xff")
    assert import_in(tmp_path, name, *paths).returncode == 0


def test_the_digest_follows_the_text(tmp_path: Path) -> None:
    """Of one kernel two versions may render different texts."""
    one = rendered("plain", 3)
    assert one.digest == rendered("plain", 3).digest != rendered("plain", 4).digest
    digests = {text.split("Package: ")[1][:32] for text in one.files.values()}
    assert digests == {one.digest[:32]}
    (tmp_path / "file.py").write_text(f"{MARK}\n# Spec: x. Kernel: 0123. Body: 0123.\n\n")
    assert read_digest(tmp_path / "file.py") == ""
    assert read_digest(tmp_path / "none.py") == ""
