"""The MLA decode family. FAMILY is what the registry loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cutegen.families.lazy import LazyFamily

if TYPE_CHECKING:
    from cutegen.families.family import Family

# No cost model: candidates are in the order that was measured.
FAMILY = cast(
    "Family",
    LazyFamily(
        __name__,
        spec_model=".spec:MlaSpec",
        bind=".binding:bind",
        resolve=".resolve:resolve",
        tuning_space=".tuning:MlaSpace",
        render=".rendering:render",
        plan_code=".lowering:plan_code",
        explain=".explain:explain",
        why_not=".explain:why_not",
        c_entry=".mla_entry:c_entry",
    ),
)
