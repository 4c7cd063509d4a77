"""Lengths of requests, read by a warp while the kernel in front may be writing them, and looked at again."""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, const_expr

from cutegen.runtime.mla_decode.tiling import KEY_BLOCK

# Lengths of a lane: a warp loads and sums 160 at once, and keeps those of a batch up to that; or 32.
HELD, FEW = 5, 1


def within(length: Int32, most: Int32) -> Int32:
    """A length as it counts: a negative one is 0, and one over `most`, for which the block table has no room, is that.
    Parts must agree on what they wait for, and read no table beyond its rows, whatever the lengths are."""
    return cutlass.max(cutlass.min(length, most), Int32(0))


def read_length(lengths: cute.Tensor, request: Int32) -> Int32:
    """From L2: the kernel in front may be writing it, and what is read behind the wait for that one, there or
    elsewhere in the kernel, is not to be found in L1 as it was before."""
    at = lengths.iterator + cute.crd2idx(request, lengths.layout)
    return cute.arch.load(at, Int32, sem="relaxed", scope="gpu")


def count_requests(lengths):
    """How many there are. lengths: of each, or a pair of tensors where requests have keys of two caches, one's behind
    the other's; then the most keys are a pair as well."""
    return cute.size(lengths[0] if isinstance(lengths, tuple) else lengths)


def length_of(lengths, most, request: Int32) -> Int32:
    """Of a request, in one cache or in both, as it counts."""
    if isinstance(lengths, tuple):
        return within(read_length(lengths[0], request), most[0]) + within(read_length(lengths[1], request), most[1])
    return within(read_length(lengths, request), most)


@cute.jit
def load_lengths(lengths: cute.Tensor, most: Int32, base: Int32, lane: Int32, held: cute.Tensor):
    """Lengths of requests base + 32 * i + lane, 0 past the batch. All CTAs read the same few lines at once, so none is
    read in vain."""
    batch = count_requests(lengths)
    held.fill(0)
    if const_expr(isinstance(lengths, tuple)):
        others = cute.make_rmem_tensor(cute.size(held), Int32)
        load_lengths(lengths[1], most[1], base, lane, others)
        load_lengths(lengths[0], most[0], base, lane, held)
        for i in cutlass.range_constexpr(cute.size(held)):
            held[i] = held[i] + others[i]
    else:
        for i in cutlass.range_constexpr(cute.size(held)):  # all loads before the first use
            if base + 32 * i + lane < batch:
                held[i] = read_length(lengths, base + 32 * i + lane)
        for i in cutlass.range_constexpr(cute.size(held)):
            held[i] = within(held[i], most)


@cute.jit
def keep_lengths(held: cute.Tensor, batch: Int32, lane: Int32, kept: cutlass.Constexpr):
    """Notes the lengths of a batch for `have_changed`, of which a warp holds all. kept: where, or None."""
    if const_expr(kept is not None):  # noqa: SIM102 - the device takes the other decision
        if batch <= 32 * cute.size(held):
            for i in cutlass.range_constexpr(cute.size(held)):
                kept[32 * i + lane] = held[i]


def most_kept(unit: int) -> int:
    """Requests whose lengths `find_part` reads once, and so may find parts by while they are being written."""
    return 32 * (FEW if unit == KEY_BLOCK else HELD)


@cute.jit
def have_changed(lengths: cute.Tensor, most: Int32, unit: cutlass.Constexpr, kept: cute.Tensor) -> Boolean:
    """Whether lengths are others than when `find_part` kept them, of at most most_kept(unit) requests."""
    lane, batch = cute.arch.lane_idx(), count_requests(lengths)
    held = cute.make_rmem_tensor(most_kept(unit) // 32, Int32)
    load_lengths(lengths, most, Int32(0), lane, held)
    changed = Boolean(False)
    for i in cutlass.range_constexpr(cute.size(held)):
        if 32 * i + lane < batch:
            changed = changed or held[i] != kept[32 * i + lane]
    return cute.arch.vote_any_sync(changed)
