"""What a CTA's last tile goes through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from cutegen.families.declared_knobs import DeclaredKnob
from cutegen.families.knobs import Knob, word
from cutegen.runtime.base import SILENT

# The rings of `pipeline` that the epilogue of a CTA's last tile uses.
Ring: TypeAlias = Literal["epilogue_stages", "stages"]
EPILOGUE_RINGS, STAGES_OF_A = get_args(Ring)


@dataclass(frozen=True, kw_only=True)
class LastTile:
    """last_tile: what a CTA's last tile goes through."""

    last_tile: str = field(default=EPILOGUE_RINGS, metadata=SILENT)

    @property
    def in_boxes(self) -> bool:
        """Whether it goes through stages of A."""
        return self.last_tile == STAGES_OF_A


def _says_nothing(problem: Any, c: Any) -> bool:
    """Where not exactly one tile is loaded, a last tile is as any other."""
    loads_one = len(problem.kernel_epilogue.tiles) == 1 and problem.groups is None
    return not c.in_boxes and not loads_one


KNOBS = (
    DeclaredKnob(
        Knob("last_tile", "pipeline.last_tile", word(EPILOGUE_RINGS, STAGES_OF_A), part="around"),
        Ring,
        "What the epilogue of a CTA's last tile goes through. epilogue_stages: its own rings, as for every tile; "
        "stages: the tile that it reads comes into stages of A as the last k tiles leave them, and results leave "
        "there.",
        follows="load_stages",
        after="load_stages",
        text_after="gather",
        words={STAGES_OF_A: "boxes", EPILOGUE_RINGS: "no_boxes"},
        is_idle=_says_nothing,
    ),
)
