"""Rules about the knobs of sm_100a kernels, and about variants of other architectures."""

from __future__ import annotations

from typing import Any

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import Rule, register
from cutegen.families.mla_decode.candidate import Candidate
from cutegen.families.mla_decode.lowering.sm100.derived import UNIT
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.rule_book import BOOK
from cutegen.families.refusal import Objection

VARIANT = register(
    Rule(
        "variant-arch",
        "`pair` is the variant of sm_100a; seesaw, seesaw_2cta and both are those of sm_90a",
        "On sm_100a two CTAs of a cluster multiply together by tcgen05, with scores and O in tensor memory. On sm_90a "
        "two warpgroups of a CTA take turns, with O in their registers.",
        "arch: sm_100a\nvariant: seesaw",
    )
)
LACKING = Rule(
    "mla-sm100-knobs",
    "some knobs of sm_90a are not supported yet on sm_100a",
    "A pair of CTAs works on steps of two key blocks, each request in whole steps but for its end, and finds its part "
    "of the work behind the wait for the preceding kernel.",
    "arch: sm_100a\npdl: {schedule_ahead: true}",
)
# What kernels of sm_100a do without so far: by candidate field the value that they have, and what others are.
FIXED: dict[str, tuple[Any, str]] = {
    "unit": (UNIT, "parts of single key blocks"),
    "split_columns": (False, "two CTAs on the same keys, each for half of the columns,"),
    "prefetch": (0, "keys that are fetched to L2 ahead of their load"),
    "pdl_schedule_ahead": (False, "parts that are found ahead of the wait"),
    "pdl_load_ahead": (False, "keys that are loaded ahead of the wait"),
}


def _refuse(field: str, value: Any, words: str) -> None:
    @BOOK.declare_form(LACKING, field, only="sm_100a")
    def lacking(problem: MlaProblem, c: Candidate, arch: Arch) -> Objection | None:
        if getattr(c, field) == value:
            return None
        return f"{words} are not supported yet on {arch.name}", "leave it `auto`, or use sm_90a"


for _field, (_value, _words) in FIXED.items():
    _refuse(_field, _value, _words)
