"""Knobs: the table that names a family's user-level choices in a spec and in a lock, and how values are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from cutegen.spec.dims import MAX_EXTENT

# Last steps of paths that say too little alone.
AMBIGUOUS = ("count", "registers", "order", "group", "multicast", "swizzle", "load_ahead", "wait", "trigger", "max")


@dataclass(frozen=True, slots=True)
class Knob:
    """field: of the family's candidate. key: dotted path in a spec. part: "core" for what a candidate is built around,
    "around" for what is chosen for that core and has reasons that speak of it, "apart" for what is chosen by itself.

    read: a plain YAML value to the field's type; ValueError says what is expected.
    """

    field: str
    key: str
    read: Callable[[object], Any]
    part: Literal["core", "around", "apart"] = "apart"

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.key.split("."))

    @property
    def short(self) -> str:
        """The last step of the path, or the field where that says too little."""
        return self.field if self.path[-1] in AMBIGUOUS else self.path[-1]


def integer(low: int = 1, high: int = MAX_EXTENT) -> Callable[[object], int]:
    words = "a positive integer" if (low, high) == (1, MAX_EXTENT) else f"an integer from {low} to {high}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(words)
        return value

    return read


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def integers(count: int) -> Callable[[object], tuple[int, ...]]:
    one = integer()

    def read(value: object) -> tuple[int, ...]:
        if not isinstance(value, (list, tuple)) or len(value) != count:
            raise ValueError(f"{count} positive integers")
        return tuple(one(v) for v in value)

    return read


def word(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return read


def either(*reads: Callable[[object], Any]) -> Callable[[object], Any]:
    """The first of `reads` that takes the value."""

    def read(value: object) -> Any:
        words = []
        for one in reads:
            try:
                return one(value)
            except ValueError as error:
                words.append(str(error))
        raise ValueError(" or ".join(words))

    return read


def plain(value: object) -> object:
    """A knob's value as YAML and JSON hold it: tuples become lists."""
    return [plain(v) for v in value] if isinstance(value, tuple) else value


def show(value: object) -> str:
    """A knob's value as a spec would have it."""
    return value if isinstance(value, str) else json.dumps(plain(value))
