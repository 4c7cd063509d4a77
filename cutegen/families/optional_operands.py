"""Optional operands: which of them calls may leave out together, and what kernels that do without them are called."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

MAX_OPTIONAL = 2


def refuse_many(names: Sequence[str]) -> tuple[str, str, str] | None:
    """(the first of too many optional operands, what is wrong, what to do), or None."""
    if (count := len(names)) <= MAX_OPTIONAL:
        return None
    said = f"{count} optional operands are {2**count} kernels for each tiling; at most {2**MAX_OPTIONAL}"
    return names[MAX_OPTIONAL], said, "drop the `?` of some of them"


def list_omissions(optional: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What calls may leave out, in order of declaration, but for nothing: (a,), (b,), (a, b)."""
    for count in range(1, len(optional) + 1):
        yield from combinations(optional, count)


def suffix(omitted: Collection[str]) -> str:
    """What the names of modules and instances end in that do without these operands; plans make the same."""
    return "".join(f"_without_{name}" for name in omitted)
