"""The variables of the environment that cutegen reads are those of the table in docs/command-line.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]*)*")


@cache
def trees() -> list[ast.Module]:
    """Of all modules, parsed where a test wants them and not in every process that collects tests."""
    return [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "cutegen").rglob("*.py"))]


def constants() -> dict[str, str]:
    """Of all modules: names that stand for a text."""
    found = {}
    for tree in trees():
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                found |= {t.id: node.value.value for t in node.targets if isinstance(t, ast.Name)}
    return found


def has_environment(node: ast.expr) -> bool:
    return any(isinstance(inner, ast.Attribute) and inner.attr == "environ" for inner in ast.walk(node))


def read_names() -> Iterator[str]:
    """In the expressions that have `os.environ` in them."""
    known = constants()
    for tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.expr) or not has_environment(node):
                continue
            for inner in ast.walk(node):
                text = known.get(inner.id) if isinstance(inner, ast.Name) else getattr(inner, "value", None)
                if isinstance(text, str) and NAME.fullmatch(text):
                    yield "CUTE_DSL_*" if text in ("CUTE_DSL_", known["OWN_VARIABLE"]) else text


def test_the_table_has_every_variable_that_is_read() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = text.partition("\n## Variables of the environment\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([A-Z_*]+)` \|", section, re.MULTILINE)
    assert set(listed) == set(read_names())
    assert len(listed) == len(set(listed))
