"""Specs and locks of older versions, brought to today's: comments and layout of a spec stay as they are.

Version 1 of the spec language is the only one so far: LANGUAGE_STEPS is empty, and a change of the language adds its
step here. What changed in locks is listed in resolve/lock.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cutegen.arch import ARCHS
from cutegen.diagnostics import CutegenError
from cutegen.resolve.lock import GONE, lock_path, read_lock
from cutegen.roots import read_file
from cutegen.spec import SpecDocument, load_text
from cutegen.spec.base import LANGUAGE
from cutegen.spec.load import load_document, own_line
from cutegen.spec.text_rules import MAX_BYTES

KEY = "cutegen"  # of the version, in specs and in locks


@dataclass(frozen=True, slots=True)
class LanguageStep:
    """What a version of the language calls otherwise than the one before it: keys by dotted path, and the new name of
    the last step. A path of which a spec has no key is passed over."""

    version: int
    renamed: Mapping[str, str]


LANGUAGE_STEPS: tuple[LanguageStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Migration:
    """A file, and what it is to be. changes: in words, none where it is up to date. notes: what nobody but its author
    can do."""

    path: Path
    text: str
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def migrate(path: Path) -> list[Migration]:
    """A spec, and the locks that it has. CutegenError: one cannot be read, or is of a later version."""
    document = load_document(path)
    if document.faults:
        raise CutegenError(f"{path}: {document.faults[0].message}", document.faults[0].remedy)
    found = [replace(migrate_spec(document), path=path)]
    locks = [lock_path(path), *(lock_path(path, arch) for arch in ARCHS)]
    return [*found, *(_migrate_lock(lock) for lock in locks if lock.exists())]


def migrate_spec(
    document: SpecDocument, steps: Sequence[LanguageStep] = LANGUAGE_STEPS, to: int = LANGUAGE
) -> Migration:
    """The text of a spec in version `to`. CutegenError: its version is later, or no number."""
    path, held = Path(document.path), document.data.get(KEY)
    oldest = min((step.version for step in steps), default=to + 1) - 1
    if held is None:
        if to > oldest:
            said = f"{path} has no key `{KEY}`, and there are several versions of the spec language"
            raise CutegenError(said, f"write the version that it is of, from {oldest} to {to}")
        if "kernel" not in document.data:
            raise CutegenError(f"{path} is not a spec: it has no key `kernel`", "name the files that are specs")
        first = min(node.start for node in document.root.keys.values())
        column = first - (document.text.rfind("\n", 0, first) + 1)
        between = ", " if document.text[document.root.start] == "{" else "\n" + " " * column
        changed = f"{document.text[:first]}{KEY}: {to}{between}{document.text[first:]}"
        return Migration(path, changed, (f"`{KEY}: {to}` is written: there is one version of the spec language",))
    if type(held) is not int or held < 1:
        raise CutegenError(f"{path}: `{KEY}` is not a version of the spec language", f"write `{KEY}: {to}`")
    if held > to:
        said = f"{path} is of version {held} of the spec language, and this cutegen knows those up to {to}"
        raise CutegenError(said, "upgrade cutegen")
    changes: list[str] = []
    for step in steps:
        if held < step.version <= to:
            for old, new in step.renamed.items():
                if (renamed := _rename(document, old.split("."), new)) is not None:
                    document = renamed
                    changes.append(f"`{old}` is called `{new}`")
    if held < to:
        node = document.root.children[KEY]
        text = f"{document.text[: node.start]}{to}{document.text[node.end :]}"
        return Migration(path, text, (*changes, f"version {held} becomes {to}"))
    return Migration(path, document.text)


def _rename(document: SpecDocument, steps: Sequence[str], new: str) -> SpecDocument | None:
    """The document with another name for one key; None where it has no such key. CutegenError: it has both names."""
    node = document.root
    for step in steps[:-1]:
        if step not in node.children:
            return None
        node = node.children[step]
    if steps[-1] not in node.keys:
        return None
    if new in node.keys:
        said = f"{document.path} has both `{'.'.join(steps)}` and `{new}`, which it is called now"
        raise CutegenError(said, "take one of them out")
    key = node.keys[steps[-1]]
    text = f"{document.text[: key.start]}{new}{document.text[key.end :]}"
    return load_text(text, document.name, document.path)


def _migrate_lock(path: Path) -> Migration:
    """The lock as this version writes it; what is decided in it stays."""
    lock = read_lock(path)
    assert lock
    text, changes = read_file(path, MAX_BYTES).decode(), []
    changes += [f"`{key}` is gone: {why}" for key, why in GONE.items() if own_line((key,)).search(text)]
    if lock.to_text() != text and not changes:
        changes.append("written in today's form")
    unbound = sum(not winner.measured for winner in lock.winners)
    notes = []
    if unbound:
        said = "do not say what they measured, so no call runs them"
        notes.append(f"{unbound} winners {said}: run `cutegen tune`, or `cutegen lock --drop-winners`")
    return Migration(path, lock.to_text(), tuple(changes), tuple(notes))
