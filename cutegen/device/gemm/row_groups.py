"""Rows that fall into groups: which tiles each group has, tabulated by every CTA before its first tile.

Nothing that the tensors of a call hold makes a kernel leave its tensors: labels that name no group count as padding,
counts and offsets are clipped to the rows that there are.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, const_expr

from cutegen.device.gemm.tile_scheduler import TileScheduler

# Columns of the table. END: tiles of all groups up to this one, in clusters along the rows. FIRST, LAST: where the
# group begins and ends, in those tiles (labels) or in rows (offsets).
END, FIRST, LAST = 0, 1, 2


@dataclass(frozen=True)
class GroupedScheduler:
    """The tiles of all groups, one group after the other, each in the order of `bound`.

    bound: the order if every row belonged to a group; its cluster, direction and band hold for each group.
    table: (capacity, columns) in shared memory, from one of the `tabulate` functions. groups: how many there are.
    rows_along_m: groups cut m, else n. from_row_0: tiles count from row 0 of the tensor, else from their group's.
    A whole warp calls the methods.
    """

    bound: TileScheduler
    table: cute.Tensor
    groups: Int32
    rows_along_m: cutlass.Constexpr[bool]
    from_row_0: cutlass.Constexpr[bool]

    @cute.jit
    def count(self) -> Int32:
        """Clusters' worth of tiles in all groups."""
        return self.table[self.table.shape[0] - 1, END] * _across(self.bound, self.rows_along_m)

    @cute.jit
    def tile(self, index: Int32) -> tuple[Int32, Int32, Int32]:
        """(m, n, group) of this CTA for the cluster tile `index`; m and n in CTA tiles."""
        across = _across(self.bound, self.rows_along_m)
        row = index // across
        lane = cute.arch.lane_idx()
        group = Int32(0)  # as many as end before this row of tiles
        for window in cutlass.range(0, self.groups, 32, unroll=4):
            group = group + cute.arch.popc(cute.arch.vote_ballot_sync(self.table[window + lane, END] <= row))
        begin = Int32(0)
        if group > 0:
            begin = self.table[group - 1, END]
        height = self.table[group, END] - begin
        along_m = const_expr(self.rows_along_m)
        order = TileScheduler(
            height if along_m else across,
            across if along_m else height,
            Int32(1),
            self.bound.cluster,
            self.bound.along_m,
            self.bound.group,
        )
        m, n, _ = order.tile(index - begin * across)
        if const_expr(self.from_row_0):
            first = self.table[group, FIRST] * self.bound.cluster[0 if along_m else 1]
            m, n = (m + first, n) if along_m else (m, n + first)
        return m, n, group

    @cute.jit
    def rows(self, group: Int32) -> tuple[Int32, Int32]:
        """The group's first row, and one past its last. Only with offsets."""
        return self.table[group, FIRST], self.table[group, LAST]


def _across(bound: TileScheduler, rows_along_m: bool) -> Int32:
    """Clusters along the dim that groups do not cut."""
    return bound.tiles_n if const_expr(rows_along_m) else bound.tiles_m


# A bulk store clips at the extents of its descriptor, not at the end of a group. So the descriptor has more rows than
# there can be, and two more modes, `end` and `wrap`, that move all of them: for a group with `count` rows up to `end`,
# element (ROWS - count + i, column, end, ROWS) is row end - count + i, because ROWS * WRAP bytes are 0 modulo 2**64, at
# which addresses wrap around; and it is inside of the descriptor only where i < count.
ROWS, ENDS = 2**30, 2**31 - 1
WRAP = 2**64 // ROWS


def group_view(tensor, rows_along_m: bool):
    """(m, n, end, wrap) of an output (m, n), for a store descriptor; `clip_to_group` makes coordinates of it."""
    axis = 0 if rows_along_m else 1
    pitch = tensor.stride[axis]
    shape, stride = list(tensor.shape), list(tensor.stride)
    shape[axis] = ROWS
    shape[1 - axis] = Int32(shape[1 - axis])  # with nothing but constants, the compiler ends without a word
    return cute.make_tensor(
        tensor.iterator, cute.make_layout((*shape, ENDS, ENDS), stride=(*stride, pitch, Int64(WRAP) - pitch))
    )


def clip_to_group(coordinates, first: Int32, last: Int32, rows_along_m: bool):
    """(m, n) coordinates, from a `group_view`, of rows first up to last; a store past the last is left out."""
    start = ROWS - (last - first)
    return cute.domain_offset((start, 0) if rows_along_m else (0, start), coordinates[None, None, last, ROWS])


def from_row(tensor, first: Int32, rows_along_m: bool = True):
    """The tensor from row `first` on."""
    return cute.domain_offset((first, 0) if rows_along_m else (0, first), tensor)


def up_to_row(tensor, last: Int32, rows_along_m: bool):
    """The tensor without what lies behind row `last`."""
    m, n = tensor.shape
    shape = (last, n) if rows_along_m else (m, last)
    return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=tensor.stride))


def up_to(vector, last: Int32):
    """A tensor with one value per row, without what lies behind row `last`."""
    return cute.make_tensor(vector.iterator, cute.make_layout((last,), stride=vector.stride))


@cute.jit
def tabulate_labels(
    table: cute.Tensor,
    labels: cute.Tensor,
    groups: Int32,
    step: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    """From the group of each row. The rows of a group lie together and begin at multiples of `step`, the rows of a
    cluster's tiles; every other tile begins with a label that is no group."""
    thread, _, _ = cute.arch.thread_idx()
    for i in cutlass.range(thread, table.shape[0], threads, unroll=1):
        table[i, FIRST] = Int32(0)
        table[i, LAST] = Int32(0)
    cute.arch.sync_threads()
    tiles = Int32(cute.ceil_div(labels.shape[0], step))
    for i in cutlass.range(thread, tiles, threads, unroll=2):
        label = labels[i * step]
        if label >= 0 and label < groups:
            before, after = Int32(-1), Int32(-1)
            if i > 0:
                before = labels[(i - 1) * step]
            if i + 1 < tiles:
                after = labels[(i + 1) * step]
            if label != before:
                table[label, FIRST] = i
            if label != after:
                table[label, LAST] = i + 1
    cute.arch.sync_threads()
    for i in cutlass.range(thread, table.shape[0], threads, unroll=1):
        table[i, END] = cutlass.max(table[i, LAST] - table[i, FIRST], Int32(0))
    _add_up(table, threads)


@cute.jit
def tabulate_counts(
    table: cute.Tensor,
    counts: cute.Tensor,
    rows: Int32,
    step: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    """From the number of rows of each group, at most `rows`; step: rows of a cluster's tiles."""
    thread, _, _ = cute.arch.thread_idx()
    for i in cutlass.range(thread, table.shape[0], threads, unroll=1):
        count = Int32(0)
        if i < counts.shape[0]:
            count = cutlass.min(cutlass.max(counts[i], Int32(0)), rows)
        table[i, END] = (count + step - 1) // step
    _add_up(table, threads)


@cute.jit
def tabulate_offsets(
    table: cute.Tensor,
    ends: cute.Tensor,
    rows: Int32,
    step: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    """From where the rows of each group end, of `rows` in all; step: rows of a cluster's tiles."""
    thread, _, _ = cute.arch.thread_idx()
    for i in cutlass.range(thread, table.shape[0], threads, unroll=1):
        first, last = Int32(0), Int32(0)
        if i < ends.shape[0]:
            if i > 0:
                first = cutlass.min(cutlass.max(ends[i - 1], Int32(0)), rows)
            last = cutlass.min(cutlass.max(ends[i], first), rows)
        table[i, FIRST] = first
        table[i, LAST] = last
        table[i, END] = (last - first + step - 1) // step
    _add_up(table, threads)


@cute.jit
def _add_up(table: cute.Tensor, threads: cutlass.Constexpr):
    """Turns tiles of each group into tiles up to its end: sums within windows of 32, then over the windows."""
    thread, _, _ = cute.arch.thread_idx()
    warp, lane = thread // 32, thread % 32
    capacity, warps = table.shape[0], threads // 32
    cute.arch.sync_threads()
    for window in cutlass.range(warp * 32, capacity, warps * 32, unroll=1):
        tiles = table[window + lane, END]
        for step in cutlass.range_constexpr(5):
            below = cute.arch.shuffle_sync_up(tiles, 1 << step)
            if lane >= (1 << step):
                tiles = tiles + below
        table[window + lane, END] = tiles
    cute.arch.sync_threads()
    if const_expr(capacity > 32):
        totals = Int32(0)  # of the window with this lane's number
        if lane * 32 < capacity:
            totals = table[lane * 32 + 31, END]
        cute.arch.sync_threads()
        for window in cutlass.range(warp * 32, capacity, warps * 32, unroll=1):
            before = Int32(0)
            if lane * 32 < window:
                before = totals
            before = cute.arch.warp_redux_sync(before, "add")
            table[window + lane, END] = table[window + lane, END] + before
        cute.arch.sync_threads()
