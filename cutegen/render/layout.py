"""Generated Python laid out as the formatter would leave it, so that rendering needs no formatter."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 120
# What binds least comes first.
_OPERATORS = (
    (" or ",),
    (" and ",),
    (" < ", " <= ", " > ", " >= ", " == ", " != ", " is "),
    (" + ", " - "),
    (" * ", " / ", " // ", " % "),
)
_SHAPE = re.compile(r"(?:\w+: )?\w+\[[^\[\]]*\]")
_PAIR = re.compile(r"\([^()]*\)")
WHOLE = 70  # characters of a declaration that stays on one line
_STATEMENT = re.compile(r"(from [^ ]+ import |(?:return|if|elif|while|assert) |[^=(]+? [-+*/]*= |)(.*?)(:?)")


def source(value: Any) -> str:
    """Plain data as Python on one line: strings, numbers, tuples, dicts, and NamedTuples of them."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{source(key)}: {source(each)}' for key, each in value.items())}}}"
    if hasattr(value, "_fields"):
        return f"{type(value).__name__}({', '.join(f'{name}={source(each)}' for name, each in given(value))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(source, value))}{',' * (len(value) == 1)})"
    return repr(value)


def entry(key: str, row: tuple[Any, ...], indent: int) -> str:
    """An item of a dict of rows, which the formatter leaves alone: on one line, on one below its key, or on two."""
    one, inner = f"{source(key)}: {source(row)},", " " * (indent + 4)
    if indent + len(one) <= WIDTH:
        return one
    if len(inner) + len(source(row)) < WIDTH:
        return f"{source(key)}:\n{inner}{source(row)},"
    kept = _PAIR.sub(lambda pair: pair[0].replace(" ", "\0"), one)
    return "\n".join(wrapped(" " * indent + kept, inner)).lstrip()


def given(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a NamedTuple that are not as its class has them, with their values."""
    for name, each in value._asdict().items():
        if each != value._field_defaults.get(name, ...):
            yield name, each


def statement(text: str, *, indent: int) -> str:
    """One statement of user maths: what is longer than a line is kept whole, for a reader to compare with the spec."""
    return text if indent + len(text) <= WIDTH else f"{text}  # fmt: skip  # noqa: E501"


def lay_out(text: str) -> str:
    """Python source in which only lines that names of a spec made too long differ from the formatter's layout, with
    those broken as the formatter breaks them; a comment behind such a line goes above it."""
    if max(map(len, text.split("\n"))) <= WIDTH:
        return text
    return "\n".join([line for _, lines in laid_out(text) for line in lines])


def laid_out(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The same, step by step: lines of `text`, and the lines that they become."""
    quoted = False
    rest = iter(text.split("\n"))
    for line in rest:
        is_docstring = quoted or '"""' in line
        quoted ^= line.count('"""') % 2 == 1
        indent = len(line) - len(line.lstrip())
        given = [line]
        if len(line) <= WIDTH or "# fmt: skip" in line:
            lines = given
        elif is_docstring or line[indent] == "#":
            lines = wrapped(line, " " * indent + "# " * (not is_docstring))
        elif before := _room_for_bracket(line):
            given += _up_to(rest, f"{line[:indent]})")
            call = "\n".join(f"    {x}" for x in [line[:indent] + line[len(before) :], *given[1:]])
            lines = [f"{before}(", *lay_out(call).split("\n"), f"{line[:indent]})"]
        else:
            code, comment = _split_comment(line[indent:])
            lines = wrapped(" " * indent + comment, " " * indent + "# ")
            lines += map(_excused, _item(code[:-1], indent) if code.endswith(",") else _broken(code, indent))
        yield given, lines


def _room_for_bracket(line: str) -> str:
    """The targets and the sign of an assignment whose call other lines close, if a bracket fits behind them."""
    before, value, _ = _split_statement(line)
    return before if value.endswith("(") and before.endswith(" = ") and len(before) < WIDTH else ""


def _up_to(lines: Iterator[str], last: str) -> Iterator[str]:
    for line in lines:
        yield line
        if line == last:
            return


def wrapped(line: str, indent: str) -> list[str]:
    """A line of prose as several, those after the first behind `indent`; `a: bf16[m, k]` stays on one, unless it has
    very long names."""
    kept = _SHAPE.sub(lambda found: found[0].replace(" ", "\0") if len(found[0]) <= WHOLE else found[0], line)
    lines = textwrap.wrap(kept, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def _excused(line: str) -> str:
    """A line that is still too long has a literal, which the formatter leaves alone; so does the linter where nothing
    else is in it."""
    return f"{line}  # noqa: E501" if len(line) > WIDTH and " " in line.strip() else line


def _item(code: str, indent: int) -> list[str]:
    """An element of a bracket as lines, with a comma behind it."""
    *first, last = _broken(code, indent, used=1)
    return [*first, f"{last},"]


def _broken(code: str, indent: int, used: int = 0) -> list[str]:
    """A statement, or an element of a bracket, as lines. used: columns that its last line needs behind it."""
    outer = " " * indent
    if indent + len(code) + used <= WIDTH:
        return [outer + code]
    before, value, after = _split_statement(code)
    operands = _split_operands(value)
    if not before and operands:
        return [line for operand in operands for line in _broken(operand, indent, used)]
    targets = before.removesuffix(" = ")
    if "," in _outside(targets) and indent + len(before) + 1 > WIDTH:
        return [f"{outer}(", *_contents(targets, indent + 4), *_behind_bracket(f") = {value}", indent)]
    pairs = [pair for pair in _pairs(code) if len(before) <= pair[0]]
    reached = [pair for pair in pairs if indent + pair[0] < WIDTH][: 1 if code.startswith("def ") else None]
    links = [i for i, c, depth in _brackets(value) if c == "." and depth == 0 and i and value[i - 1] in ")]"]
    empty = bool(reached) and reached[-1][1] == reached[-1][0] + 1  # and so nothing to break
    if before and not operands and (len(links) > 1 or empty):  # methods of what methods return
        ends = links if indent + 4 + len(value) > WIDTH else []
        parts = [value[i:j] for i, j in zip([0, *ends], [*ends, len(value)])]
        return [f"{outer}{before}(", *(x for part in parts for x in _broken(part, indent + 4)), f"{outer}){after}"]
    # A call behind a single operator is broken itself.
    bare = "," in _outside(value) or len(operands) > 2 or (operands and value[-1] != ")")
    if before and (bare or (pairs and not reached)):
        return [f"{outer}{before}(", *_contents(value, indent + 4), f"{outer}){after}"]
    return _broken_bracket(code, *(reached or pairs)[-1], indent) if pairs else [outer + code]


def _broken_bracket(code: str, opening: int, closing: int, indent: int) -> list[str]:
    """`code` as lines, with what a pair of brackets in it holds on lines of its own."""
    called = opening > 0 and (code[opening - 1].isalnum() or code[opening - 1] in "_)]")
    contents = _contents(code[opening + 1 : closing], indent + 4, code[opening], called=called)
    return [" " * indent + code[: opening + 1], *contents, *_behind_bracket(code[closing:], indent)]


def _behind_bracket(code: str, indent: int) -> list[str]:
    """What begins with a closing bracket, as lines."""
    first, *rest = _broken(f"_{code[1:]}", indent)  # as if it were a name: no bracket that is not opened
    return [first.replace("_", code[0], 1), *rest]


def _split_statement(code: str) -> tuple[str, str, str]:
    """What is before the value of a statement, the value, and what is behind it; an element of a bracket is a value."""
    match = _STATEMENT.fullmatch(code)
    assert match
    return match[1], match[2], match[3]


def _contents(body: str, indent: int, bracket: str = "(", *, called: bool = False) -> list[str]:
    """What a pair of brackets holds, an element a line unless it need not be. called: the brackets call or subscript
    something."""
    items = _split_items(body)
    one_line = called and indent + len(body) <= WIDTH
    one_value = bracket == ("[" if called else "(") and "," not in _outside(body)  # and so without a comma
    if one_line or one_value:
        return _broken(body, indent)
    return [line for item in items for line in _item(item, indent)]


def _brackets(code: str) -> Iterator[tuple[int, str, int]]:
    """(position, character, depth) of what is outside of string literals; brackets have the depth outside of them."""
    depth, quote, i = 0, "", 0
    while i < len(code):
        c = code[i]
        if quote:
            i += c == "\\"
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        else:
            depth -= c in ")]}"
            yield i, c, depth
            depth += c in "([{"
        i += 1


def _pairs(code: str) -> list[tuple[int, int]]:
    """Positions of the pairs of brackets that are in no others; none where another line closes what is opened."""
    ends = [i for i, c, depth in _brackets(code) if depth == 0 and c in "([{)]}"]
    return list(zip(ends[::2], ends[1::2])) if len(ends) % 2 == 0 else []


def _outside(code: str) -> str:
    """What is in no bracket and no string."""
    return "".join(c for _, c, depth in _brackets(code) if depth == 0)


def _split_operands(code: str) -> list[str]:
    """The parts between the operators that bind least, each behind its operator; none without operators."""
    for operators in _OPERATORS:
        starts = [i for i, _, depth in _brackets(code) if depth == 0 and code.startswith(operators, i)]
        if starts:
            return [code[start:end].strip() for start, end in zip([0, *starts], [*starts, len(code)])]
    return []


def _split_items(code: str) -> list[str]:
    commas = [i for i, c, depth in _brackets(code) if c == "," and depth == 0]
    parts = [code[start:end].strip() for start, end in zip([0, *(i + 1 for i in commas)], [*commas, len(code)])]
    return [part for part in parts if part]


def _split_comment(code: str) -> tuple[str, str]:
    start = next((i for i, c, _ in _brackets(code) if c == "#"), len(code))
    return code[:start].rstrip(), code[start:]


def import_order(name: str) -> tuple[int, list[str | int]]:
    """Order of names that isort and ruff keep: CONSTANTS, Classes, functions; numbers in them by value."""
    return (1 if name[0].isupper() else 2, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])
