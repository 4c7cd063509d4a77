"""The GEMM family. FAMILY is what the registry loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cutegen.families.lazy import LazyFamily

if TYPE_CHECKING:
    from cutegen.families.family import Family

FAMILY = cast(
    "Family",
    LazyFamily(
        __name__,
        spec_model=".spec:GemmSpec",
        bind=".binding:bind",
        resolve=".resolve:resolve",
        describe_problem=".resolve:describe",
        tuning_space=".tuning:GemmSpace",
        render=".rendering:render",
        plan_code=".code_plan:plan_code",
        explain=".explain:explain",
        estimate=".explain:estimate_call",
        why_not=".why_not:why_not",
        c_entry=".gemm_entry:c_entry",
    ),
)
