"""Where each line of a generated module comes from: lines of templates, and fields of the objects that they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter

from cutegen.diagnostics import CutegenError
from cutegen.render.layout import laid_out
from cutegen.render.package import RenderedPackage, Resolved
from cutegen.render.tracing import Part, Source, shared_tracer, split_lines


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a generated module. number: from 1."""

    number: int
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Each once; an indentation is not a source of a line that has others."""
        found = [part.source for part in self.parts if part.source and part.text.strip()]
        return tuple(dict.fromkeys(found or [part.source for part in self.parts if part.source]))

    def describe(self) -> str:
        """Lines of templates, each with its expressions that wrote something and the fields whose values that is."""
        places: dict[str, dict[str, list[str]]] = {}
        for source in self.sources:
            expressions = places.setdefault(f"{source.template}:{source.line}", {})
            if source.expression:
                expressions.setdefault(source.expression, []).extend(map(str, source.fields))
        return " | ".join(f"{place}  {_describe(expressions)}".rstrip() for place, expressions in places.items())

    def to_json(self) -> dict[str, object]:
        return {"line": self.number, "text": self.text, "parts": [part.to_json() for part in self.parts]}


def _describe(expressions: Mapping[str, Iterable[str]]) -> str:
    said = (f"{{{{ {text} }}}} {', '.join(dict.fromkeys(fields))}" for text, fields in expressions.items())
    return "; ".join(text.rstrip() for text in said)


def find_origins(resolved: Resolved, package: RenderedPackage, *others: Resolved) -> dict[str, tuple[Line, ...]]:
    """The lines of each file of a package of `resolved`, and of `others` in it, with what wrote them. CutegenError: the
    family changes what its templates write."""
    found = {}
    for name, parts in shared_tracer().render(resolved, *others).items():
        lines = _laid_out(parts)
        text = package.files[name].removesuffix("\n").split("\n")
        lines[:0] = ([Part(header, None)] for header in text[: -len(lines)])
        found[name] = tuple(Line(number, tuple(line)) for number, line in enumerate(lines, 1))
        if [line.text for line in found[name]] != text:
            said = f"the family `{resolved.family}` changes what its templates write to {name}"
            raise CutegenError(said, exit_code=2)
    return found


def _laid_out(parts: Iterable[Part]) -> list[list[Part]]:
    """Parts by line of the text that the layout makes of theirs."""
    lines = split_lines(parts)
    while len(lines) > 1 and not any(part.text for part in lines[-1]):  # as render_template does
        lines.pop()
    made: list[list[Part]] = []
    rest = iter(lines)
    for given, laid in laid_out("\n".join("".join(part.text for part in line) for line in lines)):
        sources = [next(rest) for _ in given]
        made += sources if laid is given else _align([part for line in sources for part in line], laid)
    return made


def _align(parts: Sequence[Part], laid: Iterable[str]) -> Iterator[list[Part]]:
    """Lines that the layout made of others: their characters have the sources of the same ones there; a line of new
    brackets has that where the others begin."""
    given = "".join(part.text for part in parts)
    sources = [part.source for part in parts for _ in part.text]
    first = next(filter(None, sources), None)
    at = 0
    for line in laid:
        blocks = SequenceMatcher(None, given[at:], line, autojunk=False).get_matching_blocks()
        if 2 * sum(block.size for block in blocks) < len(line.strip()):  # a comment that has gone above its line
            blocks, at = SequenceMatcher(None, given, line, autojunk=False).get_matching_blocks(), 0
        own: list[Source | None] = [None] * len(line)
        for start, place, size in blocks:
            own[place : place + size] = sources[at + start : at + start + size]
        if not any(own):
            own = [first and Source(first.template, first.line)] * len(line)
        at += max((start + size for start, _, size in blocks if size > 1), default=0)
        yield [Part("".join(c for c, _ in run), source) for source, run in groupby(zip(line, own), itemgetter(1))]
