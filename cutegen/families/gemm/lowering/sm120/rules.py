"""Rules about the knobs of sm_120a kernels: what those of sm_90a have, and sm_120a has not."""

from __future__ import annotations

from cutegen.arch.architecture import Arch
from cutegen.diagnostics import Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import warpgroups_per_tile
from cutegen.families.gemm.features.packed_scales.rules import PACKED
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection
from cutegen.runtime.gemm.scale_packing import ROWS


@BOOK.declare_form(
    Rule(
        "no-multicast",
        "on sm_120a each CTA loads its own tiles: there are no clusters",
        "TMA of GeForce RTX 50 and RTX PRO 6000 brings a box to one CTA. CTAs that share rows or columns find them in "
        "L2, as the raster has them work side by side.",
        "arch: sm_120a\ntiling: {cluster: [2, 1]}",
    ),
    "cluster",
    only="sm_120a",
)
def no_multicast(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if c.cluster == (1, 1):
        return None
    return f"cluster {list(c.cluster)}: TMA of {arch.name} does not multicast", "use [1, 1]"


@BOOK.declare_form(
    Rule(
        "no-cluster-sum",
        "on sm_120a parts of k are summed through global memory",
        "`ordered_cluster` hands sums from CTA to CTA of a cluster, of which sm_120a kernels have none.",
        "arch: sm_120a\ntiling: {split_k: 2, split_k_sum: ordered_cluster}",
    ),
    "split_k_sum",
    only="sm_120a",
)
def no_cluster_sum(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.in_cluster:
        return None
    return f"split_k_sum = {c.split_k_sum}: kernels of {arch.name} have no clusters", "use ordered_parallel"


@BOOK.declare_form(
    Rule(
        "promoted-rows",
        "on sm_120a a tile whose sum is promoted has 64 rows for each warpgroup that shares it",
        "A warp multiplies a part of k for its 16 rows, and f32 registers take the sum of it, scaled. With more rows "
        "it would have to read the columns of the part again for each 16.",
        "arch: sm_120a\naccumulate: {promote_every: 4}\ntiling: {tile: [128, 64, 128]}\n"
        "warpgroups: {consumer: {count: 1}}",
    ),
    "tile",
    "consumers",
    "schedule",
    element=0,
    only="sm_120a",
)
def promoted_rows(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    rows = arch.mma_m * warpgroups_per_tile(c)
    if not c.promotes or c.tile[0] == rows:
        return None
    return f"tile m = {c.tile[0]} of a promoted sum, for {warpgroups_per_tile(c)} x 64 rows", f"use {rows}"


def _one_chunk(problem: GemmProblem, c: Candidate, axis: int) -> Objection | None:
    extent = c.tile[axis]
    if not problem.packed_scales or extent == ROWS:
        return None
    return f"tile {'mn'[axis]} = {extent} is not the {ROWS} rows of a chunk of scales", f"use {ROWS}"


@BOOK.declare_form(PACKED, "tile", "consumers", "schedule", element=0, only="sm_120a")
def packed_rows(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    """A thread holds the scales of 16 rows of its warp, so that warps have a chunk of rows between them."""
    sharing = warpgroups_per_tile(c)
    if problem.packed_scales and c.tile[0] == ROWS != arch.mma_m * sharing:
        said = f"{sharing} x {arch.mma_m} rows at a time share a chunk of scales of {ROWS}"
        return said, f"use schedule: cooperative with {ROWS // arch.mma_m} consumer warpgroups"
    return _one_chunk(problem, c, 0)


@BOOK.declare_form(PACKED, "tile", element=1, only="sm_120a")
def packed_columns(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _one_chunk(problem, c, 1)
