"""How many CTAs one tcgen05 product is spread over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cutegen.families.declared_knobs import DeclaredKnob
from cutegen.families.knobs import Knob, integer
from cutegen.runtime.base import SILENT
from cutegen.spec.base import Exactly


@dataclass(frozen=True, kw_only=True)
class CtaPair:
    """mma_ctas: CTAs of one product, 1 or 2; of two, each has the rows of its own tile, and loads half of B."""

    mma_ctas: int = field(default=1, metadata=SILENT)


def _says_nothing(problem: Any, c: Any) -> bool:
    return not problem.target.tensor_memory and c.mma_ctas == 1


KNOBS = (
    DeclaredKnob(
        Knob("mma_ctas", "tiling.mma_ctas", integer(), part="around"),
        Annotated[Literal[1, 2], Exactly],
        "CTAs of one product, on sm_100a: of two, which are neighbours along m, each has its own rows and loads half "
        "of B.",
        follows="cluster",
        after="cluster",
        text_after="swap_ab",
        is_idle=_says_nothing,
    ),
)
