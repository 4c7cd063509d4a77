"""What a generated GEMM plan and its kernels share: the numbers of one tiling, and the scratch that kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cutegen.runtime.arguments import TensorArg
from cutegen.runtime.base import SILENT

# What kernels may take beside inputs and outputs, in the order of a call.
SCRATCH = (
    TensorArg("workspace", "float32", ("workspace",), contiguous=0),
    TensorArg("sums", "float32", ("sums",), contiguous=0, zeroed=True),
    TensorArg("semaphores", "int32", ("semaphores",), contiguous=0, align=4, zeroed=True),
)


@dataclass(frozen=True, slots=True)
class GemmTiling:
    """Resolved numbers of one GEMM kernel instance; `resolve` computes them, the kernel reads and asserts them.

    tile: CTA tile (m, n, k) in elements. cluster: CTAs along (m, n).
    multicast: CTAs that one load of (A, B) feeds. swizzle: bytes of a swizzled SMEM row of (A, B).
    stages: slots of the A/B ring; stage_bytes: TMA transaction bytes of one full slot, per CTA.
    empty_arrivals: consumer warps, over all multicast peers, that free one slot.
    epilogue_tile: (m, n) elements stored at once by one group of epilogue threads.
    store_stages: slots of the output ring, per epilogue group. load_stages, load_bytes: slots and bytes per slot of the
    ring of TMA-loaded epilogue tiles (0 when there are none).
    consumers: MMA warpgroups. threads: CTA size. producer_registers, consumer_registers: setmaxnreg values per thread.
    smem_bytes: size of SharedStorage. raster_along_m: tiles advance along m first; raster_group: tiles of that
    dimension in one band.

    Where k is split or tiles are handed out dynamically, otherwise as they stand here:
    split_k: parts that the k tiles of one output tile are shared out to.
    queue_stages: slots of the ring of tile indices; queue_readers: warps of a CTA that read each of them.
    covers: (m, n) elements of the product that a cluster computes at once. workspace, sums, semaphores: elements of
    scratch: (in all, for each cluster tile).
    box: (rows, columns) of what a CTA's last tile is loaded and stored in at once, in a stage of A. box_bytes: that TMA
    loads for one.
    clc: the launch has a cluster for each tile, and clusters take each other's: it keeps to no SM budget.
    mma_ctas: CTAs of one product. accumulators, tmem_columns: sums of a tile in tensor memory, and columns allocated.
    """

    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    multicast: tuple[int, int]
    swizzle: tuple[int, int]
    stages: int
    stage_bytes: int
    empty_arrivals: int
    epilogue_tile: tuple[int, int]
    store_stages: int
    load_stages: int
    load_bytes: int
    consumers: int
    threads: int
    producer_registers: int
    consumer_registers: int
    smem_bytes: int
    raster_along_m: bool
    raster_group: int
    split_k: int = 1
    queue_stages: int = 0
    queue_readers: int = 0
    covers: tuple[int, int] = (0, 0)
    workspace: tuple[int, int] = (0, 0)
    sums: tuple[int, int] = (0, 0)
    semaphores: tuple[int, int] = (0, 0)
    box: tuple[int, int] = field(default=(0, 0), metadata=SILENT)
    box_bytes: int = field(default=0, metadata=SILENT)
    mma_ctas: int = field(default=1, metadata=SILENT)
    accumulators: int = field(default=0, metadata=SILENT)
    tmem_columns: int = field(default=0, metadata=SILENT)
    clc: bool = field(default=False, metadata=SILENT)

    @property
    def scratch(self) -> tuple[str, ...]:
        """Names of the scratch tensors that the kernel takes."""
        return tuple(s.name for s in SCRATCH if any(getattr(self, s.name)))

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster of the launch: the parts of a tile are among them where no scratch takes their sums."""
        rows, columns = self.cluster
        return rows * columns * (1 if any(self.workspace) or any(self.sums) else self.split_k)

    @property
    def repeatable(self) -> bool:
        """Equal inputs give equal bits."""
        return not any(self.sums)

    def scratch_sizes(self, m: int, n: int, batch: int) -> dict[str, int]:
        """Elements of each scratch tensor that a problem needs, those included that the kernel does not take."""
        pairs: dict[str, tuple[int, int]] = {s.name: getattr(self, s.name) for s in SCRATCH}
        return {
            name: count_scratch(*pair, *self.covers, m, n, batch) if any(pair) else 0 for name, pair in pairs.items()
        }


def count_scratch(whole: int, each: int, rows: int, columns: int, m: int, n: int, batch: int) -> int:
    """Elements of a scratch tensor: so many in all, and for each cluster tile of `rows` x `columns`."""
    return whole + each * -(-m // rows) * -(-n // columns) * batch


def spread_blocks(scale: Any, shape: Sequence[int], rows: int, depth: int) -> Any:
    """The factor of each element of an operand of that shape, ([batch,] rows, k): `scale` ([batch,] row blocks, k
    blocks) has one for `rows` x `depth` of them."""
    return scale.repeat_interleave(rows, -2).repeat_interleave(depth, -1)[..., : shape[-2], : shape[-1]]
