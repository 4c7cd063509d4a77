"""`pin`: decisions become part of the spec. Its text is edited in place, so comments and layout stay as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cutegen.diagnostics import CutegenError, SpecError, suggest
from cutegen.families.knobs import plain, show
from cutegen.resolve.chain import Resolution, find_tuning_space, resolve_archs, resolve_document, split_document
from cutegen.resolve.lock import lock_path
from cutegen.spec import SpecDocument, load_text
from cutegen.spec.document import Node
from cutegen.spec.several_archs import FOR

MAX_LOST = 10  # lines of a refusal about winners that contradict what would be pinned


def pin_archs(path: Path, keys: Sequence[str]) -> tuple[str, tuple[tuple[Resolution, Resolution], ...]]:
    """`pin_decisions` of a spec for one architecture or several: the text, and what each resolves to before and after.
    keys: each is one of an architecture at least.

    CutegenError as of `pin_decisions`.
    """
    found = resolve_archs(path)
    done: list[tuple[Resolution, Resolution]] = []
    text = found[0].document.text
    for index, resolution in enumerate(found):
        here = list_open(resolution)
        own = [key for key in keys if key in here or not any(key in list_open(r) for r in found)]
        now = resolve_archs(path, raw=text.encode())[index]
        text, pinned = pin_decisions(now, own) if own or not keys else (text, now)
        done.append((resolution, pinned))
    return text, tuple(done)


def list_open(resolution: Resolution) -> dict[str, object]:
    """Decisions that may be written in; for one of several architectures those that may differ between them."""
    decisions = {d.key: d.value for d in resolution.resolved.decisions if d.origin != "spec"}
    if not resolution.document.archs:
        return decisions
    return {key: value for key, value in decisions.items() if key.partition(".")[0] in resolution.spec.by_arch}


def pin_decisions(resolution: Resolution, keys: Sequence[str]) -> tuple[str, Resolution]:
    """The spec's text with open decisions written in (all but the `tunable_keys`, or those of `keys`), and what it
    resolves to. All of them together are one tiling, without a portfolio. Those for one of several architectures are
    written under `for`.

    CutegenError when a key cannot be pinned, or when the new text would not resolve to the same kernel.
    """
    doc = resolution.document
    decisions = list_open(resolution)
    tunable = tunable_keys(resolution)
    for key in keys:
        if key not in decisions:
            _refuse(resolution, key, list(decisions))
        if key in tunable:
            said = f"`{key}` cannot be pinned: `tune` lists other values for it, which the spec would then rule out"
            raise CutegenError(said, "take it out of `tune` first", exit_code=2)
    before = resolution
    if not keys and resolution.lock.portfolio and resolution.lock.portfolio.tilings:  # what is pinned is one tiling
        doc = _write_in(doc, "portfolio", "1")
        before = resolve_document(doc, replace(resolution.lock, portfolio=None))
    for key, value in decisions.items():
        if key in keys or not (keys or key in tunable):
            doc = _write_in(doc, key, show(value))
    pinned = replace(resolve_document(doc, before.lock), read=resolution.read)
    if pinned.resolved.digest != before.resolved.digest:
        _refuse_change(resolution, pinned, decisions)
    return doc.text, pinned


def tunable_keys(resolution: Resolution) -> tuple[str, ...]:
    """Open decisions for which `tune` lists other values: written, they would contradict the list."""
    space = find_tuning_space(resolution)
    listed = space.listed if space else {}
    decisions = (d for d in resolution.resolved.decisions if d.origin != "spec" and d.key in listed)
    return tuple(d.key for d in decisions if any(plain(value) != plain(d.value) for value in listed[d.key]))


def _write_in(doc: SpecDocument, key: str, value: str) -> SpecDocument:
    """The document, or part of one for several architectures, with one more value. CutegenError: what stands there has
    a form that `insert` does not know."""
    path = key.split(".")
    try:
        if not doc.archs:
            return load_text(insert(doc, path, value), doc.name, doc.path)
        whole = load_text(doc.text, doc.name, doc.path)
        text = _begin(whole, doc.arch, path, value) or insert(whole, [FOR, doc.arch, *path], value)
        parts = split_document(load_text(text, doc.name, doc.path))
        return next(part for part in parts if part.arch == doc.arch)
    except SpecError:
        said = f"{doc.locate(tuple(path))}: `{key}` cannot be written into what stands here"
        raise CutegenError(said, "write keys as `key: value`, and pin again") from None


def _begin(doc: SpecDocument, arch: str, path: Sequence[str], value: str) -> str:
    """The text with the first value for an architecture, in lines; "" where there are some, or maps in braces."""
    own, text = doc.root.children.get(FOR), doc.text
    if text[doc.root.start : doc.root.start + 1] == "{":
        return ""
    fragment = value
    for inner in reversed(path[1:]):
        fragment = f"{{{inner}: {fragment}}}"
    if own is None:
        return _add(text, doc.root, f"{FOR}:\n  {arch}:\n    {path[0]}: {fragment}")
    if not isinstance(own.data, dict) or arch in own.children or text[own.start : own.start + 1] == "{":
        return ""
    first = next(iter(own.keys.values())).start
    indent = " " * (first - text.rfind("\n", 0, first) + 1)
    return _add(text, own, f"{arch}:\n{indent}{path[0]}: {fragment}")


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
                at, before = _place_of_empty(text, node.keys[step])
                return f"{text[:at]}{before}{fragment}{text[at:]}"
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
        gap = " " if text[end - 1] == ":" else ""  # `a:,` would be read as a key with a colon in it
        return f"{text[:end]}{gap}, {fragment}{text[end:]}"
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
        return _place_of_empty(text, node.keys[str(key)])[0] if node.keys else child.end
    if child.children and text[child.start] not in "{[":
        return _end(text, child)
    return child.start + len(text[child.start : child.end].rstrip())


def _place_of_empty(text: str, key: Node) -> tuple[int, str]:
    """Where the value of a key without one would stand, and what comes between: behind the colon, or where there is
    none, as in `{a, b: 1}`, behind the key."""
    colon = re.compile(r"\s*:").match(text, key.end)
    return (colon.end(), " ") if colon else (key.end, ": ")


def _refuse_change(resolution: Resolution, pinned: Resolution, decisions: Mapping[str, object]) -> None:
    """Pinned, the kernel would be another one: mostly, winners of the lock or tilings of its portfolio would go."""
    path, lock = resolution.document.path, resolution.lock
    chosen = lock.portfolio.tilings if lock.portfolio else ()
    tilings = [*lock.tilings.values(), *chosen]
    lost = [note for note in pinned.notes if note not in resolution.notes]
    lost[MAX_LOST:] = [f"and {len(lost) - MAX_LOST} more"] if len(lost) > MAX_LOST else []
    said = f"{path} would not resolve to the same kernel with these decisions written in{':' * bool(lost)}"
    agreed = [k for k, value in decisions.items() if all(plain(value) == t.get(k) for t in tilings)]
    remedy = ""
    if lost and tilings:
        who = "winners" if lock.tilings else "tilings of the portfolio"
        keys = f"pin only what all {who} agree with (--key): {', '.join(agreed)}; or " if agreed else ""
        less = f"take `winners` out of {lock_path(Path(path))}" if lock.tilings else "write `portfolio: 1` first"
        remedy = f"{keys}{less}"
    raise CutegenError(said, remedy, details=lost)


def _refuse(resolution: Resolution, key: str, open_keys: list[str]) -> None:
    if any(d.key == key for d in resolution.resolved.decisions):
        raise CutegenError(f"`{key}` is written in the spec already", exit_code=2)
    last_steps = " or ".join(f"`{known}`" for known in open_keys if known.endswith(f".{key}"))
    near = f"did you mean {last_steps}?" if last_steps else suggest(key, open_keys)
    hint = near or f"open decisions: {', '.join(open_keys) or 'none'}"
    raise CutegenError(f"`{key}` is not a decision of this spec", hint, exit_code=2)
