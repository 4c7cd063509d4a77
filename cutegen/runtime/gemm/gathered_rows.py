"""Rows that an index gathers from their tensor, as plans and references see them.

Importing this module imports neither torch nor cutlass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SCALE_STEP = 4  # rows of f32 that strides of TMA are a multiple of


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """tensor: the operand whose rows are gathered. index: the i32 argument that names them. rows: its dim, that of the
    product's rows. of: the dim of the operand's rows. scales: those of its rows, which are gathered with them."""

    tensor: str
    index: str
    rows: str
    of: str
    scales: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        """Arguments whose rows are gathered."""
        return (self.tensor, *self.scales)

    def seen_dims(self, name: str, dims: tuple[str, ...]) -> tuple[str, ...]:
        """The dims of an argument as the product sees them: the rows that are gathered from it are its rows."""
        return tuple(self.rows if d == self.of else d for d in dims) if name in self.tensors else dims


def copied_name(name: str) -> str:
    """Of the scratch tensor with the rows of an argument in the order of the index."""
    return f"copied_{name}"


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
    return torch.where(inside.view([-1 if i == axis else 1 for i in range(value.dim())]), taken, 0)


def lose_rows(index: Any) -> None:
    """Lets about one in eight entries name any number."""
    import torch

    bounds = torch.iinfo(index.dtype)
    lost = torch.rand(index.shape, device=index.device) < 1 / 8
    index[lost] = torch.empty_like(index[lost]).random_(bounds.min, bounds.max)


def spoil_unnamed(plan: Any, values: tuple[Any, ...], named: Any) -> None:
    """NaN in the rows of what is gathered that `named`, a part of the index, does not name."""
    import torch

    for arg, value in zip(plan.inputs, values):
        if arg.name in plan.gathered.tensors:
            rows = value.movedim(arg.dims.index(plan.gathered.of), 0)
            spoil(rows, ~torch.isin(torch.arange(len(rows), device=rows.device), named))


def spoil(tensor: Any, where: Any) -> None:
    """NaN in the members of a tensor; 127 in those of integers."""
    import torch

    if tensor.element_size() == 1:
        tensor.view(torch.uint8)[where] = 0x7F  # a NaN of e4m3 and of e5m2
    else:
        tensor[where] = float("nan")


def fill_rows(value: Any, count: int) -> None:
    """Fills an index with any of `count` rows."""
    value.random_(0, max(count, 1))


def gather_apart(plan: Any, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], Callable[[], None]]:
    """The inputs with tensors of the product's rows in place of the operand and its scales, and a launch that gathers
    them there. Scales of blocks get (1, align4(m)) strides, which libraries want."""
    import torch

    own = plan.gathered
    args = {a.name: a for a in plan.inputs}
    held = dict(zip(args, inputs))
    index = held[own.index]
    steps: list[tuple[Any, int, Any]] = []
    for name in own.tensors:
        axis, value = args[name].dims.index(own.of), held[name]
        if name != own.tensor and value.dim() == 2:
            blocks = value.movedim(axis, 1)
            rows = blocks.new_empty((blocks.shape[0], -(-len(index) // SCALE_STEP) * SCALE_STEP))[:, : len(index)]
            steps.append((blocks, 1, rows))
            held[name] = rows.movedim(1, axis)
        else:
            whole = value.movedim(axis, 0)
            rows = whole.new_empty((len(index), *whole.shape[1:]))
            source, target = (t.view(torch.uint8) if t.element_size() == 1 else t for t in (whole, rows))
            steps.append((source, 0, target))
            held[name] = rows.movedim(0, axis)

    def gather() -> None:
        for source, axis, target in steps:
            torch.index_select(source, axis, index, out=target)

    return tuple(held.values()), gather
