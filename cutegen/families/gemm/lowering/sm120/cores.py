"""What an sm_120a candidate is built around: tiles whose sums and operands four or eight warps have registers for."""

from cutegen.families.gemm.lowering.lowering import Cores

# Best first where no shape is known. A warp has 16 rows of each 64 and all columns of a tile: of 128 x 128 for four
# warps it reads 160 rows of A and B a step, where four warps of 64 x 64 each would read 128.
CORES: Cores = (
    ("pingpong", 2, (128, 128, 64), "32 x 128 of a warp; one warpgroup stores while the other multiplies"),
    ("cooperative", 1, (128, 128, 64), "32 x 128 of a warp, and one warpgroup has the registers of two"),
    ("cooperative", 2, (128, 128, 64), "a square tile for two warpgroups, of 16 x 128 a warp"),
    ("pingpong", 2, (64, 128, 64), "a small pingpong tile"),
    ("cooperative", 1, (64, 128, 64), "one warpgroup with few rows"),
    ("cooperative", 1, (64, 64, 64), "few rows and columns, for more tiles"),
)
# Of block-scaled products, whose tiles have one chunk of scales of 128 rows and one of 128 columns; sums, operands and
# scales are more than one warpgroup has registers for.
SCALED_CORES: Cores = (
    ("cooperative", 2, (128, 128, 64), "one chunk of scales of rows and one of columns, for two warpgroups"),
)
# Of products whose sums are promoted: a warp has registers for one part, of 16 rows.
PROMOTED_CORES: Cores = (
    ("cooperative", 2, (128, 64, 64), "16 x 64 of a warp: the sum and a part of it fit next to the operands"),
    ("cooperative", 1, (64, 64, 64), "few rows, for more tiles"),
)
CLUSTERS = {(1, 1): "TMA does not multicast here"}
