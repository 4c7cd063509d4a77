"""Scales along k that the lanes of a warp hold, 32 of a row of blocks at a time: one load brings them, 32 blocks ahead,
so that no warpgroup waits for memory between two MMAs."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

LANES = 32


def fetch(rows: list[cute.Tensor], first: Int32) -> cute.Tensor:
    """For each row the scale of block `first` + the caller's lane; past the end the last one."""
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
    """After every `LANES` blocks taken, the scales ahead become the ones held, and the next are loaded.

    first: the block that `values` were fetched from; taken: blocks since.
    """
    if taken % LANES == 0:
        values.store(ahead.load())
        refill(ahead, rows, first + taken + LANES)
