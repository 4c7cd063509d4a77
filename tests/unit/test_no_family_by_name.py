"""What works on kernels of any family knows none by name: a family says of its own what has to be known."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from test_imports import MODULES, imports, parsed, prefixed

from cutegen.families.registry import FAMILIES

PACKAGES = tuple(f"cutegen.{name}" for name in ("spec", "run", "build", "cli", "tune"))
WORDS = (*FAMILIES, *(name.partition("_")[0] for name in FAMILIES))


def shared_modules() -> dict[str, Path]:
    return {name: path for name, path in MODULES.items() if any(prefixed(name, p) for p in PACKAGES)}


def test_they_import_no_module_of_a_family() -> None:
    own = [f"cutegen.{package}.{family}" for package in ("families", "runtime", "device") for family in FAMILIES]
    faults = [
        f"{name} imports {i}"
        for name, path in shared_modules().items()
        for i in imports(path)
        if any(prefixed(i, folder) for folder in own)
    ]
    assert faults == []


def test_their_code_has_no_name_of_a_family() -> None:
    """Identifiers, and strings that are such a name: examples in messages and help are for people."""
    assert len(shared_modules()) > 50
    faults = [
        f"{path.name}:{line} {said}"
        for path in shared_modules().values()
        for line, said in _said(parsed(path))
        if said in FAMILIES or any(word in said.lower().split("_") for word in WORDS)
    ]
    assert faults == []


def _said(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.lineno, node.value
