"""How GEMMs whose rows fall into groups are proved and measured."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cutegen.families.proving import Baseline, Bind, Problem
from cutegen.runtime.arguments import TensorArg, legal_extent, step_of
from cutegen.runtime.grouped_plan import GroupedPlan
from cutegen.runtime.grouped_products import batched_product, each_product, torch_grouped_product
from cutegen.runtime.row_groups import Deal, Kind

ALL_MODES = ("numerics", "strides", "stream", "graph", "repeat")
SM_COUNT, WAVES = 132, 2.2  # of the largest supported device, as the edge shapes of other products
# (groups, rows of each, n, k): experts of DeepSeek-V3 and layers of its size, many rows and few.
BENCH = ((8, 4096, 4096, 7168), (8, 4096, 7168, 2048), (32, 192, 6144, 7168), (32, 192, 7168, 3072))
MARKS = 9  # sizes that Deal("edges") goes through


class GroupedProving:
    given_draw = Deal("random")

    def list_problems(self, plan: GroupedPlan) -> Iterator[Problem]:
        """Group sizes around every edge of tiles, none and one among them; extents around those of tile and ring."""
        form = plan.row_groups
        for key, tiling in plan.tilings.items():
            tile, tk = max(tiling.tile[:2]), tiling.tile[2]
            ring, step = tiling.stages * tk, max(form.align, tile)

            def problem(
                name: str,
                kind: Kind,
                groups: int,
                rows: int,
                n: int,
                k: int,
                modes: Sequence[str] = ("numerics",),
                step: int = step,
                key: str = key,
            ) -> Problem:
                """rows: for each group to have."""
                return Problem(name, self.dims(plan, groups, rows, n, k), key, tuple(modes), Deal(kind, step))

            yield problem("one row", "one", 1, 1, tile, tk)
            yield problem("ragged", "random", 5, 2 * step + 37, tile + tile // 2 + 1, 5 * tk + 1, ALL_MODES)
            yield problem("edges of tiles", "edges", MARKS, 2 * step + 1, tile, 2 * tk + 1, ("numerics", "graph"))
            yield problem("edges of 64 rows", "edges", MARKS, 2 * step, tile + 1, tk, step=64)
            yield problem("a row each", "ones", 37, step, tile // 2, tk)
            yield problem("all rows in one group", "one", 7, step + 1, tile, 2 * tk)
            yield problem("no rows at all", "none", 6, step, tile, tk)
            yield problem("no row left", "full", 6, step + 5, tile, tk, ("numerics", "repeat"))
            yield problem("around the ring", "random", 3, step, 2 * tile, 2 * ring + tk)
            waves = int(WAVES * SM_COUNT / 8) + 1
            yield problem("several waves", "random", 8, waves * step // 4, 4 * tile + 1, 3 * tk, ALL_MODES)
            yield problem("as many groups as may be", "random", 1024, 16, tile // 2, tk)
        base = self.dims(plan, 3, 200, 128, 128)
        for dim in (form.rows, form.groups, *(d for d in base if d not in (form.rows, form.groups))):
            if not isinstance(plan.dims[dim], int):
                yield Problem(f"{dim} = 0", {**base, dim: 0}, None, ("empty",))

    def dims(self, plan: GroupedPlan, groups: int, rows: int, n: int, k: int) -> dict[str, int]:
        """Extents in which each group may have that many rows, as far as the plan's promises go."""
        form, args = plan.row_groups, (*plan.inputs, *plan.outputs)
        count = legal_extent(plan.dims[form.groups], 1, groups)
        room = count * -(-rows // form.align) * form.align if form.flat else rows
        wanted = {form.groups: count, form.rows: room, plan.roles[1]: n, plan.reduced: k}
        return {d: legal_extent(plan.dims[d], step_of(d, args), wanted[d]) for d in plan.dims}

    def name_axes(self, plan: GroupedPlan, output: int) -> Sequence[str]:
        return plan.outputs[output].dims

    def locate(self, plan: GroupedPlan, output: int, shape: Sequence[int], index: Sequence[int], tiling: Any) -> str:
        """Nothing that the index does not say: which tile a row is in depends on the groups before it."""
        return ""

    def list_baselines(self, plan: GroupedPlan) -> Iterator[Baseline]:
        out, (rows, columns, _, _) = plan.outputs[0], plan.roles
        whole = list(plan.epilogue.values()) == ["acc"] and len(plan.outputs) == 1
        if plan.row_groups.flat:
            as_declared = whole and out.dims == (rows, columns) and out.dtype in {a.dtype for a in _matrices(plan)}
            yield Baseline(
                "torch._grouped_mm",
                "CUTLASS in PyTorch",
                _bind(plan, torch_grouped_product),
                complete=as_declared,
                returns=as_declared,
                library="torch grouped",
            )
        else:
            product = _bind(plan, batched_product)
            yield Baseline("torch.bmm", "cuBLAS, of all rows", product, complete=False, library="cuBLAS")
        if plan.row_groups.form != "offsets":
            yield Baseline("deep_gemm", "DeepGEMM", _bind_deep_gemm(plan), complete=whole, library="DeepGEMM")
        each = "cuBLAS, group by group, sizes known"
        yield Baseline("torch.mm", each, _bind(plan, each_product, whole), complete=whole, library="cuBLAS loop")

    def bench_dims(self, plan: GroupedPlan) -> Iterator[Mapping[str, int]]:
        for groups, rows, n, k in BENCH:
            yield self.dims(plan, groups, rows, n, k)


PROVING = GroupedProving()


def _operands(plan: GroupedPlan, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
    """([groups,] rows, k), (groups, k, n), ([groups,] rows, n), and what says which rows are whose."""
    form, out = plan.row_groups, plan.outputs[0]
    columns = plan.roles[1]
    found = {a.name: (a, v) for a, v in zip(plan.inputs, inputs) if isinstance(a, TensorArg)}
    a, b = (pair for pair in found.values() if plan.reduced in pair[0].dims)
    if form.rows not in a[0].dims:
        a, b = b, a
    lead = () if form.flat else (form.groups,)
    left, right = _view(*a, (*lead, form.rows, plan.reduced)), _view(*b, (form.groups, plan.reduced, columns))
    if columns in out.dims:
        d = _view(out, outputs[0], (*lead, form.rows, columns))
    else:  # no output has all columns of the product
        d = left.new_empty((*left.shape[:-1], right.shape[-1]))
    return left, right, d, found[form.tensor][1]


def _matrices(plan: GroupedPlan) -> list[TensorArg]:
    return [a for a in plan.inputs if isinstance(a, TensorArg) and plan.reduced in a.dims]


def _view(arg: TensorArg, value: Any, dims: Sequence[str]) -> Any:
    return value.permute([arg.dims.index(d) for d in dims])


def _bind(plan: GroupedPlan, product: Callable[..., Callable[[], Any]], *options: bool) -> Bind:
    return lambda inputs, outputs: product(plan.row_groups, *_operands(plan, inputs, outputs), *options)


def _bind_deep_gemm(plan: GroupedPlan) -> Bind:
    def bind(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Any:
        library: Any = importlib.import_module("deep_gemm")
        a, b, d, index = _operands(plan, inputs, outputs)
        weights = b.transpose(1, 2)  # (groups, n, k)
        if plan.row_groups.form == "labels":
            least = library.get_mk_alignment_for_contiguous_layout()
            if plan.row_groups.align % least:
                raise ValueError(f"aligns groups to {least} rows, this kernel to {plan.row_groups.align}")
            return lambda: library.m_grouped_bf16_gemm_nt_contiguous(a, weights, d, index)
        expected = max(1, int(index.clamp(0, a.shape[1]).float().mean().ceil()))
        return lambda: library.m_grouped_bf16_gemm_nt_masked(a, weights, d, index, expected)

    return bind
