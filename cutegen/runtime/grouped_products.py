"""Products of groups of rows by what PyTorch has, for `bench` to measure beside a kernel.

Arguments: a ([groups,] rows, k), b (groups, k, n), d ([groups,] rows, n), and the i32 tensor that says which rows are
whose. Each returns a launch, and reads sizes before it, not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutegen.runtime.row_groups import RowGroups


def torch_grouped_product(form: RowGroups, a: Any, b: Any, d: Any, index: Any) -> Callable[[], Any]:
    """torch._grouped_mm, which returns the product; padding rows are computed with those of their group."""
    import torch

    ends = index
    if form.form == "labels":
        members = form.members(index, b.shape[0], a.shape[0])
        sizes = torch.stack([(members == group).sum() for group in range(b.shape[0])])
        ends = ((sizes + form.align - 1) // form.align * form.align).cumsum(0).clamp(max=a.shape[0]).int()
    return lambda: torch._grouped_mm(a, b, offs=ends)  # type: ignore[attr-defined]


def batched_product(form: RowGroups, a: Any, b: Any, d: Any, index: Any) -> Callable[[], Any]:
    """torch.bmm of all rows that there is room for."""
    import torch

    product = d.to(a.dtype, copy=True)  # not the kernel's own output: that is judged
    return lambda: torch.bmm(a, b, out=product)


def each_product(form: RowGroups, a: Any, b: Any, d: Any, index: Any, whole: bool) -> Callable[[], None]:
    """torch.mm for each group that has rows. whole: the products are all there is to compute, and go to d."""
    import torch

    members = form.members(index, b.shape[0], a.shape[-2])
    parts = []
    for group in range(b.shape[0]):
        at = (members == group if form.flat else members[group] >= 0).nonzero().flatten()
        if at.numel():
            begin, end = int(at[0]), int(at[-1]) + 1
            rows, out = (a, d) if form.flat else (a[group], d[group])
            parts.append((rows[begin:end], b[group], out[begin:end]))
    if d.dtype is not a.dtype or not whole:
        parts = [(left, right, torch.empty_like(out, dtype=a.dtype)) for left, right, out in parts]

    def launch() -> None:
        for left, right, out in parts:
            torch.mm(left, right, out=out)

    return launch
