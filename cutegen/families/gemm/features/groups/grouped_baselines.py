"""What products of groups of rows are measured against: PyTorch and DeepGEMM, with the scales of the product."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.families.proving import Baseline
from cutegen.runtime.arguments import TensorArg, divided
from cutegen.runtime.baselines import Bind
from cutegen.runtime.gemm.block_scaling import blocked_scales
from cutegen.runtime.gemm.gathered_rows import product_dims
from cutegen.runtime.gemm.grouped_plan import GroupedPlan
from cutegen.runtime.gemm.grouped_products import (
    batched_product,
    each_product,
    each_scaled_product,
    torch_grouped_product,
    torch_scaled_grouped_product,
)


@dataclass(frozen=True, slots=True)
class GroupedOperands:
    """a: ([groups,] rows, k). b: (groups, k, n). d: ([groups,] rows, n). index: what says which rows are whose.

    scales: of a and b: one per block of both, ([groups,] rows, k blocks) and (groups, n blocks, k blocks), or one per
    row of both, ([groups,] rows) and (groups, n); None where the product has other ones, or none.
    """

    a: Any
    b: Any
    d: Any
    index: Any
    scales: tuple[Any, Any] | None


def list_grouped_baselines(plan: GroupedPlan) -> Iterator[Baseline]:
    """Every baseline that could apply to the plan, the one that ratios refer to first."""
    if plan.scales:
        yield from _scaled(plan)
        return
    out, (rows, columns, _, _) = plan.outputs[0], plan.roles
    whole = _is_product(plan)
    if plan.row_groups.flat:
        as_declared = whole and out.dims == (rows, columns) and out.dtype in {a.dtype for a in _matrices(plan)}
        yield Baseline(
            "torch._grouped_mm",
            "CUTLASS in PyTorch",
            _bind(plan, torch_grouped_product),
            complete=as_declared,
            returns=as_declared,
            rival="torch grouped",
        )
    else:
        product = _bind(plan, batched_product)
        yield Baseline("torch.bmm", "cuBLAS, of all rows", product, complete=False, rival="cuBLAS")
    if plan.row_groups.form != "offsets":
        yield Baseline("deep_gemm", "DeepGEMM", _bind_deep_gemm(plan), complete=whole, rival="DeepGEMM")
    each = "cuBLAS, group by group, sizes known"
    yield Baseline("torch.mm", each, _bind(plan, each_product, whole), complete=whole, rival="cuBLAS loop")


def _scaled(plan: GroupedPlan) -> Iterator[Baseline]:
    """Of products with scales in their mainloop: what scales in the same way."""
    whole, blocks = _is_product(plan), len(blocked_scales(plan)) == 2
    if blocks and plan.row_groups.form != "offsets":
        yield Baseline("deep_gemm", "DeepGEMM", _bind_deep_gemm(plan), complete=whole, rival="DeepGEMM")
    if not blocks and plan.row_groups.flat:
        returns = whole and plan.outputs[0].dtype == "bfloat16"
        product = _bind(plan, torch_scaled_grouped_product, bool(plan.promoted_k))
        does = "CUTLASS in PyTorch"
        yield Baseline(
            "torch._scaled_grouped_mm", does, product, complete=returns, returns=returns, rival="torch grouped"
        )
    each = _bind(plan, each_scaled_product, whole, bool(plan.promoted_k))
    does = "cuBLAS, group by group, sizes known"
    yield Baseline("torch._scaled_mm", does, each, complete=whole, rival="cuBLAS loop")


def _is_product(plan: GroupedPlan) -> bool:
    """Whether the output is the (scaled) product and nothing else."""
    return len(plan.outputs) == 1 and list(plan.epilogue.values())[-1:] == ["acc"]


def _operands(plan: GroupedPlan, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> GroupedOperands:
    form, out = plan.row_groups, plan.outputs[0]
    columns = plan.roles[1]
    found = {a.name: (a, v) for a, v in zip(plan.inputs, inputs) if isinstance(a, TensorArg)}
    a, b = (pair for pair in found.values() if plan.reduced in pair[0].dims)
    if form.rows not in product_dims(plan, a[0]):
        a, b = b, a
    lead = () if form.flat else (form.groups,)
    left = _view(plan, *a, (*lead, form.rows, plan.reduced))
    right = _view(plan, *b, (form.groups, plan.reduced, columns))
    if columns in out.dims:
        d = _view(plan, out, outputs[0], (*lead, form.rows, columns))
    else:  # no output has all columns of the product
        d = left.new_empty((*left.shape[:-1], right.shape[-1]))
    order = (form.groups, form.rows, columns, plan.reduced)
    scales = [
        _view(plan, s, found[s.name][1], sorted(product_dims(plan, s), key=lambda d: order.index(divided(d)[0])))
        for s in blocked_scales(plan)
    ] or [
        _view(plan, *found[name], dims)
        for dims in ((*lead, form.rows), (form.groups, columns))
        for name in plan.scales
        if name in found and set(product_dims(plan, found[name][0])) == set(dims)
    ]
    both = (scales[0], scales[1]) if len(scales) == len(plan.scales) == 2 else None
    return GroupedOperands(left, right, d, found[form.tensor][1], both)


def _matrices(plan: GroupedPlan) -> list[TensorArg]:
    return [a for a in plan.inputs if isinstance(a, TensorArg) and plan.reduced in a.dims]


def _view(plan: GroupedPlan, arg: TensorArg, value: Any, dims: Sequence[str]) -> Any:
    own = product_dims(plan, arg)
    return value.permute([own.index(d) for d in dims])


def _bind(plan: GroupedPlan, product: Callable[..., Callable[[], Any]], *options: bool) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Callable[[], Any]:
        x = _operands(plan, inputs, outputs)
        if not plan.scales:
            return product(plan.row_groups, x.a, x.b, x.d, x.index, *options)
        if x.scales is None:
            raise ValueError("takes one scale per row of both operands, or one per block of both")
        return product(plan.row_groups, x.a, x.b, x.d, x.index, *x.scales, *options)

    return bind


def _bind_deep_gemm(plan: GroupedPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Any:
        library: Any = importlib.import_module("deep_gemm")
        x = _operands(plan, inputs, outputs)
        a, b, kind = x.a, x.b.transpose(1, 2), "bf16"  # b: (groups, n, k)
        if x.scales:
            a, b, kind = (a, x.scales[0]), (b, x.scales[1]), "fp8"
        if plan.row_groups.form == "labels":
            least = library.get_mk_alignment_for_contiguous_layout()
            if plan.row_groups.align % least:
                raise ValueError(f"aligns groups to {least} rows, this kernel to {plan.row_groups.align}")
            contiguous = getattr(library, f"m_grouped_{kind}_gemm_nt_contiguous")
            return lambda: contiguous(a, b, x.d, x.index)
        expected = max(1, int(x.index.clamp(0, x.a.shape[1]).float().mean().ceil()))
        # Releases have one of these names, or both.
        name = f"m_grouped_{kind}_gemm_nt_masked"
        masked = getattr(library, name, None) or getattr(library, f"{kind}_m_grouped_gemm_nt_masked")
        return lambda: masked(a, b, x.d, x.index, expected)

    return bind
