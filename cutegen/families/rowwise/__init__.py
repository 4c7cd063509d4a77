"""The family of row kernels. FAMILY is what the registry loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cutegen.families.lazy import LazyFamily

if TYPE_CHECKING:
    from cutegen.families.family import Family

FAMILY = cast(
    "Family",
    LazyFamily(
        __name__,
        spec_model=".spec:RowSpec",
        bind=".binding:bind",
        describe_problem=".problem:describe_problem",
        resolve=".tiling:KERNEL.resolve",
        render=".tiling:KERNEL.render",
        plan_code=".tiling:plan_code",
        explain=".tiling:KERNEL.explain",
        tuning_space=".tuning:tuning_space",
        c_entry=".row_entry:c_entry",
        why_not=".tiling:KERNEL.why_not",
    ),
)
