"""Plans of row kernels. Importing this module imports neither torch nor cutlass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cutegen.runtime.accuracy import Tolerance, tolerance
from cutegen.runtime.arguments import ScalarArg, tensor_bytes
from cutegen.runtime.tensor_plan import TensorPlan


@dataclass(frozen=True, slots=True)
class RowTiling:
    """threads: of a CTA. vector: elements of one load or store. vectors: of each tensor that a thread has at once.
    ctas_per_sm: CTAs that an SM has room for. smem_bytes: size of SharedStorage, 0 where there is none."""

    threads: int
    vector: int
    vectors: int
    ctas_per_sm: int
    smem_bytes: int


class RowPlan(TensorPlan):
    """columns: the dim of a row's elements. summed: whether rows are reduced. flops: for each element. approximation:
    of each output, relative to its rms."""

    columns: ClassVar[str]
    summed: ClassVar[bool]
    flops: ClassVar[int]
    approximation: ClassVar[Mapping[str, float]] = {}

    def _algorithmic_flops_bytes(self, **dims: int) -> tuple[int, int]:
        elements = math.prod(dims[name] for name in self.dims)
        return self.flops * elements, tensor_bytes((*self.inputs, *self.outputs), dims)

    def output_tolerance(self, output: int, inputs: Sequence[Any], reference: str) -> Tolerance:
        arg = self.outputs[output]
        count = self.problem_dims(*inputs)[self.columns] if self.summed else 1
        return tolerance(arg.dtype, count, self.approximation[arg.name], reference=reference)

    def _reference_inputs(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Inputs as the reference computes with them: what has a value for each row gets a last dim."""
        own = zip(self.inputs, inputs)
        return tuple(
            v if isinstance(a, ScalarArg) or not a.dims or a.dims[-1] == self.columns else v.unsqueeze(-1)
            for a, v in own
        )
