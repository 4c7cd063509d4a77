"""What an sm_100a candidate is built around: tiles of one CTA, alone or as one of a pair."""

from collections.abc import Iterator

from cutegen.families.gemm.candidate import Core
from cutegen.families.gemm.lowering.lowering import Cores
from cutegen.families.gemm.problem import GemmProblem

# Best first: one warpgroup stores what the tensor core has summed.
CORES: Cores = (
    ("cooperative", 1, (128, 256, 64), "the most FLOPs per byte loaded, and two sums fill tensor memory"),
    ("cooperative", 1, (128, 128, 64), "half of the columns, for more tiles"),
    ("cooperative", 1, (128, 64, 64), "a quarter of the columns, for more tiles"),
)
# Of block-scaled products, whose tiles have whole chunks of 128 columns.
SCALED_CORES: Cores = (
    ("cooperative", 1, (128, 256, 64), "the most FLOPs per byte loaded; tensor memory holds one sum and the scales"),
    ("cooperative", 1, (128, 128, 64), "half of the columns, for two sums next to the scales"),
)
CLUSTERS = {
    (2, 1): "a pair of CTAs multiplies together, so that each loads half of B",
    (1, 1): "no cluster",
}
# Rows up to which the product is transposed: those of a tile that is not would be idle by half or more.
FEW_ROWS = 64
FLAT_DEPTH = 128  # tile k of theirs, in 16-bit elements


def list_flat_cores(problem: GemmProblem) -> Iterator[tuple[Core, str]]:
    """Of few rows, or of groups that are expected to have few: they are the columns of a tile, so that all lanes of
    tensor memory have rows of B, which is what such a product loads. Tile k is twice as deep as of others: it takes
    half of the barriers for the same bytes."""
    rows = problem.groups.expected_rows if problem.groups else problem.m.value or problem.m.hi
    if rows is None or rows > FEW_ROWS or problem.packed_scales:
        return
    lanes, step = problem.target.mma_m, problem.target.mma_n[2]
    n = -(-rows // step) * step
    core = Core("cooperative", 1, (lanes, n, problem.a.dtype.fit(2 * FLAT_DEPTH)), (1, 1), True)
    why = f"transposed: up to {rows} row{'s' * (rows > 1)} of {problem.a.name} are the {n} columns of a tile"
    yield core, why
