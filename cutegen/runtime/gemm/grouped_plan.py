"""GroupedPlan: what generated plans subclass whose rows fall into groups. It imports neither torch nor cutlass.

Beside what a KernelPlan has, a generated plan gives

    row_groups        RowGroups("labels", "group", rows="m", groups="g", align=128)

and its `_algorithmic_flops_bytes` takes the rows of all groups for the dim of rows, and the groups that have any for
that of groups. Results in rows of no group are unspecified: a launch may write them, and uses no such row for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cutegen.runtime.arguments import Argument, TensorArg, extent_of
from cutegen.runtime.gemm.gathered_rows import lose_rows, spoil, spoil_unnamed
from cutegen.runtime.gemm.plan import KernelPlan
from cutegen.runtime.gemm.row_groups import Deal, RowGroups, deal_rows, fill_index
from cutegen.runtime.gemm.scale_packing import is_packed, spread_rows


class GroupedPlan(KernelPlan):
    """A product for each group of rows, in one launch."""

    proving = "features.groups.grouped_proving"
    row_groups: ClassVar[RowGroups]

    @property
    def rows_anywhere(self) -> bool:
        return self.row_groups.form == "offsets"

    @property
    def product_batch(self) -> tuple[str, ...]:
        return () if self.row_groups.flat else self.roles[3]

    def prepare_inputs(self, **dims: int) -> tuple[Any, ...]:
        """As of any product; groups have about as many rows each, and rows of no group are as random as others."""
        values = super().prepare_inputs(**dims)
        self._deal(values, Deal("near", ordered=True))
        return values

    def draw_inputs(self, draw: Deal, **dims: int) -> tuple[Any, ...]:
        """Rows dealt out as `draw` says, and NaN in all that belongs to no row of a group: padding rows of every
        tensor, matrices and vectors of groups without rows."""
        values = super().prepare_inputs(**dims)
        self._deal(values, draw)
        members = self._members(values)
        idle, empty = members < 0, ~self._occupied(members, values)
        form = self.row_groups
        gathered = self.gathered.tensors if self.gathered else ()
        for arg, value in ((a, v) for a, v in self._tensors(values) if a.name not in gathered):
            dims_of = tuple(d for d in (form.groups, form.rows) if d in arg.dims)
            if not dims_of:
                continue
            view = value.permute(*(arg.dims.index(d) for d in dims_of), *_others(arg, dims_of))
            shared = idle.dim() > len(dims_of)  # by the groups, each of which has such a row
            spoil(view, (idle.all(0) if shared else idle) if form.rows in dims_of else empty)
        if self.gathered:
            self._spoil_gathered(values, idle)
        return values

    def _spoil_gathered(self, values: tuple[Any, ...], idle: Any) -> None:
        """Rows of no group, and some others, are of any number; rows that nobody names are NaN."""
        import torch

        assert self.gathered
        index = values[[a.name for a in self.inputs].index(self.gathered.index)]
        bounds = torch.iinfo(index.dtype)
        index[idle] = torch.empty_like(index[idle]).random_(bounds.min, bounds.max)
        lose_rows(index)
        spoil_unnamed(self, values, index[~idle])

    def free_elements(self, output: int, inputs: tuple[Any, ...]) -> Any:
        arg, members = self.outputs[output], self._members(inputs)
        dims = self.problem_dims(*inputs)
        if is_packed(arg):
            return spread_rows(members < 0, [extent_of(d, dims) for d in arg.dims])
        order = [d for d in (self.row_groups.groups, self.row_groups.rows) if d in arg.dims]
        idle = (members < 0).permute(*sorted(range(len(order)), key=lambda i: arg.dims.index(order[i])))
        shape = [dims[d] if d in order else 1 for d in arg.dims]
        return idle.reshape(shape).expand(*(extent_of(d, dims) for d in arg.dims))

    def count_work(self, dims: Mapping[str, int], inputs: tuple[Any, ...]) -> tuple[int, int]:
        members = self._members(inputs)
        form = self.row_groups
        rows, groups = int((members >= 0).sum()), int(self._occupied(members, inputs).sum())
        return self._algorithmic_flops_bytes(**{**dims, form.rows: rows, form.groups: groups})

    def signature(self) -> tuple[Any, ...]:
        return *super().signature(), self.row_groups

    def _find_carrier(self, operands: Sequence[int], output: int) -> int:
        """The operand with the dim of groups: without groups there is nothing to do, whatever rows there are."""
        args = {i: arg for i, arg in enumerate(self.inputs) if isinstance(arg, TensorArg)}
        return next(i for i in reversed(operands) if self.row_groups.groups in args[i].dims)

    def _members(self, inputs: tuple[Any, ...]) -> Any:
        dims = self.problem_dims(*inputs)
        return self.row_groups.members(self._index(inputs), dims[self.row_groups.groups], dims[self.row_groups.rows])

    def _occupied(self, members: Any, inputs: tuple[Any, ...]) -> Any:
        """(groups,): whether each has rows."""
        import torch

        each = torch.arange(self.problem_dims(*inputs)[self.row_groups.groups], device=members.device)
        return torch.isin(each, members)

    def _deal(self, inputs: tuple[Any, ...], deal: Deal) -> None:
        dims = self.problem_dims(*inputs)
        form = self.row_groups
        sizes = deal_rows(deal, form, dims[form.groups], dims[form.rows])
        fill_index(self._index(inputs), form, sizes, ordered=deal.ordered)

    def _index(self, inputs: tuple[Any, ...]) -> Any:
        return inputs[next(i for i, a in enumerate(self.inputs) if a.name == self.row_groups.tensor)]

    def _tensors(self, inputs: tuple[Any, ...]) -> list[tuple[TensorArg, Any]]:
        """Arguments and values that the maths is about."""
        pairs: list[tuple[Argument, Any]] = list(zip(self.inputs, inputs))
        return [(a, v) for a, v in pairs if isinstance(a, TensorArg) and a.name not in self._indices()]

    def _indices(self) -> tuple[str, ...]:
        return (*super()._indices(), self.row_groups.tensor)


def _others(arg: TensorArg, dims: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(axis for axis, d in enumerate(arg.dims) if d not in dims)
