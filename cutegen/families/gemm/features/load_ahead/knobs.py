"""Whether each operand is loaded before the wait for the preceding kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cutegen.families.declared_knobs import DeclaredKnob
from cutegen.families.knobs import Knob, boolean
from cutegen.runtime.base import SILENT

SAID = (
    "Load this operand into the ring's free slots before the wait for the preceding kernel (`pdl.wait`), where "
    "`pdl.ready` names it."
)


@dataclass(frozen=True, kw_only=True)
class LoadAhead:
    """load_ahead_a, load_ahead_b: whether that operand is."""

    load_ahead_a: bool = field(default=False, metadata=SILENT)
    load_ahead_b: bool = field(default=False, metadata=SILENT)


def operands(problem: Any) -> dict[str, str]:
    """The fields, each with the name of its operand."""
    return {"load_ahead_a": problem.a.name, "load_ahead_b": problem.b.name}


KNOBS = (
    DeclaredKnob(
        Knob("load_ahead_a", "tma.{a}.load_ahead", boolean),
        bool,
        SAID,
        follows="gather",
        after="gather",
        text_after="gather",
        exchanged="load_ahead_b",
        is_idle=lambda problem, c: problem.a.name not in problem.ready,
    ),
    DeclaredKnob(
        Knob("load_ahead_b", "tma.{b}.load_ahead", boolean),
        bool,
        SAID,
        follows="gather",
        after="load_ahead_a",
        text_after="load_ahead_a",
        is_idle=lambda problem, c: problem.b.name not in problem.ready,
    ),
)
