"""What a GEMM is on one architecture: an object for each says what its kernels have that others do not."""

from __future__ import annotations

import functools
import importlib
from typing import cast

from cutegen.arch import ARCHS
from cutegen.families.gemm.lowering.lowering import Lowering
from cutegen.families.gemm.problem import GemmProblem


def lowering_of(problem: GemmProblem) -> Lowering:
    """That of the architecture that the problem is for."""
    return _load(problem.arch)


@functools.cache
def _load(arch: str) -> Lowering:
    """When it is asked for: lowerings use modules that ask for them."""
    module = importlib.import_module(f"{__name__}.{ARCHS[arch].folder}.lowering")
    return cast(Lowering, module.LOWERING)
