"""Generated Python laid out as the formatter would leave it, so that rendering needs no formatter."""

from __future__ import annotations

from collections.abc import Sequence

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
