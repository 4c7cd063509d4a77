"""Specs for several architectures: a document for each, with what `for` says of it in place of what the rest says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from cutegen.diagnostics import MAX_KEPT, CutegenError, Diagnostic, Rule, SpecError, cut, register, suggest
from cutegen.spec.base import list_names
from cutegen.spec.document import Node, SpecDocument

FOR = "for"
ARCH_LIST = register(
    Rule(
        "arch-list",
        "a spec for several architectures lists each once",
        "`arch: [sm_90a, sm_100a]` makes one package with kernels for each, which a call chooses among by its device. "
        "`for` may give each other knobs. Families whose kernels are of one architecture take one name.",
        "arch: [sm_90a, sm_90a]",
    )
)
FOR_ARCH = register(
    Rule(
        "for-arch",
        "`for` says how kernels of some of several architectures are made",
        "What is under `for: {sm_100a: ...}` takes the place of what the rest of the spec says. One plan, one "
        "reference and one function are for all architectures, so what is computed, passed and promised is not there.",
        "arch: [sm_90a, sm_100a]\nfor: {sm_100a: {dims: {k: 4096}}}",
    )
)
T = TypeVar("T")


def split_archs(doc: SpecDocument, allowed: Collection[str]) -> tuple[SpecDocument, ...]:
    """The document itself, or one for each architecture where it lists several. allowed: the keys that `for` may have,
    of its family; none: the family's specs are for one. SpecError: `arch` and `for` do not say so."""
    listed = doc.data.get("arch")
    if not isinstance(listed, list):
        if allowed and FOR in doc.data and doc.data[FOR] is None:
            return (replace(doc, root=_without(doc.root)),)
        if allowed and FOR in doc.data:
            said, remedy = "`arch` names one architecture", "list several, or write what is in it into the spec"
            raise SpecError([doc.diagnostic(FOR_ARCH.id, (FOR,), said, remedy, key=True)])
        return (doc,)
    if found := [*_list_findings(doc, listed, allowed), *_for_findings(doc, listed, allowed)]:
        raise SpecError(found)
    return tuple(_part(doc, arch, index) for index, arch in enumerate(map(str, listed)))


def each_arch(parts: Collection[SpecDocument], run: Callable[[SpecDocument], T]) -> tuple[T, ...]:
    """What `run` makes of each part. SpecError: the findings about all of them; what only some have names those."""
    done: list[T] = []
    found: dict[Diagnostic, list[str]] = {}
    more = 0
    for part in parts:
        try:
            done.append(run(part))
        except SpecError as error:
            more = max(more, error.more)
            for finding in error.diagnostics:
                found.setdefault(finding, []).append(part.arch)
    if found:
        raise SpecError([_named(finding, archs, len(parts)) for finding, archs in found.items()][:MAX_KEPT], more)
    return tuple(done)


def refuse_several(path: Path, archs: Sequence[str]) -> None:
    """CutegenError (exit 2): a spec or package is for several architectures."""
    if len(archs) > 1:
        said = f"{path} is for {' and '.join(archs)}, and this takes what is for one of them"
        raise CutegenError(said, "write a spec for that one alone", exit_code=2)


def _named(finding: Diagnostic, archs: list[str], count: int) -> Diagnostic:
    """A finding with the architectures that it is about, where they are not all and it does not say so itself."""
    if len(archs) == count or all(arch in finding.message for arch in archs):
        return finding
    return replace(finding, message=f"for {' and '.join(archs)}: {finding.message}")


def _list_findings(doc: SpecDocument, listed: Sequence[object], allowed: Collection[str]) -> list[Diagnostic]:
    if not allowed:
        said = f"kernels of family `{cut(str(doc.data.get('kernel')))}` are for one architecture, and there are more"
        return [doc.diagnostic(ARCH_LIST.id, ("arch",), said, "write one name")]
    if not listed:
        return [doc.diagnostic(ARCH_LIST.id, ("arch",), "the list has no architecture", "write one, or several")]
    return [
        doc.diagnostic(ARCH_LIST.id, ("arch", index), f"`{cut(str(arch))}` is listed twice", "list it once")
        if isinstance(arch, str)
        else doc.diagnostic(ARCH_LIST.id, ("arch", index), "this is not the name of an architecture", "write a name")
        for index, arch in enumerate(listed)
        if not isinstance(arch, str) or arch in listed[:index]
    ]


def _for_findings(doc: SpecDocument, listed: Sequence[object], allowed: Collection[str]) -> list[Diagnostic]:
    own = doc.data.get(FOR)
    if own is None or not allowed:
        return []
    if not isinstance(own, dict):
        said = "`for` must be a map from architectures to keys of the spec"
        return [doc.diagnostic(FOR_ARCH.id, (FOR,), said, "write `for: {sm_100a: {tiling: ...}}`")]
    found = []
    for arch, keys in own.items():
        if arch not in listed:
            names = [a for a in listed if isinstance(a, str)]
            remedy = suggest(arch, names) or f"`arch` lists {list_names(names)}"
            said = f"`{cut(arch)}` is not among the architectures of the spec"
            found.append(doc.diagnostic(FOR_ARCH.id, (FOR, arch), said, remedy, key=True))
        elif not isinstance(keys, dict | None):
            said = f"`for.{arch}` must be a map of keys of the spec"
            found.append(doc.diagnostic(FOR_ARCH.id, (FOR, arch), said, f"its keys are {list_names(allowed)}"))
        else:
            for key in keys or ():
                if key not in allowed:
                    remedy = suggest(key, allowed) or f"what may differ is {list_names(allowed)}"
                    said = f"`{cut(key)}` is the same for all architectures, or not known"
                    found.append(doc.diagnostic(FOR_ARCH.id, (FOR, arch, key), said, remedy, key=True))
    return found


def _part(doc: SpecDocument, arch: str, index: int) -> SpecDocument:
    own, base = doc.root.children.get(FOR), _without(doc.root)
    listed = base.children["arch"].children
    base = _with(base, {**base.children, "arch": listed[index]})
    over = own.children.get(arch) if own else None
    archs = tuple(str(node.data) for node in listed.values()) if len(listed) > 1 else ()
    return replace(doc, root=_merge(base, over) if over else base, archs=archs)


def _without(root: Node) -> Node:
    """The spec without `for`."""
    return _with(root, {key: node for key, node in root.children.items() if key != FOR})


def _with(node: Node, children: dict[str | int, Node]) -> Node:
    return replace(node, data={str(key): child.data for key, child in children.items()}, children=children)


def _merge(base: Node, over: Node) -> Node:
    """Maps key by key; anything else is replaced. A key without a value counts as absent."""
    if over.data is None:
        return base
    if not isinstance(base.data, dict) or not isinstance(over.data, dict):
        return over
    children = dict(base.children)
    for key, node in over.children.items():
        children[key] = _merge(children[key], node) if key in children else node
    return replace(_with(base, children), keys={**base.keys, **over.keys})
