"""Which splits of k are proposed, which of them is chosen, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cutegen.arch import Arch, Device
from cutegen.families.gemm.candidate import Candidate, Core
from cutegen.families.gemm.cost_model import Shape, Work, count_tiles
from cutegen.families.gemm.features.split_k.knobs import IN_CLUSTER, IN_PLACES, NO_SUM
from cutegen.families.gemm.features.split_k.rules import CLUSTER_SUM_RULES
from cutegen.families.gemm.problem import GemmProblem
from cutegen.runtime.gemm.cost_model import reach

SPLITS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
# Elements of a tile, and its k tiles of a part, from which on sums by way of scratch are proposed for a portfolio.
SCRATCH_AREA, DEEP_PART = 128 * 96, 32
MIN_PART = 4  # k tiles of a part: with fewer, filling the ring takes longer than the work
# Of clusters of more CTAs a GPU has too few at once.
MOST_IN_CLUSTER = 8
SPLIT_MARGIN = 5  # percent of time that a split has to save whose parts take scratch to become one sum


def split_evenly(core: Core, works: Sequence[Work], device: Device) -> Iterator[Core]:
    """The core with k split as often as lets the parts of all its tiles run at the same time and leaves each several
    k tiles, or nearly as often."""
    counts = [count_tiles(core, work, device) for work in works]
    most = min(
        *(slots // tiles for tiles, slots in counts), *(work.shape.k // (MIN_PART * core.tile[2]) for work in works)
    )
    for parts in [parts for parts in SPLITS if parts <= most][-3:]:
        yield core._replace(split_k=parts)


def split_through_scratch(core: Core, shape: Shape, device: Device) -> Iterator[Core]:
    """The core with k in as many parts as let all of them run at once, where that pays: few large tiles of deep k,
    which share loads in a cluster and so cannot meet in one."""
    (m, n, k), (rows, columns) = core.tile, core.cluster
    if rows * columns != 2 or m * n < SCRATCH_AREA:
        return
    x, y = (shape.n, shape.m) if core.swap_ab else (shape.m, shape.n)
    tiles = -(-x // (m * rows)) * -(-y // (n * columns)) * rows * columns * shape.batch
    most = min(device.sms // tiles, shape.k // (DEEP_PART * k))
    for parts in [parts for parts in SPLITS if parts <= most][-1:]:
        yield core._replace(split_k=parts)


def split_in_clusters(core: Core, shape: Shape, sms: int) -> Iterator[Core]:
    """The core with k in parts that meet in a cluster, as many as let all of them run at once, and as nearly as
    many."""
    if core.schedule != "cooperative" or core.cluster != (1, 1):
        return
    x, y = (shape.n, shape.m) if core.swap_ab else (shape.m, shape.n)
    tiles = -(-x // core.tile[0]) * -(-y // core.tile[1]) * shape.batch
    most = min(shape.k // (MIN_PART * core.tile[2]), MOST_IN_CLUSTER)
    fitting = [parts for parts in SPLITS if parts <= most and tiles * parts <= reach(sms, parts)]
    for parts in fitting[-2:]:
        yield core._replace(split_k=parts)


def choose_sum(
    problem: GemmProblem, c: Candidate, arch: Arch, fits: Callable[[Candidate], bool] = lambda c: True
) -> tuple[str, str]:
    """(how parts of k become one sum, reason), as `auto` has it: the fastest of what gives the same bits every time and
    is legal. fits: whether a candidate's shared memory suffices."""
    if c.split_k == 1:
        return NO_SUM, "nothing to sum"
    if c.split_k > MOST_IN_CLUSTER:
        return IN_PLACES, f"of clusters of more than {MOST_IN_CLUSTER} CTAs too few are there at once"
    in_cluster = c.vary(split_k_sum=IN_CLUSTER)
    for refuse in CLUSTER_SUM_RULES:
        if finding := refuse(problem, in_cluster, arch):
            return IN_PLACES, f"in a cluster: {finding.reason}"
    if not fits(in_cluster):
        return IN_PLACES, "in a cluster: the rings leave no shared memory for sums of other parts"
    less = "" if arch.tensor_memory else "1 to 2 us less than by way of L2, and "
    return IN_CLUSTER, f"in shared memory: {less}no scratch"


def say_why(problem: GemmProblem, c: Candidate, shapes: Sequence[Shape]) -> str:
    """Why k has so many parts."""
    if c.split_k > 1:
        return "goes with the tile"
    if problem.groups is not None:
        return "grouped products are not split"
    if problem.batch_invariant:
        return "`invariance: batch` allows no other"
    none = f"no split is faster, or by {SPLIT_MARGIN}% where its sums take scratch"
    return none if shapes else "no shape is known; a split pays where tiles are few"
