"""Plans of row kernels. Importing this module imports neither torch nor cutlass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

from cutegen.runtime.accuracy import Tolerance, tolerance
from cutegen.runtime.arguments import Argument, ScalarArg, TensorArg, complete_dims, tensor_bytes
from cutegen.runtime.base import SILENT
from cutegen.runtime.epilogue import scale_before_ceil_pow2
from cutegen.runtime.measured import MeasuredPlan
from cutegen.runtime.scratch import OwnScratch, check_scratch, make_scratch
from cutegen.runtime.tensor_plan import TensorPlan

WARP = 32
COUNTERS = 3  # of CTAs that join reductions over rows
PIECE_LOADS, PIECE_WIDTH = 2, 4  # of a line, the fewest of a piece, and f32 values of each
ALONE = 4  # rows that a CTA takes in turn sooner than several join what they have of their columns
SCRATCH = (
    TensorArg("partials", "float32", ("partials",), 0, 16),
    TensorArg("arrivals", "int32", ("arrivals",), 0, 4, zeroed=True),
)
LABELS = ("int32", "int64")
ROUNDED = 2.0**-20  # of sums in f32, in any order
MOST_TURNS = 8  # rows of a CTA one after the other, where it loads the next one meanwhile
UNLIMITED = 1 << 16  # SMs that a launch is passed, next to those there are, whose CTAs may take turns on an SM


@dataclass(frozen=True, slots=True)
class RowTiling:
    """threads: of a row, or of a part of one, in each of `cluster` CTAs that share it. rows: that a CTA has at once.
    vector: elements of one load or store. vectors: of each tensor that a thread has at once. most: columns of a row
    that is reduced, else elements of a call, up to which it runs; 0: any. ctas_per_sm: CTAs that an SM has room for.
    smem_bytes: size of SharedStorage, 0 where there is none."""

    threads: int
    rows: int
    vector: int
    vectors: int
    most: int
    ctas_per_sm: int
    smem_bytes: int
    cluster: int = field(default=1, metadata=SILENT)

    @property
    def row_threads(self) -> int:
        """In all CTAs of a cluster."""
        return self.threads * self.cluster


def _size(tensor: Any, summed: bool) -> int:
    return int(tensor.shape[-1] if summed else tensor.numel())


def lines_of(threads: int, rows: int, most: int) -> int:
    """Partial results of a CTA of reductions over rows: rows that a warp holds are joined by it."""
    return rows * threads // WARP if most and threads < WARP else rows


def piece_of(vector: int) -> int:
    """Columns that a team of warps joins of all lines at once: two loads of a line, which are one sector of L2."""
    return PIECE_LOADS * min(vector, PIECE_WIDTH)


def row_ctas(count: int, rows: int, at_once: int, ctas_per_sm: int) -> int:
    """Of a launch on so many SMs, `at_once` being rows of a CTA: one without rows writes what a reduction begins with,
    and one of a few rows has no partial results."""
    return 1 if rows <= ALONE * at_once else min(-(-rows // at_once), count * ctas_per_sm)


class RowPlan(MeasuredPlan, TensorPlan):
    """columns: the dim of a row's elements. summed: whether rows are reduced. prefetch: whether CTAs load their next
    row while they have one, and so take up to MOST_TURNS; others get one row, or part, each. flops:
    for each element. approximation: of each output, relative to its rms. tilings: by ascending `most`, which decides.
    So the order in which a row is reduced depends on its own extent alone. over_rows: outputs that are reductions over
    rows; a launch then has as many CTAs as SMs have room for, and scratch. halved: whether a thread has a vector of
    each half of a row at once; interleaved: of every second column rather than of the first and the second half.
    exponents: outputs that are powers of two as UE8M0 has them."""

    columns: ClassVar[str]
    summed: ClassVar[bool]
    prefetch: ClassVar[bool]
    flops: ClassVar[int]
    approximation: ClassVar[Mapping[str, float]] = {}
    over_rows: ClassVar[tuple[str, ...]] = ()
    halved: ClassVar[bool] = False
    interleaved: ClassVar[bool] = False
    exponents: ClassVar[tuple[str, ...]] = ()

    def __init__(self, on_miss: Literal["compile", "warn", "error"] = "compile", sms: int | None = None) -> None:
        self.scratch = SCRATCH if self.over_rows else ()
        self._own_scratch = OwnScratch(partial(make_scratch, SCRATCH))
        super().__init__(on_miss, sms)

    @property
    def persistent(self) -> bool:
        """Whether there are no more CTAs than SMs have room for."""
        return bool(self.over_rows)

    @cached_property
    def whole(self) -> int:
        """The place among inputs and outputs of a tensor with all dims."""
        args = (*self.inputs, *self.outputs)
        return next(
            i
            for i, a in enumerate(args)
            if isinstance(a, TensorArg)
            and not a.optional
            and (len(a.dims), a.dims[-1]) == (len(self.dims), self.columns)
        )

    def count_rows(self, dims: Mapping[str, int]) -> int:
        return math.prod(extent for dim, extent in dims.items() if dim != self.columns)

    @property
    def probe(self) -> str:
        return (*self.over_rows, super().probe)[0]

    def scratch_sizes(self, key: str, rows: int, columns: int, count: int) -> tuple[int, int]:
        """Elements of partial results and counters of a launch of tiling `key` on so many SMs."""
        t = self.tilings[key]
        ctas = row_ctas(count, rows, t.rows, t.ctas_per_sm)
        return len(self.over_rows) * columns * ctas * lines_of(t.threads, t.rows, t.most), COUNTERS

    def workspace_shapes(self, sms: int, **dims: int) -> dict[str, tuple[int, ...]]:
        """The least shapes of the scratch tensors for a problem on so many SMs, by name; {}: there are none."""
        extents = complete_dims(self.dims, dims)
        sizes = self.scratch_sizes(self.dispatch(**extents), self.count_rows(extents), extents[self.columns], sms)
        return {arg.name: (size,) for arg, size in zip(self.scratch, sizes)}

    def allocate_scratch(self, *inputs: Any, key: str | None = None) -> tuple[Any, ...]:
        if not self.scratch:
            return ()
        dims, device = self.problem_dims(*inputs), next(v.device for v in inputs if hasattr(v, "device"))
        count = self._sm_counts[-1 if device.index is None else device.index]
        sizes = self.scratch_sizes(key or self.dispatch(**dims), self.count_rows(dims), dims[self.columns], count)
        return make_scratch(SCRATCH, device, sizes)

    def fit_scratch(self, key: str, values: Sequence[Any], given: Sequence[Any], count: int) -> tuple[Any, ...]:
        whole = values[self.whole]
        columns = whole.shape[-1]
        sizes = self.scratch_sizes(key, whole.numel() // columns, columns, count)
        if not given:
            return self._own_scratch.find(whole.device, sizes)
        check_scratch(self.name, key, SCRATCH, given, sizes)
        return tuple(given)

    def form_of(self, key: str) -> str:
        if not self.summed:
            return ""
        t = self.tilings[key]
        return f"{'held' if t.most else 'streamed'} by {'warps' if t.threads > WARP else 'lanes'}"

    def dispatch(self, **dims: int) -> str:
        extents = {name: e if isinstance(e, int) else dims[name] for name, e in self.dims.items()}
        return self.pick(extents[self.columns] if self.summed else math.prod(extents.values()), None)

    def choose_instance(self, inputs: Sequence[Any], dims: Mapping[str, int], sms: int | None = None) -> str:
        return self.dispatch(**dims) + self.end_key(inputs)

    def pick(self, size: int, device: int | None) -> str:
        """The key for rows of so many columns, or for a call of so many elements, on a CUDA device (None: the current
        one). ValueError: no tiling has them."""
        if self.winners and (winner := self.find_winner(device, (), size)):
            return winner
        for key in self.anywhere or self.whole_keys:
            if not (most := self.tilings[key].most) or size <= most:
                return key
        raise ValueError(f"{size} {self.columns}")

    def chooser(self, key: str | None) -> Callable[[Sequence[Any]], str]:
        whole, summed, pick = self.whole, self.summed, self.pick
        if key is None:
            if self.optional_endings:
                return lambda v: pick(_size(v[whole], summed), v[whole].device.index) + self.end_key(v)
            return lambda v: pick(_size(v[whole], summed), v[whole].device.index)
        chosen, most = self.full_key(key), self.tilings[key].most

        def refuse_longer(values: Sequence[Any]) -> str:
            if summed and most and values[whole].shape[-1] > most:
                raise ValueError(f"{self.name}: tiling {chosen} has rows of at most {most} {self.columns}")
            return chosen + self.end_key(values)

        return refuse_longer

    def _refuse_tiling(self, key: str, extents: Mapping[str, int], sms: int | None) -> None:
        super()._refuse_tiling(key, extents, sms)
        if self.summed and extents[self.columns] > (most := self.tilings[key].most):
            raise ValueError(f"{self.name}: tiling {key} has rows of at most {most} {self.columns}")

    def count_sms(self, key: str, device: int) -> int:
        known = super().count_sms(key, device) if self.persistent or self.prefetch else 0
        return known if self.persistent else known + UNLIMITED

    def prepare_inputs(self, **dims: int) -> tuple[Any, ...]:
        """As drawn by every plan, but integers name elements of a row, or one before or behind it."""
        inputs = super().prepare_inputs(**dims)
        extent = self.extents_on_device(dims)[self.columns]
        for arg, value in zip(self.inputs, inputs):
            if isinstance(arg, TensorArg) and arg.dtype in LABELS:
                value.random_(-1, extent + 1)
        return inputs

    def _algorithmic_flops_bytes(self, **dims: int) -> tuple[int, int]:
        elements = math.prod(dims[name] for name in self.dims)
        return self.flops * elements, tensor_bytes((*self.inputs, *self.outputs), dims)

    def output_tolerance(self, output: int, inputs: Sequence[Any], reference: str) -> Tolerance:
        arg = self.outputs[output]
        if arg.name in self.exponents:
            return Tolerance(0.0, 0.0, 0.0)
        dims = self.problem_dims(*inputs)
        count = dims[self.columns] if self.summed else 1
        if arg.name in self.over_rows:
            count = max(count, self.count_rows(dims))
        return tolerance(arg.dtype, count, self.approximation[arg.name], reference=reference)

    def free_elements(self, output: int, inputs: tuple[Any, ...]) -> Any:
        """Those whose power of two, or that by which they are divided, would be another one if the value that it is not
        below was off by as much as its approximation allows."""
        if not self.exponents:
            return None
        slack = ROUNDED + max(self.approximation[name] for name in self.exponents)
        plain, below, above = (self._outputs_near(output, inputs, factor) for factor in (1.0, 1.0 - slack, 1.0 + slack))
        return (plain != below) | (plain != above)

    def _outputs_near(self, output: int, inputs: tuple[Any, ...], factor: float) -> Any:
        """Bits of the reference's output."""
        import torch

        with scale_before_ceil_pow2(factor):
            found = self.reference_fn(*inputs)
        values = found[output] if isinstance(found, tuple) else found
        return values.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[values.element_size()])

    def _reference_inputs(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Inputs as the reference computes with them: what has rows gets those of their dims that it lacks, and the
        last."""
        *rows, _ = (*self.inputs, *self.outputs)[self.whole].dims  # type: ignore[union-attr]

        def with_rows(arg: Argument, value: Any) -> Any:
            if value is None or isinstance(arg, ScalarArg) or not {*rows} & {*arg.dims}:
                return value
            for axis, dim in enumerate(rows):
                value = value if dim in arg.dims else value.unsqueeze(axis)
            return value if arg.dims[-1] not in rows else value.unsqueeze(-1)

        return tuple(map(with_rows, self.inputs, inputs))
