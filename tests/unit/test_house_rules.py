"""Sizes and names of source files, and who opens files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_LINES = {".py": 400, ".jinja": 200}
EMPTY_NAMES = ("utils", "util", "helpers", "helper", "misc", "common", "manager")
SOURCES = sorted(
    path
    for folder in ("cutegen", "templates", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in MAX_LINES
)


def test_files() -> None:
    """One test for all files: each of them as one costs more than what it looks at."""
    faults = []
    for path in SOURCES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > (most := MAX_LINES[path.suffix]):
            faults.append(f"{path.relative_to(ROOT)} has {lines} lines, at most {most}")
        if path.name.partition(".")[0] in EMPTY_NAMES:
            faults.append(f"{path.relative_to(ROOT)}: the name says nothing")
    assert faults == []


# Who opens files without `roots.read_file`, which knows links, devices and sizes: nobody what a checkout brings, code
# that runs anyway aside. A new line here wants a reason.
OPENERS = {
    "__main__.py": "/dev/null",
    "build/bundling.py": "new files",
    "build/wheel.py": "new files, and metadata of installed packages",
    "cli/__init__.py": "/dev/null",
    "cli/author.py": "pages of docs, and shipped specs",
    "cli/pages.py": "pages of docs",
    "cli/start.py": "starters, part of the package",
    "cli/explain_word.py": "part of the package",
    "distributions.py": "metadata of installed packages",
    "epilogue/installed.py": "source of installed packages",
    "families/generated_names.py": "part of the package",
    "files.py": "what is written: new files, and outputs that were named",
    "loaded.py": "new files",
    "machine/files.py": "what the compiler writes",
    "machine/forms.py": "part of the package",
    "machine/host.py": "what the compiler writes",
    "machine/package.py": "new files",
    "machine/worker.py": "/proc/meminfo",
    "render/environment.py": "part of the package",
    "render/names_table.py": "part of the package",
    "render/standalone.py": "part of the package",
    "roots.py": "read_file itself",
    "run/profiling.py": "code that runs",
    "run/role_trace.py": "code that runs, and new files",
    "run/sanitizer.py": "what the compiler writes, and new files",
    "run/subject.py": "code that runs",
    "runtime/bundled.py": "code that runs, and /proc/self/maps",
    "runtime/cache.py": "the cache, in folders that trust.py has checked, and new files",
    "runtime/compile.py": "what the compiler writes",
    "runtime/gpu.py": "an installed package",
    "runtime/header.py": "code that runs",
    "runtime/sources.py": "/proc/cpuinfo, and code that runs",
    "runtime/temporary.py": "temporary folders",
    "runtime/trust.py": "the cache: it has its own rules",
}


def test_files_of_a_checkout_are_read_by_one_function() -> None:
    found = {
        path.relative_to(ROOT / "cutegen").as_posix()
        for path in (ROOT / "cutegen").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _opens(node.func)
    }
    assert found == OPENERS.keys()


def _opens(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    return function.attr in ("read_text", "read_bytes") or (function.attr == "open" and owner in ("os", "io", "path"))


def test_tests_that_whole_folders_leave_out_have_a_step_of_their_own() -> None:
    mark = re.compile(r"pytest\.mark\.thorough\b")
    marked = {path.parent for path in SOURCES if mark.search(path.read_text(encoding="utf-8"))}
    assert marked == {ROOT / "tests" / "dsl"}
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "files=(tests/dsl/test_*.py)" in steps
    assert 'pytest -n auto --dist loadfile -m thorough "${half[@]}"\n' in steps
