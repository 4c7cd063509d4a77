"""Products of groups of rows by what PyTorch has, for `bench` to measure beside a kernel.

Arguments: a ([groups,] rows, k), b (groups, k, n), d ([groups,] rows, n), and the i32 tensor that says which rows are
whose. Each returns a launch, and reads sizes before it, not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cutegen.runtime.gemm.block_scaling import CUBLAS_STEP, cublas_scales
from cutegen.runtime.gemm.row_groups import RowGroups


def torch_grouped_product(form: RowGroups, a: Any, b: Any, d: Any, index: Any) -> Callable[[], Any]:
    """torch._grouped_mm, which returns the product; padding rows are computed with those of their group."""
    import torch

    ends = _ends(form, a, b, index)
    return lambda: torch._grouped_mm(a, b, offs=ends)  # type: ignore[attr-defined]


def torch_scaled_grouped_product(
    form: RowGroups, a: Any, b: Any, d: Any, index: Any, scale_a: Any, scale_b: Any, promoted: bool
) -> Callable[[], Any]:
    """torch._scaled_grouped_mm with scale_a (rows) and scale_b (groups, n), which returns a bf16 product."""
    import torch

    ends = _ends(form, a, b, index)
    return lambda: torch._scaled_grouped_mm(  # type: ignore[attr-defined]
        a, b, scale_a, scale_b, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=not promoted
    )


def _ends(form: RowGroups, a: Any, b: Any, index: Any) -> Any:
    """Where the rows of each group end, padding rows being those of the group before them."""
    import torch

    if form.form != "labels":
        return index
    members = form.members(index, b.shape[0], a.shape[0])
    sizes = torch.stack([(members == group).sum() for group in range(b.shape[0])])
    return ((sizes + form.align - 1) // form.align * form.align).cumsum(0).clamp(max=a.shape[0]).int()


def batched_product(form: RowGroups, a: Any, b: Any, d: Any, index: Any) -> Callable[[], Any]:
    """torch.bmm of all rows that there is room for."""
    import torch

    product = d.to(a.dtype, copy=True)  # not the kernel's own output: that is judged
    return lambda: torch.bmm(a, b, out=product)


def each_product(form: RowGroups, a: Any, b: Any, d: Any, index: Any, whole: bool) -> Callable[[], None]:
    """torch.mm for each group that has rows. whole: the products are all there is to compute, and go to d."""
    import torch

    parts = [(rows, b[group], out) for group, _, rows, out in _each(form, a, b, d, index)]
    if d.dtype is not a.dtype or not whole:
        parts = [(left, right, torch.empty_like(out, dtype=a.dtype)) for left, right, out in parts]

    def launch() -> None:
        for left, right, out in parts:
            torch.mm(left, right, out=out)

    return launch


def each_scaled_product(
    form: RowGroups,
    a: Any,
    b: Any,
    d: Any,
    index: Any,
    scale_a: Any,
    scale_b: Any,
    whole: bool,
    promoted: bool,
) -> Callable[[], None]:
    """torch._scaled_mm for each group that has rows, with one scale per row of both operands or one per block of both;
    scale_a is cut into tensors of their own before the launch. ValueError: cuBLAS does not take so many rows."""
    import torch

    parts = []
    blocks = scale_b.dim() == 3
    for group, at, rows, out in _each(form, a, b, d, index, CUBLAS_STEP if blocks else 1):
        own, other = (scale_a if form.flat else scale_a[group])[at], scale_b[group]
        of_a, of_b = cublas_scales(own, other) if blocks else (own.unsqueeze(1), other.unsqueeze(0))
        parts.append((rows, b[group], of_a, of_b, out if whole else torch.empty_like(out)))

    def launch() -> None:
        for left, right, of_a, of_b, out in parts:
            torch._scaled_mm(
                left, right, scale_a=of_a, scale_b=of_b, out_dtype=out.dtype, use_fast_accum=not promoted, out=out
            )

    return launch


def _each(form: RowGroups, a: Any, b: Any, d: Any, index: Any, step: int = 1) -> Iterator[tuple[int, slice, Any, Any]]:
    """(group, its rows, those of a, those of d) of every group that has rows; reads the sizes.

    step: the rows of each are made a multiple of that, where there are as many. Those behind a group's last are of
    nobody, or, with offsets, of the next group, whose product comes later.
    """
    members = form.members(index, b.shape[0], a.shape[-2])
    for group in range(b.shape[0]):
        at = (members == group if form.flat else members[group] >= 0).nonzero().flatten()
        if at.numel():
            first, count = int(at[0]), int(at[-1]) + 1 - int(at[0])
            rows, out = (a, d) if form.flat else (a[group], d[group])
            own = slice(first, min(first + -(-count // step) * step, rows.shape[0]))
            yield group, own, rows[own], out[own]
