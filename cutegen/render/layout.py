"""Generated Python laid out as the formatter would leave it, so that rendering needs no formatter."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

WIDTH = 120


def bracketed(head: str, items: Sequence[str], tail: str, *, indent: int, used: int = 0, is_tuple: bool = False) -> str:
    """`head` + items + `tail` on one line if it fits, else the items on a line of their own, else one item a line.

    indent: column of the statement. used: columns that the first line has taken before `head`, and the last needs.
    """
    one = ", ".join(items) + ("," if is_tuple and len(items) == 1 else "")
    if indent + used + len(head) + len(one) + len(tail) <= WIDTH:
        return head + one + tail
    inner, outer = " " * (indent + 4), " " * indent
    if not is_tuple and indent + 4 + len(one) <= WIDTH and "\n" not in one:
        return f"{head}\n{inner}{one}\n{outer}{tail}"
    lines = "".join(f"{inner}{item},\n" for item in items)
    return f"{head}\n{lines}{outer}{tail}"


def statement(text: str, *, indent: int) -> str:
    """One statement of user maths: what is longer than a line is kept whole, for a reader to compare with the spec."""
    return text if indent + len(text) <= WIDTH else f"{text}  # fmt: skip  # noqa: E501"


def lay_out(text: str) -> str:
    """Python source in which only lines that names of a spec made too long differ from the formatter's layout, with
    those broken as the formatter breaks them; a comment behind such a line goes above it."""
    lines: list[str] = []
    quoted = False
    for line in text.split("\n"):
        is_docstring = quoted or '"""' in line
        quoted ^= line.count('"""') % 2 == 1
        indent = len(line) - len(line.lstrip())
        if len(line) <= WIDTH or "# fmt: skip" in line:
            lines.append(line)
        elif is_docstring or line[indent] == "#":
            lines += wrapped(line, " " * indent + "# " * (not is_docstring))
        else:
            code, comment = _split_comment(line[indent:])
            lines += [" " * indent + comment] * bool(comment)
            # What is left is a literal, which the formatter leaves alone.
            lines += [x if len(x) <= WIDTH else f"{x}  # noqa: E501" for x in _broken(code, indent)]
    return "\n".join(lines)


def wrapped(line: str, indent: str) -> list[str]:
    """A line of prose as several, those after the first behind `indent`."""
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _broken(code: str, indent: int, used: int = 0) -> list[str]:
    """A statement, or an element of a bracket, as lines. used: columns that its last line needs behind it."""
    outer, inner = " " * indent, " " * (indent + 4)
    if indent + len(code) + used <= WIDTH:
        return [outer + code]
    head, imports, names = code.partition(" import ")
    if imports and head.startswith("from "):
        return [f"{outer}{head} import (", *(f"{inner}{name}," for name in names.split(", ")), f"{outer})"]
    if not (pair := _last_bracket(code)):
        return [outer + code]
    opening, closing = pair
    head, body, tail = code[: opening + 1], code[opening + 1 : closing], code[closing:]
    target, equals, value = code.partition(" = ")
    if indent + len(head) > WIDTH and equals and len(target) < opening:
        return [f"{outer}{target} = (", *_broken(value, indent + 4), f"{outer})"]
    called = opening > 0 and (code[opening - 1].isalnum() or code[opening - 1] in "_)]")
    items = _split_items(body)
    if called and (len(inner) + len(body) <= WIDTH or (len(items) == 1 and code[opening] == "[")):
        return [outer + head, *_broken(body, indent + 4), outer + tail]
    lines = [outer + head]
    for item in items:
        *first, last = _broken(item, indent + 4, used=1)
        lines += [*first, f"{last},"]
    return [*lines, outer + tail]


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


def _last_bracket(code: str) -> tuple[int, int] | None:
    """Positions of the last pair of brackets that is in no other; None too where another line closes what is opened."""
    ends = [i for i, c, depth in _brackets(code) if depth == 0 and c in "([{)]}"]
    return (ends[-2], ends[-1]) if ends and len(ends) % 2 == 0 else None


def _split_items(code: str) -> list[str]:
    commas = [i for i, c, depth in _brackets(code) if c == "," and depth == 0]
    parts = [code[start:end].strip() for start, end in zip([0, *(i + 1 for i in commas)], [*commas, len(code)])]
    return [part for part in parts if part]


def _split_comment(code: str) -> tuple[str, str]:
    start = next((i for i, c, _ in _brackets(code) if c == "#"), len(code))
    return code[:start].rstrip(), code[start:]
