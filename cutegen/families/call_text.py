"""The function that a generated package offers: its operands and results in words, for packages of all families."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

OFFERED = ("PLAN", "Plan", "get_inputs", "kernel_fn", "launch_fn", "plan", "reference_fn")


@dataclass(frozen=True, slots=True)
class OperandText:
    """One input or result of a call. scalar: a number. says: shape, dtype and layout in words."""

    name: str
    says: str
    scalar: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CallText:
    """What init.py.jinja reads as c. inputs: in order of a call; early: optional ones that precede one that every call
    passes, and so are passed by name. fresh: results that a call allocates, or takes as `out`; the others are updated
    in place. offered: names in __all__."""

    function: str
    inputs: tuple[OperandText, ...]
    early: tuple[OperandText, ...]
    results: tuple[OperandText, ...]
    fresh: tuple[str, ...]
    offered: tuple[str, ...]


def call_text(
    function: str, inputs: Sequence[OperandText], results: Sequence[OperandText], fresh: Sequence[str]
) -> CallText:
    """See `CallText`."""
    last = max((i for i, o in enumerate(inputs) if not o.optional), default=-1)
    return CallText(
        function=function,
        inputs=tuple(inputs),
        early=tuple(o for o in inputs[:last] if o.optional),
        results=tuple(results),
        fresh=tuple(fresh),
        offered=tuple(sorted((*OFFERED, function), key=_all_order)),
    )


def _all_order(name: str) -> tuple[int, list[str | int]]:
    """The order that linters want: constants, classes, functions; numbers in names count as numbers."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
