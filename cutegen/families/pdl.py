"""Programmatic dependent launch: the knobs that families share."""

from __future__ import annotations

from typing import Literal

from cutegen.spec.base import Auto, Section, knob

PDL_TRIGGERS = ("none", "last_tile")


class Pdl(Section):
    """Programmatic dependent launch: overlap with the kernels before and after on the stream."""

    wait: bool | Auto = knob("Wait for the kernel before this one, in the kernel.")
    trigger: Literal["last_tile", "none"] | Auto = knob("When the next kernel may start.")
