"""How rows that an index names come to the ring of A and B."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from cutegen.families.declared_knobs import DeclaredKnob
from cutegen.families.knobs import Knob, word
from cutegen.runtime.base import SILENT

GatherWay: TypeAlias = Literal["cp_async", "copy"]
BY_THREADS, COPIED = get_args(GatherWay)


@dataclass(frozen=True, kw_only=True)
class Gather:
    """gather: how gathered rows come to the ring; "none" where none are."""

    gather: str = field(default="none", metadata=SILENT)

    @property
    def copies_rows(self) -> bool:
        """Whether a preceding launch copies them to scratch."""
        return self.gather == COPIED


def gathered(problem: Any) -> tuple[str, ...]:
    """The operand whose rows are."""
    return (problem.gathered.name,) if problem.gathered else ()


KNOBS = (
    DeclaredKnob(
        Knob("gather", "tma.{a}.gather", word(BY_THREADS, COPIED)),
        GatherWay,
        "How rows that an index names come to shared memory. cp_async: threads copy them into the ring, 16 bytes at a "
        "time; copy: a preceding launch copies them to scratch, in order, where TMA loads them and can multicast them.",
        follows="swizzle",
        after="promote_every",
        text_after="promote_every",
        is_idle=lambda problem, c: c.gather == "none",
        held_by=gathered,
    ),
)
