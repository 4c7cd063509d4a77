"""Rules about how work is cut: parts of k, and how they become one sum."""

from __future__ import annotations

from cutegen.arch.architecture import PORTABLE_CLUSTER, Arch
from cutegen.diagnostics import NOT_YET_SUPPORTED, Rule
from cutegen.families.gemm.candidate import Candidate, cluster_size
from cutegen.families.gemm.features.split_k.knobs import IN_CLUSTER
from cutegen.families.gemm.invariance import BATCH_INVARIANCE
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection

MAX_SPLIT_K = 128
# CTAs of a cluster. SMs come in pairs, the TPCs, so that clusters of two fill a GPU.
MAX_SPLIT_CLUSTER = 2


@BOOK.declare_form(
    Rule(
        "split-k",
        f"k is split into at most {MAX_SPLIT_K} parts, and not into more than it has tiles",
        "Each part of the k tiles of an output tile is computed by a CTA of its own, and their sums are added. It pays "
        "where the output has far fewer tiles than the GPU has SMs. Where k is dynamic, a problem with fewer k tiles "
        "than parts runs with one k tile a part.",
        "dims: {k: 256}\ntiling: {tile: [64, 128, 64], split_k: 8}",
    ),
    "split_k",
    "tile",
)
def split_k(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if c.split_k > MAX_SPLIT_K:
        return f"split_k = {c.split_k} parts", f"use at most {MAX_SPLIT_K}"
    k, tile_k = problem.k.value, c.tile[2]
    if c.split_k == 1 or k is None or c.split_k * tile_k < k + tile_k:
        return None
    tiles = -(-k // tile_k)
    return (
        f"{problem.k.name} = {k} has {tiles} tile{'s' * (tiles > 1)} of {tile_k}, fewer than split_k = {c.split_k}",
        f"use at most {tiles}",
    )


@BOOK.declare_form(
    Rule(
        "split-k-cluster",
        f"k is split by clusters of at most {MAX_SPLIT_CLUSTER} CTAs",
        "The CTA of the last part of a tile waits for the others, so that all clusters of the grid have to be on the "
        "GPU at once. Clusters of two are. Of four, an H200 does not hold the 33 that its 132 SMs would be: the last "
        "ones begin when others end, which may be waiting for them.",
        "tiling: {cluster: [2, 2], split_k: 2}",
    ),
    "cluster",
    "split_k",
)
def split_k_cluster(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    size = cluster_size(c)
    if c.split_k == 1 or c.in_cluster or size <= MAX_SPLIT_CLUSTER:
        return None
    return (
        f"split_k = {c.split_k} and a cluster of {size} CTAs: a part may wait for one that never begins",
        f"use a cluster of {MAX_SPLIT_CLUSTER}, or split_k: 1",
    )


@BOOK.declare_form(NOT_YET_SUPPORTED, "split_k")
def grouped_split(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if problem.groups is None or c.split_k == 1:
        return None
    return f"split_k = {c.split_k} of a grouped product is not yet supported", "use 1"


@BOOK.declare_form(BATCH_INVARIANCE, "split_k")
def unsplit_sum(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.batch_invariant or c.split_k == 1:
        return None
    reason = f"split_k = {c.split_k} adds up {c.split_k} sums over parts of K, which a call with more rows would not"
    return reason, "use split_k 1, or drop `invariance: batch`"


# A refusal for each cause: what was written is then told, and not what `auto` would have mended beside it.
_CLUSTER_SUM = Rule(
    "cluster-sum",
    f"parts that sum in a cluster are its CTAs, at most {PORTABLE_CLUSTER}, with one tile at a time",
    "With `ordered_cluster` the CTAs of a cluster have a part each of one tile, hand their sums to one another "
    "through shared memory, and finish a share of the tile each. So the cluster has no other CTAs; all of its "
    "warpgroups are at the same tile, and tiles come in the order of the raster. More CTAs than that are no "
    "portable size of a cluster.",
    "warpgroups: {schedule: pingpong}\ntiling: {split_k: 2, split_k_sum: ordered_cluster}",
)
_OTHERS = "or split_k_sum: ordered_parallel"


@BOOK.declare_form(_CLUSTER_SUM, "split_k_sum", "split_k")
def cluster_sum_parts(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.in_cluster or c.split_k <= PORTABLE_CLUSTER:
        return None
    return f"split_k = {c.split_k} CTAs of a cluster", f"use at most {PORTABLE_CLUSTER}, {_OTHERS}"


@BOOK.declare_form(_CLUSTER_SUM, "split_k_sum", "cluster")
def cluster_sum_ctas(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.in_cluster or cluster_size(c) == 1:
        return None
    return f"the CTAs of a cluster of {cluster_size(c)} have tiles of their own", f"use cluster: [1, 1], {_OTHERS}"


@BOOK.declare_form(_CLUSTER_SUM, "split_k_sum", "schedule")
def cluster_sum_schedule(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.in_cluster or c.schedule == "cooperative":
        return None
    return "warpgroups in pingpong have a tile each", f"use schedule: cooperative, {_OTHERS}"


@BOOK.declare_form(_CLUSTER_SUM, "split_k_sum", "scheduler")
def cluster_sum_order(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not c.in_cluster or not c.dynamic or cluster_size(c) > 2:  # such a cluster makes `auto` take tiles dynamically
        return None
    return "CTAs of a cluster take tiles in a fixed order", f"use scheduler: static_persistent, {_OTHERS}"


@BOOK.declare_form(NOT_YET_SUPPORTED, "split_k_sum")
def cluster_sum_of(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    what = _not_in_cluster(problem)
    if not c.in_cluster or not what:
        return None
    return f"split_k_sum = {IN_CLUSTER} with {what} is not yet supported", "use ordered_parallel"


def _not_in_cluster(problem: GemmProblem) -> str:
    """What CTAs cannot share out among them, or what a part without a k tile cannot do; "" if nothing."""
    program = problem.kernel_epilogue
    if program.reductions or program.block:
        return "a reduction in the epilogue"
    if problem.scaled_k:
        return "scales that vary along k"
    if problem.gather:
        return "gathered rows"
    return ""


# What stands against a sum in a cluster.
CLUSTER_SUM_RULES = (cluster_sum_parts, cluster_sum_ctas, cluster_sum_schedule, cluster_sum_order, cluster_sum_of)


@BOOK.declare_form(
    Rule(
        "split-k-sum",
        "how parts are summed is said where k is split",
        "What begins with `ordered` adds the parts in a fixed order and gives the same bits every time; "
        "`unordered_atomic` adds them as they come.",
        "tiling: {split_k: 1, split_k_sum: ordered_turnstile}",
    ),
    "split_k_sum",
    "split_k",
)
def split_k_sum(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if (c.split_k == 1) == (c.split_k_sum == "none"):
        return None
    if c.split_k == 1:
        return f"split_k_sum is {c.split_k_sum}, but split_k is 1: there is one part", "write split_k: 2 or more"
    return f"split_k is {c.split_k}, but nothing says how the parts are summed", "use ordered_parallel"
