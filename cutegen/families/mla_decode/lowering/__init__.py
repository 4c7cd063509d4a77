"""What an MLA decode is on one architecture: an object for each says what its kernels have that others do not."""

from __future__ import annotations

import functools
import importlib
from typing import cast

from cutegen.arch import ARCHS
from cutegen.families.code_plan import CodePlan
from cutegen.families.mla_decode.lowering.lowering import MlaLowering
from cutegen.families.mla_decode.resolved import ResolvedMla, ResolvedMlaTiling


@functools.cache
def lowering_of(arch: str) -> MlaLowering:
    """That of an architecture, when it is asked for: lowerings use modules that ask for them."""
    module = importlib.import_module(f"{__name__}.{ARCHS[arch].folder}.lowering")
    return cast(MlaLowering, module.LOWERING)


def plan_code(resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> CodePlan:
    """The code that an instance is planned to compile to."""
    return lowering_of(resolved.arch).plan_code(resolved, tiling)
