"""Scales along k that the lanes of a warp hold, 32 of a row of blocks at a time: one load brings them, 32 blocks ahead.

Read one by one, each a step ahead, they made a warpgroup wait for memory between two MMAs.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

LANES = 32


def fetch(rows: list[cute.Tensor], first: Int32) -> cute.Tensor:
    """(rows): of `LANES` scales of each row from block `first` on, that of the caller's lane; past the end the last."""
    values = cute.make_rmem_tensor(len(rows), Float32)
    refill(values, rows, first)
    return values


def refill(values: cute.Tensor, rows: list[cute.Tensor], first: Int32) -> None:
    """Overwrites what `fetch` returned with the scales from block `first` on."""
    for i, row in enumerate(rows):
        values[i] = row[cutlass.min(first + cute.arch.lane_idx(), row.shape[0] - 1)]


def spread(values: cute.Tensor, block: Int32) -> list[Float32]:
    """The scale of each row for the block that is `block` after the first one held, modulo `LANES`, in every lane."""
    return [cute.arch.shuffle_sync(values[i], block % LANES) for i in range(cute.size(values))]


@cute.jit
def advance(values: cute.Tensor, ahead: cute.Tensor, rows: list[cute.Tensor], first: Int32, taken: Int32) -> None:
    """After `taken` blocks from `first` on: those held are all taken every `LANES` blocks, those ahead become them, and
    others are loaded."""
    if taken % LANES == 0:
        values.store(ahead.load())
        refill(ahead, rows, first + taken + LANES)
