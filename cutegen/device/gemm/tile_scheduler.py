"""The order in which persistent CTAs visit output tiles."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, const_expr

SIDE_BY_SIDE = 16  # tiles that surely run at the same time


@dataclass(frozen=True)
class TileScheduler:
    """Maps a linear index to a tile, in units of clusters, and from there to this CTA's tile.

    Tiles are visited in bands of `group` along the fast dimension (m when `along_m`), so that the CTAs of one wave
    share operand rows and columns in L2; every second band runs backwards and starts on what the last one left there.
    tiles_m, tiles_n, batches: extents in clusters. cluster: CTAs along (m, n).
    """

    tiles_m: Int32
    tiles_n: Int32
    batches: Int32
    cluster: cutlass.Constexpr[tuple[int, int]]
    along_m: cutlass.Constexpr[bool]
    group: cutlass.Constexpr[int]

    @cute.jit
    def count(self) -> Int32:
        """Clusters' worth of tiles in the whole problem."""
        return self.tiles_m * self.tiles_n * self.batches

    @cute.jit
    def is_streamed(self, operand: cutlass.Constexpr[int], multicast: cutlass.Constexpr[int]) -> Boolean:
        """Whether slices of A (`operand` 0) or of B (1) pass through L2 for one load, or for two that come at about the
        same time: the weights of a product with few rows. multicast: CTAs that one load feeds."""
        readers = self.tiles_n * self.cluster[1] if const_expr(operand == 0) else self.tiles_m * self.cluster[0]
        neighbours = self.along_m == (operand == 1)  # else two readers of a slice are a band's width apart
        return readers <= (2 if neighbours or self.group <= SIDE_BY_SIDE else 1) * multicast

    @cute.jit
    def tile(self, index: Int32) -> tuple[Int32, Int32, Int32]:
        """(m, n, batch) coordinate, in CTA tiles, of this CTA for the cluster tile `index`."""
        per_batch = self.tiles_m * self.tiles_n
        batch = index // per_batch
        index = index - batch * per_batch
        fast_extent = self.tiles_m if const_expr(self.along_m) else self.tiles_n
        slow_extent = self.tiles_n if const_expr(self.along_m) else self.tiles_m
        band = index // (self.group * slow_extent)
        first = band * self.group
        width = cutlass.min(fast_extent - first, Int32(self.group))
        index = index - first * slow_extent
        slow = index // width
        fast = first + index - slow * width
        if band % 2 == 1:
            slow = slow_extent - 1 - slow
        cta_m, cta_n, _ = cute.arch.block_in_cluster_idx()
        m = fast if const_expr(self.along_m) else slow
        n = slow if const_expr(self.along_m) else fast
        return m * self.cluster[0] + cta_m, n * self.cluster[1] + cta_n, batch
