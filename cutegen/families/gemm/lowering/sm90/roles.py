"""Warps of an sm_90a kernel, and what they do."""

from __future__ import annotations

from cutegen.arch.architecture import WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.warps import LOAD_WARP, TILE_LOAD_WARP, consumer_warps, scheduler_warp
from cutegen.model.kernel import IDLE, Role, Warps


def list_roles(problem: GemmProblem, c: Candidate) -> tuple[Role, ...]:
    scale = [problem.row_scale[0].name] if problem.row_scale and not problem.gathers_row_scale else []
    loaded = [*(t.name for t in problem.by_tma), *(s.name for s in problem.packed_scales), *scale]
    load = f"loads tiles of {', '.join(loaded[:-1])}{' and ' * (len(loaded) > 1)}{loaded[-1]} by TMA"
    load += "".join(feature.loads(problem, c) for feature in FEATURES)
    roles = [Role(LOAD_WARP, c.producer_registers, load)]
    if tiles := problem.kernel_epilogue.tiles:
        what = f"loads epilogue tiles of {' and '.join(t.name for t in tiles)} by TMA"
        roles.append(Role(TILE_LOAD_WARP, c.producer_registers, what))
    scheduler = scheduler_warp(problem)
    first_idle = scheduler.first
    if c.dynamic:
        claims = "claims tiles" if c.cluster == (1, 1) else "in CTA 0 of a cluster: claims tiles for all its CTAs"
        roles.append(Role(scheduler, c.producer_registers, claims))
        first_idle += 1
    last = [role for feature in FEATURES for role in feature.list_roles(problem, c)]
    end = last[0].warps.first if last else WARPS_PER_WARPGROUP
    if first_idle < end:
        name = "idle warps" if end - first_idle > 1 or not last else "idle warp"
        roles.append(Role(Warps(name, first_idle, end - first_idle), c.producer_registers, IDLE))
    roles += last
    for group, warps in enumerate(consumer_warps(c)):
        if c.schedule == "pingpong":
            does = f"tiles {group}, {group + 2}, {group + 4}, ...: MMA, then its epilogue while the other computes"
        else:
            band, first_row = problem.target.mma_m, problem.target.mma_m * group
            rows = (
                f"rows {first_row}..{first_row + band - 1} of every {band * c.consumers}"
                if c.consumers > 1
                else "all rows"
            )
            does = f"{rows} of the tile: MMA, then the epilogue{''.join(f.finishes(c) for f in FEATURES)}"
        roles.append(Role(warps, c.consumer_registers, does))
    return tuple(roles)
