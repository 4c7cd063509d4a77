"""What holds for the files of any spec: the same bytes in any process, the formatter's layout, valid standalone."""

from __future__ import annotations

import ast
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gemm_specs import EDGES
from long_names import long_names
from spec_variety import BLOCK_VALUES, varied_spec

from cutegen.families.gemm import portfolio
from cutegen.families.registry import load_family
from cutegen.render import RenderedPackage, make_standalone, render_package
from cutegen.resolve import resolve_document
from cutegen.spec import load_text

ROOT = Path(__file__).parents[2]
COUNT = 24
HASHES = f"""\
import hashlib
from spec_variety import varied_spec
from cutegen.families.gemm import portfolio
from cutegen.render import make_standalone, render_package
from cutegen.resolve import resolve_document
from cutegen.spec import load_text
portfolio.MOST_PROBLEMS = 12
for number in range({COUNT // 2}):
    resolution = resolve_document(load_text(varied_spec(number, number == 4), f"kernel_{{number}}"), None)
    package = make_standalone(render_package(resolution.resolved))
    text = resolution.lock.to_text() + "".join(f"{{name}} {{body}}" for name, body in package.files.items())
    print(number, hashlib.sha256(text.encode()).hexdigest())
"""
# A number first, which the linter wants last.
COMPARED = EDGES["smallest_tile"].replace("gelu_tanh(alpha", "where(0 < alpha * acc <= 1, acc, 2 * acc) + relu(alpha")
IMPORT = """\
import sys
sys.modules["cutegen"] = None  # as if it were not installed
import kernel_0
assert not {"torch", "cutlass"} & set(sys.modules)
kernel_0.PLAN.get_warmup_keys()
"""


@functools.cache
def rendered(number: int) -> RenderedPackage:
    """Of every eighth spec one with a portfolio."""
    return render(varied_spec(number, number % 8 == 0), f"kernel_{number}")


def resolve(text: str, name: str) -> Any:
    """Tilings are chosen for fewer problems, which takes less and makes the same forms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portfolio, "MOST_PROBLEMS", 12)
        return resolve_document(load_text(text, name), None).resolved


def render(text: str, name: str) -> RenderedPackage:
    return render_package(resolve(text, name))


def write(package: RenderedPackage, folder: Path) -> None:
    for name, text in package.files.items():
        path = folder / package.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_bytes_do_not_depend_on_the_process() -> None:
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parents[1])])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", HASHES], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed, "LC_ALL": "C", "TZ": zone},
        ).stdout
        for seed, zone in (("0", "UTC"), ("1", "Asia/Tokyo"), ("4242", "America/Lima"))
    }  # fmt: skip
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == COUNT // 2


def test_files_are_laid_out_as_the_formatter_would(tmp_path: Path) -> None:
    ruff = shutil.which("ruff", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if ruff is None:
        pytest.skip("ruff is not installed")
    for number in range(COUNT):
        write(rendered(number), tmp_path / "generated")
    for number, text in enumerate(BLOCK_VALUES):
        write(render(text, f"blocks_{number}"), tmp_path / "generated")
    for name, text in long_names(0).items():
        write(render(text, name), tmp_path / "generated")
    write(render(COMPARED, "compared"), tmp_path / "generated")
    write(make_standalone(rendered(0)), tmp_path / "generated" / "standalone")
    ours = 'lint.isort.known-first-party=["cutegen"]'
    for command in (["format", "--diff"], ["check"]):
        options = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), "--config", ours]
        run = subprocess.run([ruff, *command, *options, "generated"], cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr


def test_the_layout_of_long_names_means_the_same() -> None:
    for name, text in long_names(1).items():
        resolved = resolve(text, name)
        bodies = load_family(resolved.family).render(resolved)
        package = render_package(resolved)
        assert {file: meaning(body) for file, body in bodies.items()} == {
            file: meaning(body) for file, body in package.files.items()
        }


def meaning(text: str) -> str:
    """All but comments and docstrings, whose lines are wrapped."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


def imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module)


@pytest.mark.parametrize("number", range(4))
def test_standalone_packages_import_nothing_of_cutegen(number: int) -> None:
    package = make_standalone(rendered(number))
    modules = {name.partition(".")[0] for text in package.files.values() for name in imported(text)}
    for name, text in package.files.items():
        assert ("Apache-2.0" in text) == name.startswith("_cutegen/")
    foreign = modules - set(sys.stdlib_module_names)
    assert foreign == {"cutlass", "cuda", "torch"}


def test_a_standalone_package_is_whole(tmp_path: Path) -> None:
    write(make_standalone(rendered(0)), tmp_path)
    subprocess.run([sys.executable, "-c", IMPORT], cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": ""})
