"""How GEMMs whose rows fall into groups are proved and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.arch import MOST_SMS
from cutegen.families.gemm.features.feature_list import adapt_baselines
from cutegen.families.gemm.features.groups.grouped_baselines import list_grouped_baselines
from cutegen.families.gemm.proving import GemmProving
from cutegen.families.proving import WAVES, Baseline, Mode, Problem, Proving, thorough_modes
from cutegen.runtime.arguments import legal_extent, step_of
from cutegen.runtime.gemm.grouped_plan import GroupedPlan
from cutegen.runtime.gemm.row_groups import Deal, Kind

# (groups, rows of each, n, k): experts of DeepSeek-V3 and layers of its size, many rows and few.
BENCH = ((8, 4096, 4096, 7168), (8, 4096, 7168, 2048), (32, 192, 6144, 7168), (32, 192, 7168, 3072))
MARKS = 9  # sizes that Deal("edges") goes through


class GroupedProving(GemmProving):
    given_draw = Deal("random")

    def list_problems(self, plan: GroupedPlan) -> Iterator[Problem]:
        """Group sizes around every edge of tiles, none and one among them; extents around those of tile and ring."""
        form = plan.row_groups
        thorough = thorough_modes(plan)
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
                modes: Sequence[Mode] = ("numerics",),
                step: int = step,
                key: str = key,
            ) -> Problem:
                """rows: for each group to have."""
                return Problem(name, self.dims(plan, groups, rows, n, k), key, tuple(modes), Deal(kind, step))

            yield problem("one row", "one", 1, 1, tile, tk)
            yield problem("ragged", "random", 5, 2 * step + 37, tile + tile // 2 + 1, 5 * tk + 1, thorough)
            yield problem("edges of tiles", "edges", MARKS, 2 * step + 1, tile, 2 * tk + 1, ("numerics", "graph"))
            yield problem("edges of 64 rows", "edges", MARKS, 2 * step, tile + 1, tk, step=64)
            yield problem("a row each", "ones", 37, step, tile // 2, tk)
            yield problem("all rows in one group", "one", 7, step + 1, tile, 2 * tk)
            yield problem("no rows at all", "none", 6, step, tile, tk)
            yield problem("no row left", "full", 6, step + 5, tile, tk, ("numerics", "repeat"))
            yield problem("around the ring", "random", 3, step, 2 * tile, 2 * ring + tk)
            waves = int(WAVES * MOST_SMS / 8) + 1
            yield problem("several waves", "random", 8, waves * step // 4, 4 * tile + 1, 3 * tk, thorough)
            yield problem("as many groups as may be", "random", 1024, 16, tile // 2, tk)
        base = self.dims(plan, 3, 200, 128, 128)
        for dim in (form.rows, form.groups, *(d for d in base if d not in (form.rows, form.groups))):
            if not isinstance(plan.dims[dim], int):
                yield Problem(f"{dim} = 0", {**base, dim: 0}, None, ("empty",))

    def list_small_problems(self, plan: GroupedPlan, sms: int) -> Iterator[Problem]:
        """Groups of no, one, some and many rows: around the edges of tiles on more than 2 SMs, in several waves."""
        form = plan.row_groups
        thorough: tuple[Mode, ...] = tuple(m for m in thorough_modes(plan) if m not in ("stream", "graph", "repeat"))
        for key, tiling in plan.tilings.items():
            tile, tk = max(tiling.tile[:2]), tiling.tile[2]
            step, ring = max(form.align, tile), tiling.stages * tk
            rows = step // 2 + 37

            def problem(name: str, kind: Kind, groups: int, rows: int, n: int, k: int, *modes: Mode) -> Problem:
                dims = self.dims(plan, groups, rows, n, k)
                return Problem(name, dims, key, modes or ("numerics",), Deal(kind, step))  # noqa: B023

            if sms > 2:
                yield problem("edges of tiles", "edges", sms + 3, rows, tile // 2 + 1, tk + 1)
                yield problem("a row each", "ones", 2 * sms + 3, step, tile // 2, tk)
                continue
            yield problem("ragged", "random", 3, rows, tile + 1, tk + 1, *thorough)
            yield problem("around the ring", "random", 2, rows, tile // 2 + 1, ring + tk + 1)
            yield problem("no rows at all", "none", 3, step, tile // 2, tk)

    def dims(self, plan: GroupedPlan, groups: int, rows: int, n: int, k: int) -> dict[str, int]:
        """Extents in which each group may have that many rows, as far as the plan's promises go."""
        form, args = plan.row_groups, (*plan.inputs, *plan.outputs)
        count = legal_extent(plan.dims[form.groups], 1, groups)
        room = count * -(-rows // form.align) * form.align if form.flat else rows
        wanted = {form.groups: count, form.rows: room, plan.roles[1]: n, plan.reduced: k}
        if plan.gathered:
            wanted = {plan.gathered.of: room // 2 + 3, **wanted}
        return {d: legal_extent(plan.dims[d], step_of(d, args), wanted[d]) for d in plan.dims}

    def name_axes(self, plan: GroupedPlan, output: int) -> Sequence[str]:
        return plan.outputs[output].dims

    def locate(self, plan: GroupedPlan, output: int, shape: Sequence[int], index: Sequence[int], tiling: Any) -> str:
        """Nothing that the index does not say: which tile a row is in depends on the groups before it."""
        return ""

    def list_baselines(self, plan: GroupedPlan) -> Iterator[Baseline]:
        return adapt_baselines(plan, list_grouped_baselines(plan))

    def bench_dims(self, plan: GroupedPlan) -> Iterator[Mapping[str, int]]:
        for groups, rows, n, k in BENCH:
            yield self.dims(plan, groups, rows, n, k)


PROVING: Proving = GroupedProving()
