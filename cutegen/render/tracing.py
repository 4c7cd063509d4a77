"""Templates rendered with marks around what each of their lines, and each field that they read, writes.

Jinja's code generator compiles them once more, with the marks. Marks go through macros and filters, and are taken out
before anything else looks at the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, nodes
from jinja2.compiler import CodeGenerator
from jinja2.filters import do_indent
from jinja2.visitor import NodeTransformer

from cutegen.families.registry import load_family
from cutegen.render.environment import OTHER_ENVIRONMENT, TemplateEnvironment
from cutegen.render.package import Resolved
from cutegen.render.params import find_declarations, find_values

# Characters for private use, which no name, number or sentence of a spec has: begin NUMBER text end.
_BEGIN, _NUMBER_END, _END = "\ue000", "\ue001", "\ue002"
_MARK = re.compile(f"{_BEGIN}([0-9]+){_NUMBER_END}|{_END}")
_INDENTED_MARKS = re.compile(f"^ +(?=(?:{_MARK.pattern})+$)", re.MULTILINE)
_BLANK_ENDS = re.compile(
    rf"((?:\s|{_MARK.pattern})*)(.*?)((?:\s|{_MARK.pattern})*)".replace("([0-9]+)", "[0-9]+"), re.DOTALL
)
_TEXTS = (str, bytes, int, float, tuple, list, dict, set, frozenset)


class Field(NamedTuple):
    """What an expression read: a field, property or method of a type."""

    module: str
    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"


@dataclass(frozen=True, slots=True)
class Source:
    """What wrote some characters. template: path below the folder of templates; line: in it, from 1. expression:
    between its braces, "" for what stands in the template as it is. fields: those that the characters are the values
    of; none where they stand in the expression itself."""

    template: str
    line: int
    expression: str = ""
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Characters of a line. source: None for what the layout and the header of a file add."""

    text: str
    source: Source | None

    def to_json(self) -> dict[str, object]:
        if self.source is None:
            return {"text": self.text}
        fields = [".".join(field) for field in self.source.fields]
        return {"text": self.text, **asdict(self.source), "fields": fields}


class _Traced(str):
    """A text that knows which field each part of it is the value of."""

    __slots__ = ("pieces",)
    pieces: tuple[tuple[str, Field | None], ...]

    def __add__(self, other: str) -> str:
        return _traced((*self.pieces, *_pieces(other))) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return _traced((*_pieces(other), *self.pieces))


class _TracedNumber(int):
    """A number that knows which field it is the value of."""

    field: Field


def _traced(pieces: tuple[tuple[str, Field | None], ...]) -> _Traced:
    made = _Traced("".join(text for text, _ in pieces))
    made.pieces = pieces
    return made


def _pieces(value: str | int) -> tuple[tuple[str, Field | None], ...]:
    if isinstance(value, _TracedNumber):
        return ((str(value), value.field),)
    return value.pieces if isinstance(value, _Traced) else ((str(value), None),)


def _trace_value(value: Any, field: Field) -> Any:
    """The value, as texts and numbers that know the field; what holds none is left alone."""
    if type(value) is str:
        return _traced(((value, field),))
    if type(value) is int:
        number = _TracedNumber(value)
        number.field = field
        return number
    if type(value) in (tuple, list):
        return type(value)(_trace_value(item, field) for item in value)
    return value


class _Read(NamedTuple):
    owner: object
    field: Field
    value: Any


class _Sources:
    """Sources by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[Source, int] = {}
        self._every: list[Source] = []

    def __getitem__(self, number: int) -> Source:
        return self._every[number]

    def mark(self, text: str, source: Source) -> str:
        """The text between marks."""
        number = self._numbers.setdefault(source, len(self._every))
        if number == len(self._every):
            self._every.append(source)
        return f"{_BEGIN}{number}{_NUMBER_END}{text}{_END}"

    def parts(self, marked: str) -> Iterator[Part]:
        """The text without its marks; what is inside of several has the innermost source."""
        open_: list[Source | None] = [None]
        at = 0
        for found in _MARK.finditer(marked):
            if text := marked[at : found.start()]:
                yield Part(text, open_[-1])
            at = found.end()
            if found[1]:
                open_.append(self[int(found[1])])
            else:
                open_.pop()
        if text := marked[at:]:
            yield Part(text, open_[-1])


class _Tracing(TemplateEnvironment):
    """The environment whose text has marks."""

    def __init__(self, sources: _Sources, folder: Path | None) -> None:
        super().__init__(folder)
        self.code_generator_class = _Marking
        self.filters |= {"indent": _indent, "trim": _trim, "length": _length}
        self.filters |= {"declared": self._declared, "values": self._values}
        self.sources = sources
        self.fields: dict[tuple[type, str], Field] = {}
        self.expressions: list[Source] = []
        self._reads: list[list[_Read]] = [[]]

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self._read(obj, attribute, super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        found = super().getitem(obj, argument)
        return self._read(obj, argument, found) if isinstance(argument, str) else found

    def _read(self, obj: Any, name: str, value: Any) -> Any:
        kind = type(obj)
        if isinstance(obj, _TEXTS) or kind.__module__.startswith("jinja2."):
            return value
        field = self.fields.setdefault((kind, name), Field(kind.__module__, kind.__qualname__, name))
        value = _trace_value(value, field)
        self._reads[-1].append(_Read(obj, field, value))
        return value

    def _declared(self, text: str) -> str:
        """The filter, whose text keeps its marks; so does that of `values`."""
        plain, sources = self._split(text)
        return "\n".join(self._join(plain, sources, *places) for places in find_declarations(plain))

    def _values(self, text: str) -> list[str]:
        plain, sources = self._split(text)
        return [self._join(plain, sources, place) for place in find_values(plain)]

    def _split(self, marked: str) -> tuple[str, list[Source | None]]:
        """The text without marks, and the source of each of its characters."""
        parts = list(self.sources.parts(marked))
        return "".join(part.text for part in parts), [part.source for part in parts for _ in part.text]

    def _join(self, plain: str, sources: Sequence[Source | None], *places: slice) -> str:
        characters = [each for place in places for each in zip(plain[place], sources[place])]
        runs = ((source, "".join(text for text, _ in run)) for source, run in groupby(characters, itemgetter(1)))
        return "".join(self.sources.mark(text, source) if source else text for source, text in runs)

    def begin(self, number: int) -> Source:
        """Called before an expression is evaluated. number: of those in `expressions`."""
        self._reads.append([])
        return self.expressions[number]

    def mark(self, source: Source, value: Any) -> str:
        """Called with its value: the text between marks."""
        reads, text = self._reads.pop(), str(value)
        if _BEGIN in text:  # a macro's, which has marks of its own
            return self.sources.mark(text, source)
        pieces = _pieces(value) if isinstance(value, _Traced | _TracedNumber) else _find_values(text, reads)
        texts = ((piece, replace(source, fields=fields)) for piece, fields in _with_fields(pieces) if piece)
        return "".join(self.sources.mark(piece, made) for piece, made in texts)


def _with_fields(pieces: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, tuple[Field, ...]]]:
    for text, found in pieces:
        yield text, () if found is None else (found,) if isinstance(found, Field) else found


def _find_values(text: str, reads: Sequence[_Read]) -> Iterator[tuple[str, Any]]:
    """The text in parts, each with the fields whose values it is: all of it with all of them where no value of theirs
    is to be found in it, as of one that was computed."""
    owners = {id(read.owner) for read in reads}
    last = [read for read in reads if id(read.value) not in owners]
    last = [read for read in last if callable(read.value)] or last
    at = 0
    for field, value in ((read.field, value) for read in last for value in _flat(read.value)):
        if value and (place := text.find(value, at)) >= 0:
            yield text[at:place], None
            yield value, field
            at = place + len(value)
    yield text[at:], None if at else tuple(dict.fromkeys(read.field for read in last))


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, str | int | float):
        yield str(value)


def _indent(text: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    """Jinja's filter, for which a line that has marks alone is blank."""
    return _INDENTED_MARKS.sub("", do_indent(text, width, first, blank))


def _trim(text: str) -> str:
    """Jinja's filter, which leaves marks among the blanks at both ends."""
    whole = _BLANK_ENDS.fullmatch(text)
    assert whole
    begin, inner, end = whole.groups()
    return "".join(found[0] for found in _MARK.finditer(begin)) + inner + "".join(m[0] for m in _MARK.finditer(end))


def _length(value: Any) -> int:
    """Jinja's filter, which counts no marks."""
    return len(_MARK.sub("", value) if isinstance(value, str) else value)


class _Marking(CodeGenerator):
    """Compiles templates whose text has marks."""

    def visit_Template(self, node: nodes.Template, frame: Any = None) -> None:
        environment, name = self.environment, self.name or ""
        assert isinstance(environment, _Tracing)
        assert environment.loader
        source, _, _ = environment.loader.get_source(environment, name)
        _Marks(environment, name, _expressions(environment, source)).visit(node)
        super().visit_Template(node, frame)


def _expressions(environment: Environment, source: str) -> list[str]:
    """What is between braces, in the order of the text."""
    found: list[str] = []
    inside: list[str] | None = None
    for _, kind, text in environment.lex(source):
        if kind == "variable_begin":
            inside = []
        elif kind == "variable_end":
            found.append("".join(inside or ()).strip())
            inside = None
        elif inside is not None:
            inside.append(text)
    return found


class _Marks(NodeTransformer):
    def __init__(self, environment: _Tracing, template: str, expressions: Iterable[str]) -> None:
        self.environment, self.template, self.expressions = environment, template, iter(expressions)

    def visit_Output(self, node: nodes.Output) -> nodes.Output:
        made: list[nodes.Expr] = []
        for child in node.nodes:
            if isinstance(child, nodes.TemplateData):
                made.append(nodes.TemplateData(self._marked(child), lineno=child.lineno))
            else:
                self.environment.expressions.append(Source(self.template, child.lineno, next(self.expressions)))
                made.append(self._call(child, len(self.environment.expressions) - 1))
        node.nodes = made
        return node

    def _marked(self, data: nodes.TemplateData) -> str:
        numbered = enumerate(data.data.splitlines(keepends=True), data.lineno)
        return "".join(self.environment.sources.mark(text, Source(self.template, line)) for line, text in numbered)

    def _call(self, value: nodes.Expr, number: int) -> nodes.Expr:
        """`value`, marked; of a choice what is chosen, without what the choice read."""
        if isinstance(value, nodes.CondExpr):
            other = value.expr2 and self._call(value.expr2, number)
            return nodes.CondExpr(value.test, self._call(value.expr1, number), other, lineno=value.lineno)
        begin = self._method("begin", [nodes.Const(number)], value.lineno)
        return self._method("mark", [begin, value], value.lineno)

    def _method(self, name: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
        call = nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None, lineno=line)
        return call.set_environment(self.environment)  # type: ignore[return-value]


class Tracer:
    """Renders kernels with marks. Templates are compiled once for all that one tracer renders."""

    def __init__(self) -> None:
        self._sources = _Sources()
        self._environments: dict[Path | None, _Tracing] = {}

    def _environment(self, folder: Path | None) -> _Tracing:
        if folder not in self._environments:
            self._environments[folder] = _Tracing(self._sources, folder)
        return self._environments[folder]

    @property
    def fields(self) -> frozenset[Field]:
        """All that templates have read, whether or not its value stands in a text."""
        return frozenset(field for made in self._environments.values() for field in made.fields.values())

    def render(self, resolved: Resolved, *others: Resolved) -> dict[str, tuple[Part, ...]]:
        """What the family renders, by file, before it is laid out."""
        token = OTHER_ENVIRONMENT.set(self._environment)
        try:
            marked = load_family(resolved.family).render(resolved, *others)
        finally:
            OTHER_ENVIRONMENT.reset(token)
        return {name: tuple(self._sources.parts(text)) for name, text in marked.items()}


@cache
def shared_tracer() -> Tracer:
    """The one of this process."""
    return Tracer()


def split_lines(parts: Iterable[Part]) -> list[list[Part]]:
    """Parts by line, without ends of lines; of an empty line that which ends it."""
    lines: list[list[Part]] = [[]]
    for part in parts:
        *ended, last = part.text.split("\n")
        for text in ended:
            if text or not lines[-1]:
                lines[-1].append(Part(text, part.source))
            lines.append([])
        if last:
            lines[-1].append(Part(last, part.source))
    return lines
