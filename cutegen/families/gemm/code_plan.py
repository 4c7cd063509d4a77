"""The code a resolved GEMM is planned to compile to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutegen.arch import ARCHS, Arch
from cutegen.families.code_plan import CodePlan
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import accumulators
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.form_rules import MIN_STAGES
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.resolved import ResolvedGemm, ResolvedGemmTiling, RowCopyKernel
from cutegen.families.gemm.rules import refusals
from cutegen.families.gemm.without_operands import without
from cutegen.runtime.gemm.row_copy import THREADS as ROW_COPY_THREADS


def plan_code(resolved: ResolvedGemm, tiling: ResolvedGemmTiling | RowCopyKernel) -> CodePlan:
    if isinstance(tiling, RowCopyKernel):
        return CodePlan(
            arch=resolved.arch,
        threads=ROW_COPY_THREADS, registers=(), accumulator_registers=0, smem_bytes=0, mma=(), tma_loads=0,
            multicast=False, tma_stores=0, pdl_wait=tiling.pdl_wait,
        )  # fmt: skip
    numbers, arch = tiling.numbers, ARCHS[resolved.arch]
    problem, c = tiling.problem, tiling.candidate
    tiles = problem.kernel_epilogue.tiles
    return CodePlan(
        arch=resolved.arch,
        threads=numbers.threads,
        registers=tuple(sorted({numbers.producer_registers, numbers.consumer_registers} - {0})),
        accumulator_registers=0 if arch.tensor_memory else accumulators(problem, c),
        smem_bytes=numbers.smem_bytes,
        mma=(lowering_of(problem).plan_mma(problem, tiling.framed),),
        scale_copies=lowering_of(problem).count_scale_copies(problem, tiling.framed),
        matrix_loads=lowering_of(problem).count_matrix_loads(problem, tiling.framed),
        tma_loads=len(problem.by_tma) + len(problem.packed_scales) + len(tiles),
        multicast=max(numbers.multicast) > 1,
        pdl_wait=c.pdl_wait,
        pdl_trigger=c.pdl_trigger != "none",
        pdl_loads=sum(feature.loads_before_wait(c) for feature in FEATURES),
        launch_queries=int(c.launch_control),
        # Of a dynamic schedule: claims, and the count of clusters that are done.
        atomics=2 * c.counts_tiles + sum(feature.atomics(problem, c) for feature in FEATURES),
        cluster_stores=sum(feature.cluster_stores(problem, c) for feature in FEATURES),
        tma_stores=sum(not o.direct and not o.adds for o in problem.kernel_epilogue.outputs),
        tma_adds=sum(o.adds for o in problem.kernel_epilogue.outputs),
        mbarriers=tiling.model.count_mbarriers(),
        fewer_registers=_fewer_registers(without(resolved.problem, tiling.omitted), c, arch),
    )


def _fewer_registers(problem: GemmProblem, c: Candidate, arch: Arch) -> str:
    """A legal neighbour with fewer accumulators a thread, as the spec writes it; "" where there is none."""
    (m, n, k), few = c.tile, {"stages": MIN_STAGES}  # other tiles may have other slots, and fewer stages beside them
    halves: list[tuple[str, dict[str, Any]]] = [
        (f"`tiling: {{tile: [{m}, {n // 2}, {k}]}}`", {"tile": (m, n // 2, k), **few}),
        (f"`tiling: {{tile: [{m // 2}, {n}, {k}]}}`", {"tile": (m // 2, n, k), **few}),
    ]
    if c.schedule == "pingpong":
        halves.insert(0, ("`schedule: cooperative` with the same tile", {"schedule": "cooperative"}))
    for words, changes in halves:
        if next(refusals(problem, replace(c, **changes), arch), None) is None:
            return words
    return ""
