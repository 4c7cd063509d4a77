"""ProductPlan: what a launch of a GEMM passes, which kernels can run it, and what is wrong with a call.

launch.py makes launches of it, and plan.py the plan that generated ones subclass. Imports neither torch nor cutlass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from cutegen.runtime.arguments import Argument, complete_dims, divided
from cutegen.runtime.call_faults import Fault, find_faults
from cutegen.runtime.gemm.dispatched import DispatchedPlan
from cutegen.runtime.gemm.gathered_rows import GatheredRows
from cutegen.runtime.gemm.product_scratch import GemmScratch
from cutegen.runtime.gemm.row_copy import RowCopy
from cutegen.runtime.overlap import find_overlaps
from cutegen.runtime.tensor_plan import TensorOperands


class ProductPlan(TensorOperands, DispatchedPlan):
    """Operands, scratch and kernels of a product; the module docstring of plan.py says what the attributes are."""

    family = "gemm"
    reduced: ClassVar[str]
    reductions: ClassVar[Mapping[str, str]] = {}
    block_values: ClassVar[tuple[str, ...]] = ()
    gathered: ClassVar[GatheredRows | None] = None
    copied_tilings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, on_miss: Literal["compile", "warn", "error"] = "compile", sms: int | None = None) -> None:
        self.row_copy = RowCopy(self.gathered, self.inputs) if self.gathered and self.copied_tilings else None
        self.scratch_of = GemmScratch(
            self.name, self.tilings, self._kept_dims(), self.rows_anywhere, self.row_copy, self.copied_tilings
        )
        self.scratch = self.scratch_of.args
        super().__init__(on_miss, sms)

    @property
    def roles(self) -> tuple[str, str, str, tuple[str, ...]]:
        """Names of the dims m, n and k, and of the batch, if there is one."""
        own = self.gathered.of if self.gathered and self.gathered.of != self.gathered.rows else None
        *batch, m, n, k = (dim for dim in self.dims if dim != own)
        return m, n, k, tuple(batch)

    def _kept_dims(self) -> dict[str, str]:
        """Of each reduction, which of m and n it has."""
        m, n, _, _ = self.roles
        has = {o.name: {divided(d)[0] for d in o.dims} for o in self.outputs}
        return {r: "m" if m in has[r] else "n" if n in has[r] else "" for r in self.reductions}

    @property
    def rows_anywhere(self) -> bool:
        """Whether tiles may begin at any row."""
        return False

    @property
    def product_batch(self) -> tuple[str, ...]:
        """The dim that there is a product for each member of, if there is one."""
        return self.roles[3]

    # -- optional operands --

    def choose_instance(self, inputs: Sequence[Any], dims: Mapping[str, int], sms: int | None = None) -> str:
        device = next(v.get_device() for v in inputs if hasattr(v, "get_device"))
        key = self.dispatch_within(sms if sms is not None else self.sms, device, dims)
        return key + self.end_key(inputs)

    def compile_copy(self) -> Callable[..., None]:
        """The kernel that copies gathered rows."""
        raise NotImplementedError

    def is_loaded(self, key: str) -> bool:
        return super().is_loaded(key) and (key not in self.copied_tilings or "copy_kernel" in vars(self))

    @cached_property
    def copy_kernel(self) -> Callable[..., None]:
        return self.compile_copy()

    def least_sms(self, key: str) -> int:
        return int(self.tilings[key].cluster_size)

    def limit_sms(self, sms: int | None, key: str, index: int) -> int:
        count = super().limit_sms(sms, key, index)
        if self.tilings[key].clc and count < (have := self._sm_counts[index]):
            said = f"sms is {count}, and {key} has a launch with a cluster for each tile, which runs on all {have} SMs"
            raise ValueError(f"{self.name}: {said}: use `scheduler: static_persistent` in the spec for a budget")
        return count

    def _find_carrier(self, operands: Sequence[int], output: int) -> int:
        """The argument that may be empty where the output is not: an operand, unless the contracted dim is constant."""
        if isinstance(self.dims[self.reduced], int):
            return output
        return next(i for i in operands if not self.gathered or self.inputs[i].name != self.gathered.tensor)

    def _find_faults(self, args: Sequence[Argument], values: Sequence[Any], sms: int | None = None) -> list[Fault]:
        extents = {**self.dims, **{s.dims[0]: (0, None) for s in self.scratch}}
        written = [a.name for a in (*self.outputs, *self.scratch)]
        faults = find_faults(extents, args, values, self.device, self.reduced, written)
        return faults or list(find_overlaps(args, values, written, self.aliases))

    # -- scratch --

    def workspace_shapes(self, **dims: int) -> dict[str, tuple[int, ...]]:
        """The least shapes of the scratch tensors for a problem, by name, whichever tiling runs."""
        sizes = self._size_scratch(complete_dims(self.dims, dims), None)
        return {arg.name: (size,) for arg, size in zip(self.scratch, sizes)}

    def _refuse_tiling(self, key: str, extents: Mapping[str, int], sms: int | None) -> None:
        super()._refuse_tiling(key, extents, sms)
        self._size_scratch(extents, key)  # a kernel can't count as many elements

    def _size_scratch(self, dims: Mapping[str, int], key: str | None) -> tuple[int, ...]:
        m, n, _, _ = self.roles
        extents, k = [dims[d] for d in (m, n, *self.product_batch)], dims[self.reduced]
        return self.scratch_of.needs(key, extents, k) if key else self.scratch_of.largest(extents, k)

    def allocate_scratch(self, *inputs: Any, key: str | None = None) -> tuple[Any, ...]:
        device = next(v.device for v in inputs if hasattr(v, "device"))
        return self.scratch_of.make(device, self._size_scratch(self.problem_dims(*inputs), key))
