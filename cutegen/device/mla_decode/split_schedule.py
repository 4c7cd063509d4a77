"""Which keys of which requests a CTA decodes, found by one warp from the lengths on the device.

All keys are a list of units: pairs of key blocks, or single ones, request after request. A part, which is one CTA per
row block, or two that share its columns, takes a contiguous run of units; a request that several parts share is joined
afterwards. Ways to cut that are compared:

- aligned: every part lies within one request, all parts about as long. One piece a part.
- whole: every part takes as many requests as the others, all of them whole.
- even: parts are equally long whatever they cut; a request costs `overhead` pairs beside its own. Up to two pieces of a
  part belong to shared requests, which is charged with CUT pairs.

Where no request may be cut and there are more of them than parts, `whole` has a second form: a request goes to the part
in whose even share its middle lies.

fixed_cut.py is for requests that are cut by their own lengths alone. tests/property/test_split_schedule.py runs this
file in plain Python.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, const_expr

from cutegen.device.mla_decode.request_lengths import (
    FEW,
    HELD,
    count_requests,
    keep_lengths,
    length_of,
    load_lengths,
    most_kept,
)
from cutegen.device.mla_decode.unit_sums import ceil_div, prefix_sums, sum_costs, units_of

# Fields of the result: requests FIRST up to LAST, the last one only if its END is not 0; START and END in units.
# LENGTH: of the first request, in keys; without meaning, and maybe never written, where the part has no keys. Two
# findings that are alike in these KEYS_OF_FIRST fields, and have keys, begin with the same ones.
FIRST, START, LAST, END, LENGTH = 0, 1, 2, 3, 4
KEYS_OF_FIRST = 5
# Parts that share the first request, from FIRST_LO to FIRST_HI; the last one is shared up to LAST_HI. Without meaning,
# and maybe never written, where the part has no keys of that request.
FIRST_LO, FIRST_HI, LAST_HI = 5, 6, 7
COLUMN_BLOCKS = 8  # CTAs that share the columns of O of a part, 1 or 2; neighbours in the grid
FIELDS = 9

PAIR = 128  # keys; costs are counted in pairs of key blocks whatever a unit is
CUT = 4  # pairs; 3 and 6 were measured on an H200, within 2% of each other over batches 8 to 128


@cute.jit
def find_part(
    lengths: cute.Tensor,
    most: Int32,
    part: Int32,
    parts: Int32,
    unit: cutlass.Constexpr,
    overhead: cutlass.Constexpr,
    join_ratio: cutlass.Constexpr,
    max_splits: cutlass.Constexpr,
    rows: Int32,
    shares_columns: cutlass.Constexpr,
    found: cute.Tensor,
    kept: cutlass.Constexpr,
):
    """Writes the fields above for CTA `part` of `parts` to `found`, (FIELDS,) in shared memory. A whole warp calls it.

    most: keys that the block table has room for. unit: keys of a unit. overhead: of a request, in pairs. join_ratio:
    cost of a pair over the cost of joining one more part, so that a request of n pairs is not cut finer than
    sqrt(n / join_ratio) pairs. max_splits: most parts of a request, 0 for no bound. rows: of a request. shares_columns:
    whether two CTAs share a part, a function of (batch or None for a single request, rows, parts, key blocks of all
    requests); then CTA n has half n % 2 of the columns of part n // 2, and COLUMN_BLOCKS is 2. None: no two ever do,
    and that field is not written. kept: where to note the lengths for `have_changed`, (most_kept(unit),) in shared
    memory, or None.

    A launch finds its parts once, so what this takes is the fetching of its instructions: few requests have a short way
    through it, and a single one the shortest, whose cut is an aligned one. The others find the same; but single key
    blocks are for few requests, so their kernel has no way that compares aligned cuts of more than 32.
    """
    batch = count_requests(lengths)
    given = (lengths, most, part, parts, unit, overhead, join_ratio, max_splits, rows, shares_columns, found, kept)
    if batch == 1:
        _take_single(lengths, most, part, parts, unit, join_ratio, max_splits, rows, shares_columns, found, kept)
    elif const_expr(most_kept(unit) == 32 * FEW) or batch <= 32 * FEW:
        _find_among(*given, FEW)
    else:
        _find_among(*given, HELD)


@cute.jit
def _finest(longest: Int32, unit: cutlass.Constexpr, join_ratio: cutlass.Constexpr, max_splits: cutlass.Constexpr):
    """The fewest units that a part of the longest request may have."""
    finest = Int32(1)
    while finest * (finest + 1) * join_ratio < longest * const_expr(PAIR // unit):
        finest = finest + 1
    if const_expr(max_splits > 0):
        finest = cutlass.max(finest, ceil_div(longest, max_splits))
    return finest


@cute.jit
def _share_columns(
    total: Int32,
    batch,
    rows: Int32,
    part: Int32,
    parts: Int32,
    unit: cutlass.Constexpr,
    shares_columns: cutlass.Constexpr,
    found: cute.Tensor,
):
    """Part and parts, after it is decided and written whether two CTAs share the columns of each. total: units of all
    requests; batch: None where there is but one."""
    both = Int32(1) if shares_columns(batch, rows, parts, total * const_expr(2 * unit // PAIR)) else Int32(0)
    if cute.arch.lane_idx() == 0:
        found[COLUMN_BLOCKS] = both + 1
    return part >> both, parts >> both


@cute.jit
def _take_single(
    lengths: cute.Tensor,
    most: Int32,
    part: Int32,
    parts: Int32,
    unit: cutlass.Constexpr,
    join_ratio: cutlass.Constexpr,
    max_splits: cutlass.Constexpr,
    rows: Int32,
    shares_columns: cutlass.Constexpr,
    found: cute.Tensor,
    kept: cutlass.Constexpr,
):
    """An aligned cut of the only request: no other has shorter parts."""
    length = length_of(lengths, most, Int32(0))
    units = units_of(length, unit)
    if const_expr(shares_columns is not None):
        part, parts = _share_columns(units, None, rows, part, parts, unit, shares_columns, found)
    chunk = cutlass.max(ceil_div(units, parts), _finest(units, unit, join_ratio, max_splits))
    count = cutlass.max(ceil_div(units, chunk), Int32(1))
    size = ceil_div(units, count)
    start = part * size
    if cute.arch.lane_idx() == 0:
        if const_expr(kept is not None):
            kept[0] = length
        found[FIRST] = Int32(1)
        found[START] = Int32(0)
        found[LAST] = Int32(1)
        found[END] = Int32(0)
        found[FIRST_LO] = Int32(0)
        found[FIRST_HI] = count - 1
        found[LENGTH] = length
        if part < count:
            found[FIRST] = Int32(0)
            found[START] = start
            if start + size < units:
                found[LAST] = Int32(0)
                found[END] = start + size


@cute.jit
def _find_among(
    lengths: cute.Tensor,
    most: Int32,
    part: Int32,
    parts: Int32,
    unit: cutlass.Constexpr,
    overhead: cutlass.Constexpr,
    join_ratio: cutlass.Constexpr,
    max_splits: cutlass.Constexpr,
    rows: Int32,
    shares_columns: cutlass.Constexpr,
    found: cute.Tensor,
    kept: cutlass.Constexpr,
    lane_lengths: cutlass.Constexpr,
):
    """Compares the cuts. lane_lengths: that a lane loads at once."""
    pair = const_expr(PAIR // unit)  # units
    overhead, cut = const_expr(overhead * pair), const_expr(CUT * pair)
    lane = cute.arch.lane_idx()
    batch = count_requests(lengths)
    total, longest = Int32(0), Int32(0)
    held = cute.make_rmem_tensor(lane_lengths, Int32)
    for base in cutlass.range(0, batch, 32 * lane_lengths, unroll=1):
        load_lengths(lengths, most, base, lane, held)
        keep_lengths(held, batch, lane, kept)
        for i in cutlass.range_constexpr(lane_lengths):
            units = units_of(held[i], unit)
            total = total + units
            longest = cutlass.max(longest, units)
    total = cute.arch.warp_redux_sync(total, "add")
    longest = cute.arch.warp_redux_sync(longest, "max")
    if const_expr(shares_columns is not None):
        part, parts = _share_columns(total, batch, rows, part, parts, unit, shares_columns, found)
    each = ceil_div(batch, parts)
    share = cutlass.max(parts // batch, Int32(1))
    finest = _finest(longest, unit, join_ratio, max_splits)
    even = cutlass.max(ceil_div(total + batch * overhead, parts), finest)
    if const_expr(max_splits > 1):  # an even cut may add a piece at either end
        even = cutlass.max(even, ceil_div(longest, max_splits - 1))
    take_nothing(batch, lane, found)

    aligned = Boolean(False)
    chunk = Int32(1)
    if batch <= cutlass.min(parts, Int32(32 * lane_lengths)):  # then `held` has the lengths of all of them
        # The shortest chunk with which every request has parts of its own lies between these two; `chunk` itself always
        # serves. They are equal when all lengths are and parts are a multiple of the batch.
        low = cutlass.max(ceil_div(total, parts), finest)
        chunk = cutlass.max(ceil_div(longest, share), low)
        while low < chunk:
            middle = (low + chunk) // 2
            used = Int32(0)
            for i in cutlass.range_constexpr(lane_lengths):
                if 32 * i + lane < batch:
                    used = used + _pieces(held[i], unit, middle)
            if cute.arch.warp_redux_sync(used, "add") <= parts:
                chunk = middle
            else:
                low = middle + 1
        aligned = chunk + overhead <= even + cut or max_splits == 1
    if aligned:
        _take_aligned(held, batch, part, chunk, unit, lane, found)
    else:
        if each * (longest + overhead) <= even + cut:
            first = cutlass.min(part * each, batch)
            _take(lengths, most, held, first, cutlass.min(first + each, batch), part, lane, found)
        else:
            if const_expr(max_splits == 1):
                _take_whole(lengths, most, held, part, parts, even, unit, overhead, lane, found)
            else:
                _take_even(lengths, most, held, part, even, unit, overhead, lane, found)


@cute.jit
def take_nothing(batch: Int32, lane: Int32, found: cute.Tensor):
    if lane == 0:
        found[FIRST] = batch
        found[START] = Int32(0)
        found[LAST] = batch
        found[END] = Int32(0)
    cute.arch.sync_warp()


@cute.jit
def _pieces(length: Int32, unit: cutlass.Constexpr, chunk: Int32) -> Int32:
    """Parts of a request of which none has more than `chunk` units."""
    return cutlass.max(ceil_div(units_of(length, unit), chunk), Int32(1))


@cute.jit
def _take(
    lengths: cute.Tensor,
    most: Int32,
    held: cute.Tensor,
    first: Int32,
    last: Int32,
    part: Int32,
    lane: Int32,
    found: cute.Tensor,
):
    """Whole requests, first up to last."""
    batch = count_requests(lengths)
    if batch <= 32 * cute.size(held):
        for i in cutlass.range_constexpr(cute.size(held)):
            if 32 * i + lane == first:
                found[LENGTH] = held[i]
    elif lane == 0:
        found[LENGTH] = length_of(lengths, most, cutlass.min(first, batch - 1))
    if lane == 0:
        found[FIRST] = first
        found[LAST] = last
        found[FIRST_LO] = part
        found[FIRST_HI] = part


@cute.jit
def _take_aligned(
    held: cute.Tensor, batch: Int32, part: Int32, chunk: Int32, unit: cutlass.Constexpr, lane: Int32, found: cute.Tensor
):
    counts = cute.make_rmem_tensor(held.shape, Int32)
    for i in cutlass.range_constexpr(cute.size(held)):
        counts[i] = _pieces(held[i], unit, chunk) if 32 * i + lane < batch else Int32(0)
    upto, _ = prefix_sums(counts, lane)
    request, first, count, length = Int32(-1), Int32(0), Int32(1), Int32(0)
    for i in cutlass.range_constexpr(cute.size(held)):
        if upto[i] - counts[i] <= part and part < upto[i]:
            request, first, count, length = 32 * i + lane, upto[i] - counts[i], counts[i], held[i]
    if request >= 0:
        units = units_of(length, unit)
        size = ceil_div(units, count)
        start = (part - first) * size
        found[FIRST] = request
        found[START] = start
        found[FIRST_LO] = first
        found[FIRST_HI] = first + count - 1
        found[LENGTH] = length
        if start + size < units:
            found[LAST] = request
            found[END] = start + size
        else:
            found[LAST] = request + 1


@cute.jit
def _take_even(
    lengths: cute.Tensor,
    most: Int32,
    held: cute.Tensor,
    part: Int32,
    even: Int32,
    unit: cutlass.Constexpr,
    overhead: cutlass.Constexpr,
    lane: Int32,
    found: cute.Tensor,
):
    lane_lengths = const_expr(cute.size(held))
    batch = count_requests(lengths)
    begin, end = part * even, part * even + even
    before = Int32(0)
    for base in cutlass.range(0, batch, 32 * lane_lengths, unroll=1):
        costs, upto, total = sum_costs(
            lengths, most, base, lane, held, lambda length: units_of(length, unit) + overhead
        )
        for i in cutlass.range_constexpr(lane_lengths):
            request = base + 32 * i + lane
            beyond = before + upto[i]
            origin = beyond - costs[i]
            if origin <= begin and begin < beyond:
                found[FIRST] = request
                found[START] = cutlass.max(begin - origin - overhead, Int32(0))
                found[FIRST_LO] = (origin + overhead) // even
                found[FIRST_HI] = (beyond - 1) // even
                found[LENGTH] = held[i]
            if origin <= end and end < beyond:
                found[LAST] = request
                found[END] = cutlass.max(end - origin - overhead, Int32(0))
                found[LAST_HI] = (beyond - 1) // even
        before = before + total


@cute.jit
def _take_whole(
    lengths: cute.Tensor,
    most: Int32,
    held: cute.Tensor,
    part: Int32,
    parts: Int32,
    even: Int32,
    unit: cutlass.Constexpr,
    overhead: cutlass.Constexpr,
    lane: Int32,
    found: cute.Tensor,
):
    """More requests than parts and none may be cut: a request goes where its middle lies."""
    lane_lengths = const_expr(cute.size(held))
    batch = count_requests(lengths)
    first, last = Int32(batch), Int32(batch)
    before = Int32(0)
    for base in cutlass.range(0, batch, 32 * lane_lengths, unroll=1):
        costs, upto, total = sum_costs(
            lengths, most, base, lane, held, lambda length: units_of(length, unit) + overhead
        )
        for i in cutlass.range_constexpr(lane_lengths):
            request = base + 32 * i + lane
            owner = cutlass.min((before + upto[i] - (costs[i] + 1) // 2) // even, parts - 1)
            if request < batch:
                if owner >= part:
                    first = cutlass.min(first, request)
                if owner > part:
                    last = cutlass.min(last, request)
        before = before + total
    first = cute.arch.warp_redux_sync(first, "min")
    last = cute.arch.warp_redux_sync(last, "min")
    _take(lengths, most, held, first, last, part, lane, found)
