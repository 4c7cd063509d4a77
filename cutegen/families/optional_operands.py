"""Optional operands: which of them calls may leave out together, and what kernels that do without them are called."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

MAX_OPTIONAL = 2


def list_omissions(optional: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What calls may leave out, in order of declaration, but for nothing: (a,), (b,), (a, b)."""
    for count in range(1, len(optional) + 1):
        yield from combinations(optional, count)


def suffix(omitted: Collection[str]) -> str:
    """What the names of modules and instances end in that do without these operands; plans make the same."""
    return "".join(f"_without_{name}" for name in omitted)
