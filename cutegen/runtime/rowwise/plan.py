"""Plans of row kernels. Importing this module imports neither torch nor cutlass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cutegen.runtime.accuracy import Tolerance, tolerance
from cutegen.runtime.arguments import ScalarArg, TensorArg, tensor_bytes
from cutegen.runtime.tensor_plan import TensorPlan

WARP = 32
UNLIMITED = 1 << 16  # SMs that a launch is passed whose CTAs have one row, or part of one, each


@dataclass(frozen=True, slots=True)
class RowTiling:
    """threads: of a row, or of a part of one. rows: that a CTA has at once. vector: elements of one load or store.
    vectors: of each tensor that a thread has at once. most: columns of a row that is reduced, else elements of a call,
    up to which it runs; 0: any. ctas_per_sm: CTAs that an SM has room for. smem_bytes: size of SharedStorage, 0 where
    there is none."""

    threads: int
    rows: int
    vector: int
    vectors: int
    most: int
    ctas_per_sm: int
    smem_bytes: int


class RowPlan(TensorPlan):
    """columns: the dim of a row's elements. summed: whether rows are reduced. prefetch: whether CTAs load their next
    row while they have one, so that there are as many as SMs have room for; others get one row, or part, each. flops:
    for each element. approximation: of each output, relative to its rms. tilings: by ascending `most`, which decides.
    So the order in which a row is reduced depends on its own extent alone."""

    columns: ClassVar[str]
    summed: ClassVar[bool]
    prefetch: ClassVar[bool]
    flops: ClassVar[int]
    approximation: ClassVar[Mapping[str, float]] = {}

    def form_of(self, key: str) -> str:
        if not self.summed:
            return ""
        t = self.tilings[key]
        t = self.tilings[key]
        return f"{'held' if t.most else 'streamed'} by {'warps' if t.threads > WARP else 'lanes'}"

    def dispatch(self, **dims: int) -> str:
        extents = {name: e if isinstance(e, int) else dims[name] for name, e in self.dims.items()}
        return self.pick(extents[self.columns] if self.summed else math.prod(extents.values()))

    def pick(self, size: int) -> str:
        """The key for rows of so many columns, or for a call of so many elements. ValueError: no tiling has them."""
        for key, t in self.tilings.items():
            if not t.most or size <= t.most:
                return key
        raise ValueError(f"{size} {self.columns}")

    def chooser(self, key: str | None) -> Callable[[Sequence[Any]], str]:
        args = (*self.inputs, *self.outputs)
        whole = next(i for i, a in enumerate(args) if isinstance(a, TensorArg) and len(a.dims) == len(self.dims))
        summed, pick = self.summed, self.pick
        if key is None:
            return (lambda v: pick(v[whole].shape[-1])) if summed else (lambda v: pick(v[whole].numel()))
        chosen, most = key, self.tilings[key].most

        def refuse_longer(values: Sequence[Any]) -> str:
            if summed and most and values[whole].shape[-1] > most:
                raise ValueError(f"{self.name}: tiling {chosen} has rows of at most {most} {self.columns}")
            return chosen

        return refuse_longer

    def _refuse_tiling(self, key: str, extents: Mapping[str, int], sms: int | None) -> None:
        super()._refuse_tiling(key, extents, sms)
        if self.summed and extents[self.columns] > (most := self.tilings[key].most):
            raise ValueError(f"{self.name}: tiling {key} has rows of at most {most} {self.columns}")

    def count_sms(self, key: str, device: int) -> int:
        return super().count_sms(key, device) if self.prefetch else UNLIMITED

    def prepare_inputs(self, **dims: int) -> tuple[Any, ...]:
        """As drawn by every plan, but integers name elements of a row, or one before or behind it."""
        inputs = super().prepare_inputs(**dims)
        extent = self.extents_on_device(dims)[self.columns]
        for arg, value in zip(self.inputs, inputs):
            if isinstance(arg, TensorArg) and arg.dtype == "int32":
                value.random_(-1, extent + 1)
        return inputs

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
