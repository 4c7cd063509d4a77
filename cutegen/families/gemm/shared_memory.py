"""The shared memory of a CTA: the fields of the kernel's SharedStorage in order, and how much they take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import attrgetter

from cutegen.arch.architecture import ACCESS_BYTES, TENSOR_ALIGN
from cutegen.dtypes import DType
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import (
    ANSWER_BYTES,
    QUEUE_STAGES,
    epilogue_tile,
    output_sources,
    output_tile,
)
from cutegen.families.gemm.features.feature_list import FEATURES, features_with
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.problem import GemmProblem, once_each
from cutegen.families.generated_names import tensor_stem
from cutegen.model.smem import F32, I32, MBARRIER, Element, SmemField, SmemRegion, lay_out, place_fields


def smem_map(problem: GemmProblem, c: Candidate) -> tuple[tuple[SmemRegion, ...], int]:
    """Fields of the kernel's SharedStorage in order, and its size in bytes, as CuTe lays out a struct."""
    return lay_out(_smem_fields(problem, c))


def smem_size(problem: GemmProblem, c: Candidate, stages: int | None = None) -> int:
    """Bytes of the kernel's SharedStorage. stages: of the A/B ring, others than the candidate has."""
    stages = c.stages if stages is None else stages
    sizes, knobs = _smem_sizes(problem), (stages, *_smem_knobs(c))
    if (size := sizes.get(knobs)) is None:
        size = sizes[knobs] = place_fields(_smem_fields(problem, c.vary(stages=stages)))[1]
    return size


SMEM_KNOBS = (
    "tile", "schedule", "consumers", "store_stages", "load_stages", "scheduler", "promote_every", "mma_ctas",
    *(name for feature in FEATURES for name in feature.smem_knobs),
)  # fmt: skip
"""What the size depends on, besides `stages`."""
_smem_knobs = attrgetter(*SMEM_KNOBS)
_SEAMS = ("list_barriers", "list_tables", "list_staging", "list_buffers")
_BARRIERS, _TABLES, _STAGING, _BUFFERS = map(features_with, _SEAMS)


@once_each
def _smem_sizes(problem: GemmProblem) -> dict[tuple[object, ...], int]:
    """Of the candidates that were asked about: many differ in other knobs alone."""
    return {}


def _smem_fields(problem: GemmProblem, c: Candidate) -> list[SmemField]:
    (tile_m, tile_n, tile_k), (sub_m, sub_n) = c.tile, epilogue_tile(problem, c)
    (rows, columns), program = output_tile(problem, c), problem.kernel_epilogue
    rows_source, columns_source = output_sources(problem)
    groups = 1 if c.schedule == "cooperative" else c.consumers
    per_group = f" x {groups} groups" if groups > 1 else ""

    def of_groups(name: str, element: Element, extents: Mapping[str, int], holds: str, align: int = 0) -> SmemField:
        """Of which each group of threads that store on their own has one. extents: by their source."""
        factors = [*(x for x in extents if x != "1"), *(["t.consumers"] if groups > 1 else [])] or ["1"]
        source = " * ".join(f"({x})" if "//" in x and len(factors) > 1 else x for x in factors)
        return SmemField(name, element, math.prod(extents.values()) * groups, source, holds + per_group, align)

    fields = [
        SmemField(
            "ab_barriers", MBARRIER, 2 * c.stages, "2 * t.stages", f"full and empty mbarriers of {c.stages} stages"
        )
    ]
    fields += lowering_of(problem).list_fields(problem, c)
    for feature in _BARRIERS:
        fields += feature.list_barriers(c)
    if program.tiles:
        holds = f"full and empty mbarriers of {c.load_stages} stages"
        fields.append(SmemField("load_barriers", MBARRIER, 2 * c.load_stages, "2 * t.load_stages", holds))
    for feature in _TABLES:
        fields += feature.list_tables(problem)
    if c.dynamic:
        holds = f"full and empty mbarriers of {QUEUE_STAGES} stages, and one for tiles begun"
        count = 2 * QUEUE_STAGES + 1
        fields.append(SmemField("queue_barriers", MBARRIER, count, "2 * t.queue_stages + 1", holds))
        if c.counts_tiles:
            holds = f"i32 x {QUEUE_STAGES} stages"
            fields.append(SmemField("queue_indices", I32, QUEUE_STAGES, "t.queue_stages", holds))
        else:
            words, holds = ANSWER_BYTES // I32.bytes, f"{ANSWER_BYTES} bytes x {QUEUE_STAGES} stages"
            source = f"{words} * t.queue_stages"
            fields.append(SmemField("queue_answers", I32, words * QUEUE_STAGES, source, holds, ANSWER_BYTES))
    for o in program.operands:
        if o.kind in ("row_vector", "column_vector"):
            source, extent = (columns_source, columns) if o.kind == "row_vector" else (rows_source, rows)
            fields.append(of_groups(f"s{tensor_stem(o.name)}", F32, {source: extent}, f"f32 ({extent},)", ACCESS_BYTES))
    for feature in _STAGING:
        fields += feature.list_staging(problem, c, of_groups)

    def ring(name: str, dtype: DType, extents: tuple[int, int], stages: int, groups: int = 1) -> SmemField:
        holds = f"{dtype} {extents} x {stages} stages{per_group * (groups > 1)}"
        count = extents[0] * extents[1] * stages * groups
        return SmemField(name, Element.of(dtype), count, f"cute.cosize({name}_layout)", holds, TENSOR_ALIGN)

    fields += [
        ring("sA", problem.a.dtype, (tile_m, tile_k), c.stages),
        ring("sB", problem.b.dtype, (tile_n // c.mma_ctas, tile_k), c.stages),
        *(ring(f"s{tensor_stem(o.name)}", o.dtype, (sub_m, sub_n), c.store_stages, groups) for o in program.outputs),
        *(ring(f"s{tensor_stem(o.name)}", o.dtype, (sub_m, sub_n), c.load_stages) for o in program.tiles),
    ]
    for feature in _BUFFERS:
        fields += feature.list_buffers(problem, c)
    return fields
