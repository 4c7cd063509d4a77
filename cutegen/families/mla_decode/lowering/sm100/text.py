"""What the templates of the kernel of a pair read."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.families.mla_decode.kernel_text import MlaKernelText, list_overview, shared_text
from cutegen.families.mla_decode.lowering.sm100.derived import (
    TMEM_COLUMNS,
    VALUE_COLUMNS,
    VALUE_KEYS,
    group_keys,
)
from cutegen.families.mla_decode.resolved import ResolvedMla


@dataclass(frozen=True, slots=True, kw_only=True)
class PairText(MlaKernelText):
    """What kernel.py.jinja and its parts read on sm_100a. warps: the first one of each role, by its constant. group:
    keys of a block that lie in one page."""

    group: int
    value_keys: int
    value_columns: int
    tmem_columns: int


def pair_text(resolved: ResolvedMla) -> PairText:
    problem, model = resolved.problem, resolved.tilings[0].model
    return PairText(
        **shared_text(resolved, model.barriers),
        title=f"MLA decode for {resolved.arch}: {problem.dtype}, pages of {problem.page_size}, by pairs of CTAs, "
        "split-KV in one launch.",
        overview=tuple(list_overview(resolved)),
        warps={name.upper().replace(" ", "_").removesuffix("S"): warps.first for name, warps in model.warps.items()},
        group=group_keys(problem),
        value_keys=VALUE_KEYS,
        value_columns=VALUE_COLUMNS,
        tmem_columns=TMEM_COLUMNS,
    )
