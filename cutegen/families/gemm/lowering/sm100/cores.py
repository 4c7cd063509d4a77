"""What an sm_100a candidate is built around: tiles of one CTA, alone or as one of a pair."""

from cutegen.families.gemm.lowering.lowering import Cores

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
