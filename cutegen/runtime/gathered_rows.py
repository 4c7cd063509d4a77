"""Rows that an index gathers from their tensor, as plans and references see them.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """tensor: the operand whose rows are gathered. index: the i32 argument that names them. rows: its dim, that of the
    product's rows. of: the dim of the operand's rows."""

    tensor: str
    index: str
    rows: str
    of: str

    def seen_dims(self, name: str, dims: tuple[str, ...]) -> tuple[str, ...]:
        """The dims of an argument as the product sees them: the rows that are gathered from it are its rows."""
        return tuple(self.rows if d == self.of else d for d in dims) if name == self.tensor else dims


def product_dims(plan: Any, arg: Any) -> tuple[str, ...]:
    """The dims of a TensorArg as the product of its plan sees them."""
    return plan.gathered.seen_dims(arg.name, arg.dims) if plan.gathered else arg.dims  # type: ignore[no-any-return]


def take_rows(value: Any, index: Any, axis: int) -> Any:
    """The rows of `value` along `axis` that `index` (rows,) names; zeros for those that it does not have."""
    import torch

    count = value.shape[axis]
    inside = (index >= 0) & (index < count)
    if not count:
        shape = list(value.shape)
        shape[axis] = len(index)
        return value.new_zeros(shape)
    taken = value.index_select(axis, torch.where(inside, index, 0).long())
    return torch.where(inside.unsqueeze(1 - axis), taken, 0)


def lose_rows(index: Any) -> None:
    """Lets about one in eight entries name any number."""
    import torch

    bounds = torch.iinfo(index.dtype)
    lost = torch.rand(index.shape, device=index.device) < 1 / 8
    index[lost] = torch.empty_like(index[lost]).random_(bounds.min, bounds.max)


def fill_rows(value: Any, count: int) -> None:
    """Fills an index with any of `count` rows."""
    value.random_(0, max(count, 1))


def gather_apart(plan: Any, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], Callable[[], None]]:
    """The inputs with a tensor of the product's rows in place of the operand, and a launch that gathers them there."""
    import torch

    own = plan.gathered
    names = [a.name for a in plan.inputs]
    place = names.index(own.tensor)
    axis = plan.inputs[place].dims.index(own.of)
    index, whole = inputs[names.index(own.index)], inputs[place].movedim(axis, 0)
    rows = torch.empty((len(index), *whole.shape[1:]), dtype=whole.dtype, device=whole.device)
    source, target = (t.view(torch.uint8) if t.element_size() == 1 else t for t in (whole, rows))

    def gather() -> None:
        torch.index_select(source, 0, index, out=target)

    return (*inputs[:place], rows.movedim(0, axis), *inputs[place + 1 :]), gather
