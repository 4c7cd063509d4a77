"""Programmatic dependent launch: the knobs that families share."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from cutegen.spec.base import Auto, Section, knob

Trigger: TypeAlias = Literal["last_tile", "none"]
PDL_TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)
# What `auto` decides, in every family.
PDL_WAIT, PDL_TRIGGER = True, "last_tile"
WHY_WAIT = "overlaps its setup with the tail of the preceding kernel, if that one triggers; no memory access before"


def why_trigger(gain: str) -> str:
    """gain: what was measured of it, in launches of a kernel back to back; "" where nobody has measured it."""
    after = "a kernel launched to start early has to wait before it reads, others start at the end"
    return f"{gain} in launches back to back; {after}" if gain else f"not measured; {after}"


class Pdl(Section):
    """Programmatic dependent launch: overlap with the kernels before and after on the stream."""

    wait: bool | Auto = knob(
        "Start while the kernel before this one ends, where that one lets it, and wait in the kernel: no thread uses "
        "global memory before."
    )
    trigger: Trigger | Auto = knob(
        "When the next kernel may start: `last_tile` when every CTA has asked for its last operands, `none` when this "
        "one has ended. Write `none` before kernels that are launched with programmatic dependent launch and, "
        "before they wait (`griddepcontrol.wait`), read outputs of this one or write what it uses."
    )
