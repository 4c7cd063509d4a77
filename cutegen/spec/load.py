"""YAML text to a SpecDocument: parser events only, own scalar rules, no object ever built from a tag."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from cutegen.diagnostics import CutegenError, Diagnostic, SpecError, cut
from cutegen.files import LOCK_SUFFIX
from cutegen.roots import read_file
from cutegen.spec import text_rules as rules
from cutegen.spec.document import Data, Node, SpecDocument
from cutegen.spec.names import kernel_name, name_problem, propose_name
from cutegen.spec.text_rules import MAX_BYTES, MAX_DEPTH, MAX_DIGITS, MAX_VALUES

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Data] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_FLOW_END = re.compile(r"\s*[,}]")
# What YAML calls printable; anything else is the mark of a binary file.
_UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file is to be. keys: of its top level; a file without any is something else, and nothing of it is quoted.
    remedy: how one begins."""

    name: str
    keys: tuple[str, ...]
    remedy: str

    def finding(self, shown: str) -> Diagnostic:
        """That a file is something else."""
        keys = " or ".join(f"`{key}:`" for key in self.keys)
        return Diagnostic(
            rules.NOT_A_SPEC.id, f"{shown}: this is not a {self.name}: no line begins with {keys}", None, self.remedy
        )


SPEC = Kind("spec", ("cutegen", "kernel"), "a spec begins with `cutegen: 1`, `kernel:` and `arch:`")


def load_document(
    path: Path, raw: bytes | None = None, *, within: Path | None = None, kind: Kind = SPEC
) -> SpecDocument:
    """Read a spec file; raw: what to read in its place, as an editor has it; within: the folder that links stay in, by
    default its own; kind: errors in the YAML of another do not quote it.
    CutegenError when it cannot be read, SpecError with every finding about its text; those about its name are the
    document's `faults`."""
    shown = path.as_posix()
    try:
        if raw is None:
            raw = read_file(path, MAX_BYTES, within)
    except OSError as error:
        raise CutegenError(f"{shown}: cannot be read: {error.strerror or error}", exit_code=2) from None
    if path.name.endswith(LOCK_SUFFIX):
        raise CutegenError(f"{shown} is a lock, not a spec", "give the .yaml next to it", exit_code=2)
    faults: tuple[Diagnostic, ...] = ()
    if problem := name_problem(kernel_name(path.stem)):
        message = f"{shown}: the file name is the kernel's name, and `{path.stem}` {problem}"
        remedy = f"rename the file, for example to {propose_name(path.stem)}.yaml"
        faults = (Diagnostic(rules.SPEC_NAME.id, message, None, remedy),)
    if not shown.isprintable():
        message = f"{shown}: the path has characters that are not printed"
        faults += (Diagnostic(rules.SPEC_NAME.id, message, None, "rename the folder, or the file"),)
    try:
        return replace(_decode(raw, path, shown, kind), faults=faults)
    except SpecError as error:
        raise SpecError((*faults, *error.diagnostics), error.more) from None


def _decode(raw: bytes, path: Path, shown: str, kind: Kind) -> SpecDocument:
    if len(raw) > MAX_BYTES:
        message = f"{shown}: larger than {MAX_BYTES // 1024} KiB"
        raise SpecError([Diagnostic(rules.FILE_SIZE.id, message, None, "a spec is a page of text; split it")])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{shown}: byte {error.start} is not UTF-8"
        raise SpecError([Diagnostic(rules.FILE_ENCODING.id, message, None, "save the file as UTF-8 text")]) from None
    try:
        return load_text(text, kernel_name(path.stem), shown)
    except SpecError as error:
        if own_line(kind.keys).search(text):
            raise
        raise SpecError(_without_text(error, kind.finding(shown))) from None


def own_line(keys: Collection[str]) -> re.Pattern[str]:
    """A line that begins with one of the keys."""
    # Blanks only: `\s*` would go over the empty lines below from each of them.
    return re.compile(rf"""^[ \t]*(?:\{{[ \t]*)?["']?(?:{"|".join(keys)})["']?[ \t]*:""", re.MULTILINE)


def _without_text(error: SpecError, instead: Diagnostic) -> list[Diagnostic]:
    """What is said of a file that is something else: nothing that quotes it."""
    return [replace(d, source_line="") for d in error.diagnostics if d.rule in rules.QUOTE_NOTHING] or [instead]


def load_text(text: str, name: str, path: str = "<text>") -> SpecDocument:
    """Parse YAML text. Raises SpecError; a syntax error ends the reading, other findings are collected."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    starts = (0, *(i + 1 for i, c in enumerate(text) if c == "\n"))
    document = SpecDocument(name, path, text, Node({}, 0, 0), starts, tuple(map(str.rstrip, text.split("\n"))))
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise SpecError([Diagnostic(rules.FILE_SIZE.id, f"{path}: larger than {MAX_BYTES // 1024} KiB", None)])
    reader = _Reader(document)
    reader.check_characters()
    reader.read()
    return replace(document, root=reader.root)


class _Open:
    """A map or list whose end has not come yet."""

    def __init__(self, node: Node, key: str | None) -> None:
        self.node = node
        self.key = key  # of a map: the key that waits for its value


class _Reader:
    def __init__(self, document: SpecDocument) -> None:
        self.document = document
        self.text = document.text
        self.findings: list[Diagnostic] = []
        self.root = Node({}, 0, 0)

    def find(self, rule: str, start: int, end: int, message: str, remedy: str = "") -> None:
        place = self.document.place(min(start, len(self.text)), end)
        self.findings.append(Diagnostic(rule, message, place, remedy, self.document.lines[place.line - 1]))

    def check_characters(self) -> None:
        bad = _UNPRINTABLE.search(self.text)
        if bad:
            code = f"U+{ord(bad.group()):04X}"
            self.find(rules.FILE_ENCODING.id, bad.start(), bad.end(), f"character {code} is not text", "a spec is text")
            raise SpecError(self.findings)
        for tab in re.finditer(r"^[ ]*(\t+)", self.text, re.MULTILINE):
            self.find(rules.YAML_TAB.id, *tab.span(1), "a tab indents this line", "indent with spaces")
        # Before the parser: it skips directives that it does not know.
        directive = re.match(r"(?:[ ]*(?:#.*)?\n)*(%.*)", self.text)
        if directive:
            self.find(rules.YAML_DIRECTIVE.id, *directive.span(1), "YAML directives are not read",
                      "remove this line: specs are YAML 1.2")  # fmt: skip
        if self.findings:
            raise SpecError(self.findings)

    def read(self) -> None:
        """Build the tree; raise SpecError when there is anything to say about the text."""
        try:
            self.build(iter(YAML(typ="safe", pure=True).parse(self.text)))
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            opened = error.context_mark.index if error.context_mark else 0
            self.find_syntax(error.problem or error.context or "", mark.index if mark else 0, opened)
        except (YAMLError, ArithmeticError, ValueError, LookupError):
            # What the scanner itself trips over: escapes beyond Unicode, such as "\UFFFFFFFF".
            escape = re.search(r"\\U(?!0010|000[0-9A-Fa-f])\w{8}", self.text)
            span = escape.span() if escape else (0, 1)
            self.find(rules.YAML_SYNTAX.id, *span, "YAML: an escape names no character", "write the character itself")
        if self.findings:
            raise SpecError(self.findings)

    def find_syntax(self, problem: str, at: int, opened: int) -> None:
        """The parser's words about text[at], in ours where they are known. opened: start of what it was reading."""
        first = self.document.place(opened, opened + 1).line
        at = min(at, len(self.text.rstrip()))
        before = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        remedy = ""
        if self.text[at : at + 1] == "[" and re.search(r"[\w\]]$", before):
            remedy = 'inside { } quote a value with brackets, {a: "bf16[m, k]"}, or write one entry a line'
        elif before.strip() and ("<block end>" in problem or "<document start>" in problem):
            problem, remedy = "this cannot follow here", "quote the value as a whole, or remove what is too much"
        elif "<block end>" in problem:
            problem = "the indentation of this line fits none of the lines above"
            remedy = f"the keys of one map start in the same column; this map starts in line {first}"
        elif "expected the node content" in problem:
            problem = "a value is missing here"
        elif "could not find expected ':'" in problem:
            at, problem, remedy = opened, "this line is no `key: value`", "write a colon and a blank after the key"
        elif "end of stream" in problem:
            at, problem, remedy = opened, "a quote is not closed", "close it on the same line"
        elif "expected ',' or" in problem:
            problem = f"`{self.text[opened]}` of line {first} is not closed before this"
            remedy = "separate values by commas, and close brackets"
        elif "mapping values are not allowed" in problem:
            problem = "`:` cannot stand here"
            remedy = "check the indentation of this line, and quote text that holds `: `"
        elif self.text[at : at + 1] == "\t":
            self.find(rules.YAML_TAB.id, at, at + 1, "a tab separates these", "separate with spaces")
            return
        elif "cannot start any token" in problem:
            remedy = "quote text that starts with this character"
        self.find(rules.YAML_SYNTAX.id, at, at + 1, f"YAML: {problem}", remedy)

    def build(self, events: Iterator[Event]) -> None:
        stack: list[_Open] = []
        documents = 0
        for number, event in enumerate(events):
            start, end = event.start_mark.index, event.end_mark.index
            if number > MAX_VALUES:
                message = f"the file has more than {MAX_VALUES} keys and values"
                self.find(rules.FILE_SIZE.id, start, end, message, "a spec is a page of text; split it")
                return
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.find(rules.YAML_DOCUMENT.id, start, end, "a second document starts here", "one file, one spec")
                    return
            elif isinstance(event, AliasEvent):
                self.find(rules.YAML_ALIAS.id, start, end, f"alias `*{cut(event.anchor)}`", "write the value out")
                self.add(stack, Node(None, start, end), plain=False)
            elif isinstance(event, ScalarEvent):
                start = self.check_properties(event, start)
                plain = event.style is None
                data = self.scalar(event.value, start, end) if plain else event.value
                self.add(stack, Node(data, start, end, event.style), plain)
            elif isinstance(event, (MappingStartEvent, SequenceStartEvent)):
                start = self.check_properties(event, start)
                node = Node({} if isinstance(event, MappingStartEvent) else [], start, end)
                self.add(stack, node, plain=False)
                stack.append(_Open(node, None))
                if len(stack) > MAX_DEPTH:
                    self.find(rules.YAML_DEPTH.id, start, start + 1, f"nested deeper than {MAX_DEPTH} levels")
                    return
            elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
                stack.pop().node.end = end
        if not documents or (self.root.data is None and not self.findings):
            message = f"{self.document.path}: the file is empty"
            remedy = "`cutegen new gemm NAME` writes a spec to start from"
            self.findings.append(Diagnostic(rules.EMPTY_SPEC.id, message, None, remedy))
        elif not isinstance(self.root.data, dict) and not self.findings:
            kind = "a list" if isinstance(self.root.data, list) else "a single value"
            self.find(rules.NOT_A_MAP.id, self.root.start, self.root.end, f"the file is {kind}, not a map",
                      "it should be lines of a key, a colon, a blank and a value, such as `cutegen: 1`")  # fmt: skip

    def check_properties(self, event: ScalarEvent | CollectionStartEvent, start: int) -> int:
        """Refuse anchor and tag; give the offset where the value itself starts."""
        properties = re.compile(r"(?:[&!]\S*\s*)*").match(self.text, start)
        value_start = properties.end() if properties and (event.anchor or event.ctag) else start
        if event.anchor:
            self.find(
                rules.YAML_ANCHOR.id, start, value_start, f"anchor `&{cut(event.anchor)}`", "write each value out"
            )
        if event.ctag:
            self.find(rules.YAML_TAG.id, start, value_start, f"YAML tag `{cut(str(event.ctag))}`",
                      "remove it: tags have no meaning in a spec")  # fmt: skip
        return value_start

    def scalar(self, value: str, start: int, end: int) -> Data:
        """Meaning of an unquoted scalar: YAML 1.2 words and decimal numbers; everything else is text."""
        if value in _WORDS:
            return _WORDS[value]
        if _INT.fullmatch(value):
            if len(value.lstrip("+-0")) <= MAX_DIGITS:
                return int(value)
        elif not _FLOAT.fullmatch(value):
            return value
        elif math.isfinite(number := float(value)):
            return number
        self.find(rules.YAML_NUMBER.id, start, end, "this number is out of range",
                  f"integers have at most {MAX_DIGITS} digits, others are at most 1.8e308")  # fmt: skip
        return 0

    def add(self, stack: list[_Open], node: Node, plain: bool) -> None:
        """Put a finished scalar, or a map or list that starts here, where it belongs."""
        if not stack:
            self.root = node
            return
        parent = stack[-1]
        if isinstance(parent.node.data, list):
            parent.node.children[len(parent.node.data)] = node
            parent.node.data.append(node.data)
        elif parent.key is None:
            parent.key = self.accept_key(parent.node, node, plain)
        else:
            assert isinstance(parent.node.data, dict)
            parent.node.children[parent.key] = node
            parent.node.data[parent.key] = node.data
            parent.key = None

    def accept_key(self, parent: Node, node: Node, plain: bool) -> str:
        shown = self.text[node.start : node.end].strip()
        if plain and node.data == "<<":
            self.find(rules.YAML_MERGE.id, node.start, node.end, "merge keys are not read", "write the keys out")
        elif not isinstance(node.data, str):
            end = node.end if node.end > node.start else node.start + 1
            message = f"a key is a name, not `{cut(shown)}`" if shown else "a key is missing"
            flow = plain and self.text[parent.start] == "{" and _FLOW_END.match(self.text, node.end)
            self.find(rules.KEY_TYPE.id, node.start, end, message, rules.QUOTE_EXPRESSION if shown and flow else "")
        elif node.data in parent.keys:
            first = self.document.place(parent.keys[node.data].start, parent.keys[node.data].end)
            self.find(rules.DUPLICATE_KEY.id, node.start, node.end, f"`{cut(node.data)}` is written twice",
                      f"the first one is in line {first.line}; keep one of them")  # fmt: skip
        else:
            parent.keys[node.data] = node
            return node.data
        # Kept under a key no text can hold, so that reading goes on and names everything else that is wrong.
        return f"\0{node.start}"
