"""What an sm_90a candidate is built around: tiles of warpgroups, and the clusters that share loads."""

from cutegen.families.gemm.lowering.lowering import Cores

# (schedule, consumers, tile, reason), best first where no shape is known. Tile k is in 16-bit elements: 128 bytes.
CORES: Cores = (
    ("cooperative", 2, (128, 256, 64), "the most FLOPs per byte of SMEM traffic that the registers hold"),
    ("cooperative", 2, (256, 128, 64), "as many FLOPs per byte loaded as 128 x 256, with narrow columns"),
    (
        "pingpong",
        2,
        (128, 192, 64),
        "a wide pingpong tile: one warpgroup stores while the other computes",
    ),
    ("pingpong", 2, (128, 128, 64), "a square pingpong tile"),
    ("pingpong", 2, (64, 256, 64), "a flat pingpong tile"),
    ("cooperative", 2, (128, 128, 64), "a square tile for two warpgroups"),
    ("cooperative", 3, (192, 192, 64), "three warpgroups share a tile of B"),
    ("cooperative", 1, (64, 256, 64), "one warpgroup with few rows"),
    ("cooperative", 1, (64, 128, 64), "one warpgroup with few rows and columns"),
    ("pingpong", 2, (64, 128, 64), "a small pingpong tile"),
    ("cooperative", 2, (256, 96, 64), "the most columns beside 256 rows that leave registers for a part to promote"),
    (
        "cooperative",
        2,
        (256, 64, 64),
        "256 rows beside a part to promote, with columns that divide an alignment of 128",
    ),
)
CLUSTERS = {
    (2, 1): "two CTAs along m share each tile of B",
    (1, 2): "two CTAs along n share each tile of A",
    (1, 1): "no cluster",
}
