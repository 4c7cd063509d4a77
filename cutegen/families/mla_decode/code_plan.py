"""The code a resolved MLA decode is planned to compile to on sm_90a."""

from __future__ import annotations

from cutegen.arch import ARCHS
from cutegen.families.code_plan import CodePlan, MmaPlan
from cutegen.families.mla_decode.derived import CONSUMERS, TILE_COLUMNS, derive, few_rows, query_boxes
from cutegen.families.mla_decode.resolved import ResolvedMla, ResolvedMlaTiling
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

VECTOR = 8  # values of partial results, f16, that are moved at once
JOIN_LOADS = 16  # places that load them: the most of a thread in one round of a join
FP8_CONVERSIONS = ("F2F.", "F2FP.F16.E4M3", "F2FP.F16.E5M2", "I2F.S8", "I2F.U8", "I2FP.F32.S8", "I2FP.F32.U8")


def plan_code(resolved: ResolvedMla, tiling: ResolvedMlaTiling) -> CodePlan:
    numbers, arch, problem = tiling.numbers, ARCHS[resolved.arch], resolved.problem
    d, mma_k = derive(problem, tiling.candidate), arch.mma_k(problem.dtype)
    columns = problem.value_dim // CONSUMERS
    widths = (columns, columns // 2) if numbers.split_columns else (columns,)
    queries = 2 if problem.q == "split" else 1
    scored = problem.head_dim if numbers.cluster > 1 else TILE_COLUMNS  # unrolled, or the turn of a loop
    # S = Q K^T tile by tile; O += P V with P from registers and from SMEM
    mma: tuple[MmaPlan, ...] = (
        MmaPlan(f"HGMMA.{arch.mma_m}x{KEY_BLOCK}x{mma_k}", scored // mma_k),
        *(MmaPlan(f"HGMMA.{arch.mma_m}x{width}x{mma_k}", KEY_BLOCK // mma_k) for width in widths),
    )
    wide_stores = 2 * sum(widths) // (4 * VECTOR)  # of partial results: a quad of threads has two rows of them
    if few := few_rows(problem, tiling.candidate):  # both are products of one shape, and stores are in a loop
        mma = (MmaPlan(f"HGMMA.{arch.mma_m}x{few}x{mma_k}", scored // mma_k),)
        wide_stores = len(widths)
    return CodePlan(
        arch=resolved.arch,
        threads=numbers.threads,
        registers=tuple(sorted({numbers.producer_registers, numbers.consumer_registers})),
        accumulator_registers=d.output_registers + d.score_registers,
        smem_bytes=numbers.smem_bytes,
        mma=mma,
        tma_loads=queries * len(query_boxes(problem, tiling.candidate)) + (not problem.by_rows),
        multicast=numbers.cluster > 1,
        tma_stores=1,
        wide_stores=wide_stores,
        wide_loads=JOIN_LOADS,
        row_prefetches=int(problem.cache is not None and numbers.prefetch > 0),
        pdl_wait=tiling.candidate.pdl_wait,
        pdl_trigger=tiling.candidate.pdl_trigger != "none",
        pdl_early=tiling.candidate.pdl_schedule_ahead,
        absent=() if problem.cache is None else FP8_CONVERSIONS,
        mbarriers=tiling.model.count_mbarriers(),
    )
