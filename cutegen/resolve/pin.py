"""`pin`: decisions become part of the spec, whose comments and layout stay as they are."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from cutegen.diagnostics import CutegenError, suggest
from cutegen.resolve.chain import Resolution, resolve_document
from cutegen.spec import SpecDocument, load_text


def pin_decisions(resolution: Resolution, keys: Sequence[str]) -> tuple[str, Resolution]:
    """The spec's text with open decisions written in (all, or those of `keys`), and what it resolves to.

    CutegenError when a key is no open decision, or when the new text would not resolve to the same kernel.
    """
    doc = resolution.document
    decisions = {d.key: _plain(d.value) for d in resolution.resolved.decisions if d.origin != "spec"}
    for key in keys:
        if key not in decisions:
            written = any(d.key == key for d in resolution.resolved.decisions)
            said = "is written in the spec already" if written else "is no decision of this spec"
            hint = "" if written else suggest(key, decisions) or f"open decisions: {', '.join(decisions)}"
            raise CutegenError(f"`{key}` {said}", hint, exit_code=2)
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    tree = yaml.load(doc.text)
    for key, value in decisions.items():
        if not keys or key in keys:
            _write(tree, key.split("."), value)
    stream = io.StringIO()
    yaml.dump(tree, stream)
    text = stream.getvalue()
    pinned = resolve_document(_reload(doc, text), resolution.lock)
    if pinned.resolved.digest != resolution.resolved.digest:
        raise CutegenError(f"{doc.path} would not resolve to the same kernel with these decisions written in")
    return text, pinned


def _write(tree: CommentedMap, path: Sequence[str], value: object) -> None:
    """Set a value below maps that exist or are made; new maps below the top are written in flow style."""
    for depth, step in enumerate(path[:-1]):
        if not isinstance(tree.get(step), CommentedMap):
            made = CommentedMap()
            if depth:
                made.fa.set_flow_style()
            tree[step] = made
        tree = tree[step]
    if isinstance(value, list):
        value = CommentedSeq(value)
        value.fa.set_flow_style()
    tree[path[-1]] = value


def _reload(doc: SpecDocument, text: str) -> SpecDocument:
    return load_text(text, doc.name, doc.path)


def _plain(value: object) -> object:
    return json.loads(json.dumps(value))
