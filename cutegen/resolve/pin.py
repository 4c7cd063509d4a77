"""`pin`: decisions become part of the spec. Its text is edited in place, so comments and layout stay as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from cutegen.diagnostics import CutegenError, suggest
from cutegen.resolve.chain import Resolution, resolve_document
from cutegen.spec import SpecDocument, load_text
from cutegen.spec.document import Node


def pin_decisions(resolution: Resolution, keys: Sequence[str]) -> tuple[str, Resolution]:
    """The spec's text with open decisions written in (all, or those of `keys`), and what it resolves to.

    CutegenError when a key is no open decision, or when the new text would not resolve to the same kernel.
    """
    doc = resolution.document
    decisions = {d.key: d.value for d in resolution.resolved.decisions if d.origin != "spec"}
    for key in keys:
        if key not in decisions:
            _refuse(resolution, key, list(decisions))
    for key, value in decisions.items():
        if not keys or key in keys:
            shown = value if isinstance(value, str) else json.dumps(value)
            doc = load_text(insert(doc, key.split("."), shown), doc.name, doc.path)
    pinned = replace(resolve_document(doc, resolution.lock), read=resolution.read)
    if pinned.resolved.digest != resolution.resolved.digest:
        raise CutegenError(f"{doc.path} would not resolve to the same kernel with these decisions written in")
    return doc.text, pinned


def insert(doc: SpecDocument, path: Sequence[str], value: str) -> str:
    """The text with `path: value` in it. New maps are written in flow style, beside what their parent holds already."""
    node, text = doc.root, doc.text
    for depth, step in enumerate(path):
        fragment = value
        for inner in reversed(path[depth + 1 :]):
            fragment = f"{{{inner}: {fragment}}}"
        child = node.children.get(step)
        if child is None:
            return _add(text, node, f"{step}: {fragment}")
        if not isinstance(child.data, dict):
            # `auto` is written out, or there is nothing behind the colon.
            if child.start == child.end:
                colon = text.index(":", node.keys[step].end) + 1
                return f"{text[:colon]} {fragment}{text[colon:]}"
            return text[: child.start] + fragment + text[child.end :]
        node = child
    raise AssertionError(path)


def _add(text: str, node: Node, fragment: str) -> str:
    """One more entry of a map: behind the last one within braces, on a line of its own in a block."""
    flow = text[node.start : node.start + 1] == "{"
    if not node.children:
        return f"{text[: node.start]}{{{fragment}}}{text[node.end :]}"
    end = _end(text, node)
    if flow:
        return f"{text[:end]}, {fragment}{text[end:]}"
    first = next(iter(node.keys.values()))
    indent = " " * (first.start - text.rfind("\n", 0, first.start) - 1)
    line = text.find("\n", end)
    if line < 0:
        return f"{text}\n{indent}{fragment}\n"
    return f"{text[: line + 1]}{indent}{fragment}\n{text[line + 1 :]}"


def _end(text: str, node: Node) -> int:
    """Where the last entry of a map ends; the end of a block collection itself lies before the next token."""
    key, child = list(node.children.items())[-1]
    if child.start == child.end:
        return text.index(":", node.keys[str(key)].end) + 1 if node.keys else child.end  # nothing behind the colon
    if child.children and text[child.start] not in "{[":
        return _end(text, child)
    return child.start + len(text[child.start : child.end].rstrip())


def _refuse(resolution: Resolution, key: str, open_keys: list[str]) -> None:
    if any(d.key == key for d in resolution.resolved.decisions):
        raise CutegenError(f"`{key}` is written in the spec already", exit_code=2)
    hint = suggest(key, open_keys) or f"open decisions: {', '.join(open_keys) or 'none'}"
    raise CutegenError(f"`{key}` is no decision of this spec", hint, exit_code=2)
