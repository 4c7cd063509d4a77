"""A loaded spec: plain data, and the place in the file that each part of it came from."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TypeAlias

from cutegen.diagnostics import Diagnostic, Location

KeyPath: TypeAlias = tuple[str | int, ...]
Data: TypeAlias = "dict[str, Data] | list[Data] | str | int | float | bool | None"


@dataclass(slots=True)
class Node:
    """A value and its place. start, end: offsets into the text. style: quote or block character of a scalar, or None.

    keys: for a map, the node of each key. children: for a map by key, for a list by index.
    """

    data: Data
    start: int
    end: int
    style: str | None = None
    keys: dict[str, Node] = field(default_factory=dict)
    children: dict[str | int, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpecDocument:
    """name: the spec's name, an identifier unless `faults` say otherwise. path: as shown to the user. data: dicts,
    lists and scalars only. lines: of the text, without blanks at their ends; findings share them. faults: findings
    about the file, reported together with those about its content. archs: where it is what a file says for one of
    several architectures, all of them."""

    name: str
    path: str
    text: str
    root: Node
    line_starts: tuple[int, ...]
    lines: tuple[str, ...]
    faults: tuple[Diagnostic, ...] = ()
    archs: tuple[str, ...] = ()

    @property
    def arch(self) -> str:
        """Which of several architectures it is for; "" where the file is for one."""
        return str(self.data["arch"]) if self.archs else ""

    @property
    def data(self) -> dict[str, Data]:
        assert isinstance(self.root.data, dict)
        return self.root.data

    def locate(self, path: KeyPath, *, key: bool = False, span: tuple[int, int] | None = None) -> Location:
        """Where the value at `path` stands, or its nearest existing ancestor.

        key: the key of the last step instead of its value. span: (start, end) offsets within a scalar string; escapes,
        doubled quotes and folded lines of the YAML form are accounted for. A span over lines ends with its first line.
        """
        node, key_node = self.root, None
        found = True
        for step in path:
            if step not in node.children:
                found = False
                break
            key_node = node.keys.get(step) if isinstance(step, str) else None
            node = node.children[step]
        if found and span is not None and isinstance(node.data, str):
            offsets = character_offsets(self.text, node)
            first, last = min(span[0], len(offsets) - 1), min(max(span[1] - 1, span[0]), len(offsets) - 1)
            start, end = offsets[first], offsets[last] + (1 if span[1] > span[0] else 0)
        elif key_node is not None and (key or not found or node.keys or node.start == node.end):
            # A map is named by its key; an empty value has no characters of its own.
            start, end = key_node.start, key_node.end
        elif node.keys:
            first_key = next(iter(node.keys.values()))
            start, end = first_key.start, first_key.end
        else:
            start, end = node.start, node.end
        return self.place(start, end)

    def place(self, start: int, end: int) -> Location:
        """The location of text[start:end], cut at the end of its first line."""
        line = bisect.bisect_right(self.line_starts, start) - 1
        origin = self.line_starts[line]
        end = min(end, origin + len(self.lines[line]))
        return Location(self.path, line + 1, start - origin + 1, max(end - origin + 1, start - origin + 2))

    def diagnostic(
        self,
        rule: str,
        path: KeyPath,
        message: str,
        remedy: str = "",
        *,
        key: bool = False,
        span: tuple[int, int] | None = None,
    ) -> Diagnostic:
        """A finding at the place that `locate` gives."""
        place = self.locate(path, key=key, span=span)
        return Diagnostic(rule, message, place, remedy, self.lines[place.line - 1])


def character_offsets(text: str, node: Node) -> list[int]:
    """Offset in the text of each character of a scalar string, and of its end.

    Folding turns line breaks into blanks and drops indentation, so value and source are walked side by side: every
    character that is not white space stands in the source in the same order.
    """
    assert isinstance(node.data, str)
    at, offsets = node.start, []
    if node.style in ("'", '"'):
        at += 1
    elif node.style in ("|", ">"):
        at = text.find("\n", at) + 1
    for char in node.data:
        while node.style == '"' and text[at : at + 2] == "\\\n":
            at += 2
        if not char.isspace():
            while at < node.end and text[at].isspace():
                at += 1
        offsets.append(min(at, node.end))
        if node.style == '"' and text[at : at + 1] == "\\":
            at += {"x": 4, "u": 6, "U": 10}.get(text[at + 1 : at + 2], 2)
        elif node.style == "'" and char == "'":
            at += 2
        elif not char.isspace() or text[at : at + 1].isspace():
            at += 1
    offsets.append(min(at, node.end))
    return offsets
