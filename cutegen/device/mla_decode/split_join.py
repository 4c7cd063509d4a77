"""Joins the partial results of a request that several parts decoded: out = sum of 2^(lse_j - lse) factor_j out_j.

Part `lo` holds the beginning of the request, in its second slot; parts after it up to `hi` hold theirs in their first.
They join the rows in an order that does not depend on who joins them, nor when:

- All parts of a request have started: each has an SM and will publish its results, so they may wait for each other.
  They do, and join a share of the rows each.
- Some have not, because other kernels hold SMs, and maybe never will while others wait for them. So a part that finds
  it so leaves when it has published. Others wait, as the last to start finds that all have; one of those joins all
  rows.

A join takes as long as its trips to memory, one after the other. So all that a warp needs of all parts is in flight at
once, and rows and parts are spread over warps and lanes so that one round of loads is enough.
"""

import operator

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

from cutegen.runtime.mla_decode.tiling import MAX_PARTS

# A counter is a word with a byte for each of: parts that need it no more, have started, have published, and have
# published without waiting. The first is the lowest, so that one instruction counts up to the last part and clears all.
OUT, STARTED, PUBLISHED, LEFT = (8 * i for i in range(4))  # shifts
FIELD = MAX_PARTS  # mask
NONE, SHARE, ALL = 0, 1, 2  # rows that a part joins
# Times that a part looks whether the others have started: round trips to L2 of some 0.65 us, together what a join takes
# that parts do not share.
LOOKS = 32

LOG2_E = 1.4426950408889634
VECTOR = 8  # f16 values of one load
WARP_COLUMNS = 32 * VECTOR  # of one load of a warp
# Loads of O that a thread has in flight, and parts that may be among them. With fewer parts a thread takes more
# columns, or rows; with more, lanes lie side by side over the parts. 16 loads are what 64 rows need for one round; 8
# keep more warps busy where rows are few. Few requests in many parts come first: every test that fails is a jump over
# code to a line of it that the SM has not fetched yet.
SHAPES = ((16, 16), (8, 8), (16, 8), (16, 4), (16, 2))
# Of half a row, which one load of a warp takes: two ways, for fewer instructions. Loads past the last part find that
# one again.
HALF_SHAPES = ((16, 16), (8, 8))


@cute.jit
def slot_of(part: Int32, begins: Int32) -> Int32:
    """Workspace slot of a piece: a part has one for a request's continuation and one for a request's beginning."""
    return 2 * part + begins


@cute.jit
def first_column(vector: Int32) -> Int32:
    """Column of the first value of a vector of a slot's row; the others are this one + 1, + 8, + 9, + 16 and so on: a
    thread's own values of four neighbouring 8 x 8 fragments of an accumulator, which it stores as they are."""
    return 32 * (vector // 4) + 2 * (vector % 4)


@cute.jit
def first_column_of_half(vector: Int32, column_block: Int32) -> Int32:
    """The same where a slot's row has the columns of one CTA first, then those of the other: of each half of O's
    columns, which are a warpgroup's, a CTA has a half."""
    return first_column(vector) + 128 * (column_block + vector // 16)


@cute.jit
def meet(counter, splits: Int32) -> Int32:
    """Counts this part as started. Returns SHARE where all parts of the request are, within LOOKS; else NONE. The last
    to be counted sees it at once."""
    seen = cute.arch.atomic_add(counter, Int32(1 << STARTED), sem="relaxed", scope="gpu") + (1 << STARTED)
    looks = Int32(0)
    while looks < LOOKS and _field(seen, STARTED) < splits:
        seen = cute.arch.load(counter, Int32, sem="relaxed", scope="gpu")
        looks = looks + 1
    return Int32(SHARE) if _field(seen, STARTED) == splits else Int32(NONE)


@cute.jit
def publish(counter, joins: Int32):
    """Tells the other parts that this one's partial results are written, and whether it leaves. All of the group's
    threads have passed a barrier since they wrote them, so that a release by one is one of all (PTX ISA, causality
    order). joins: what `meet` returned."""
    count = Int32(1 << PUBLISHED)
    if joins == NONE:
        count = Int32((1 << PUBLISHED) + (1 << LEFT) + (1 << OUT))
    cute.arch.atomic_add(counter, count, sem="release", scope="gpu")


@cute.jit
def await_parts(counter, splits: Int32) -> Int32:
    """Spins until all parts have published. The group passes a barrier before it reads their results. Returns what this
    part joins: where others have left, all rows if it is the first to come here, else none.

    Counts this part out, which looks at the counter no more; the last one leaves it zero, ready for the next launch.
    That is a reduction that wraps around, not an atomic whose result a thread would wait for, unless parts have left:
    all that do are in the word by now, as they leave when they publish.
    """
    seen = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")
    while _field(seen, PUBLISHED) < splits:
        seen = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")
    joins = Int32(SHARE)
    last = (seen & const_expr(~(FIELD << OUT))) + (splits - 1)
    if _field(seen, LEFT) == 0:
        _count_up_to(counter, last)
    else:
        before = _field(_count_and_see(counter, last), OUT)
        joins = Int32(ALL) if before == _field(seen, LEFT) else Int32(NONE)
    return joins


def _field(word, shift):
    return (word >> shift) & FIELD


def _count_up_to(counter, last):
    """Adds 1, and makes what is `last` 0. PTX ISA: inc wraps around when it finds its operand, or more."""
    operands = [counter.toint().ir_value(), last.ir_value()]
    llvm.inline_asm(None, operands, "red.relaxed.gpu.global.inc.u32 [$0], $1;", "l,r", has_side_effects=True)


def _count_and_see(counter, last):
    """The same; returns what was there."""
    operands = [counter.toint().ir_value(), last.ir_value()]
    text = "atom.relaxed.gpu.global.inc.u32 $0, [$1], $2;"
    return Int32(llvm.inline_asm(T.i32(), operands, text, "=r,l,r", has_side_effects=True))


@cute.jit
def join(
    partial_out: cute.Tensor,
    partial_lse: cute.Tensor,
    out: cute.Tensor,
    lse: cute.Tensor,
    origin: Int32,
    rows: Int32,
    part: Int32,
    lo: Int32,
    splits: Int32,
    joins: Int32,
    warp: Int32,
    warps: cutlass.Constexpr,
    lse_scale: cutlass.Constexpr,
    column_block: Int32,
    column_blocks: cutlass.Constexpr[int],
    sink: cutlass.Constexpr = None,
):
    """Joins all of rows origin .. origin + rows (joins: ALL) or this part's share of them (SHARE); of two column blocks
    its own half of the columns.

    partial_out: (slots, rows, 512) f16, columns as `first_column` says, or `first_column_of_half`; partial_lse:
    (slots * column blocks, rows, 2) f32, the LSE in base 2 and a factor of the row's values; out: (rows, 512); lse:
    (rows,), scaled by lse_scale; sink: (rows,), or None.
    """
    given = (partial_out, partial_lse, out, lse, origin, rows, lo, splits)
    first, step = warp * splits + part - lo, splits * warps  # neighbours go to different parts
    if joins == ALL:
        first, step = warp, Int32(warps)
    _join_shaped(given, rows, splits, warps, first, step, lse_scale, column_block, sink, column_blocks, 2)


@cute.jit
def join_pieces(
    partial_out: cute.Tensor,
    partial_lse: cute.Tensor,
    out: cute.Tensor,
    lse: cute.Tensor,
    origin: Int32,
    rows: Int32,
    slot: Int32,
    pieces: Int32,
    share: Int32,
    shares: Int32,
    warp: Int32,
    warps: cutlass.Constexpr,
    lse_scale: cutlass.Constexpr,
    sink: cutlass.Constexpr = None,
):
    """`join` of pieces that parts took any number of, in slots one behind the other from `slot` on: share `share` of
    `shares` of the rows. The order of sums follows from pieces and rows alone."""
    given = (partial_out, partial_lse, out, lse, origin, rows, slot, pieces)
    first, step = warp * shares + share, shares * warps
    _join_shaped(given, rows, pieces, warps, first, step, lse_scale, Int32(0), sink, 1, 1)


@cute.jit
def _join_shaped(
    given: tuple,
    rows: Int32,
    splits: Int32,
    warps: cutlass.Constexpr,
    first: Int32,
    step: Int32,
    lse_scale: cutlass.Constexpr,
    column_block: Int32,
    sink: cutlass.Constexpr,
    column_blocks: cutlass.Constexpr[int],
    part_slots: cutlass.Constexpr[int],
):
    """Chooses the loads, which decide the order of sums, by what a share of the rows is for as many as there are
    results: whoever joins more of them keeps to that. part_slots: from one result to the next."""
    ways = 32 - Int32(cute.arch.clz(splits - 1))  # log2 of the power of two that the parts fill up to
    padded = Int32(1) << ways
    per_row = const_expr(cute.size(given[2], mode=[1]) // WARP_COLUMNS // column_blocks)  # loads of a warp
    if const_expr(column_blocks > 1):
        padded = cutlass.max(padded, Int32(8))
    loads = Int32(16)
    if padded >= 8 and per_row * rows * padded <= 8 * splits * warps:  # one round of 8 is enough
        loads = Int32(8)
    _join_as(
        SHAPES if const_expr(column_blocks == 1) else HALF_SHAPES,
        loads,
        cutlass.min(padded, loads) if const_expr(column_blocks == 1) else loads,
        (*given, first, step, ways, lse_scale, column_block, sink),
        column_blocks,
        part_slots,
    )


@cute.jit
def _join_as(
    shapes: cutlass.Constexpr,
    loads: Int32,
    depth: Int32,
    arguments: tuple,
    column_blocks: cutlass.Constexpr[int],
    part_slots: cutlass.Constexpr[int],
):
    """`_join_items` with the one of `shapes` that has these loads and this depth."""
    shape, *others = shapes
    if loads == shape[0] and depth == shape[1]:
        _join_items(*arguments, column_blocks, part_slots, *shape)
    else:
        if const_expr(others):
            _join_as(others, loads, depth, arguments, column_blocks, part_slots)


@cute.jit
def _join_items(
    partial_out: cute.Tensor,
    partial_lse: cute.Tensor,
    out: cute.Tensor,
    lse: cute.Tensor,
    origin: Int32,
    rows: Int32,
    lo: Int32,
    splits: Int32,
    first: Int32,
    step: Int32,
    ways: Int32,
    lse_scale: cutlass.Constexpr,
    column_block: Int32,
    sink: cutlass.Constexpr,
    column_blocks: cutlass.Constexpr[int],
    part_slots: cutlass.Constexpr[int],
    loads: cutlass.Constexpr[int],
    depth: cutlass.Constexpr[int],
):
    """A warp takes `tall` rows x `wide` vectors a lane. Where parts are more than `depth`, groups of lanes, 2^sides of
    them, have parts of their own, and are added up at the end."""
    per_row = const_expr(cute.size(out, mode=[1]) // WARP_COLUMNS // column_blocks)  # loads of a warp
    tall = const_expr(max(1, loads // depth // per_row))
    wide = const_expr(loads // depth // tall)
    cuts = const_expr((per_row // wide).bit_length() - 1)  # log2 of a row's items, without sides
    sides = ways - const_expr(depth.bit_length() - 1) if const_expr(depth == loads) else Int32(0)
    if const_expr(column_blocks > 1):
        sides = cutlass.max(sides, Int32(0))
    lane = cute.arch.lane_idx()
    group, column = lane >> (5 - sides), lane & ((Int32(32) >> sides) - 1)
    end = origin + rows
    last = (splits - 1 - group) >> sides  # a lane has parts lo + group + (d << sides) for d up to this
    begins = _begins(group) if const_expr(part_slots == 2) else Int32(0)  # only for d = 0
    vectors = cute.zipped_divide(partial_out, (1, 1, VECTOR))  # (8, (slots, rows, columns / 8))
    out_pairs = cute.zipped_divide(out, (1, 2))  # (2, (rows, columns / 2))
    apart = cute.assume(part_slots * partial_out.stride[0] << sides, divby=VECTOR)  # elements from d to d + 1
    pairs = cute.zipped_divide(partial_lse, (1, 1, 2))  # (2, (slots, rows, 1))
    lse_apart = cute.assume(part_slots * column_blocks * partial_lse.stride[0] << sides, divby=2)
    for item in cutlass.range(first, ((rows + tall - 1) // tall << cuts) << sides, step, unroll=1):
        row = origin + (item >> (cuts + sides)) * tall
        at = ((item & ((Int32(1) << (cuts + sides)) - 1)) * wide << (5 - sides)) + column
        vector = at + 32 * column_block if const_expr(column_blocks > 1) else at
        norms = cute.make_rmem_tensor((2, depth, tall), Float32)  # of each part: LSE, and what its values are times
        x = cute.make_rmem_tensor((VECTOR, depth, wide, tall), partial_out.element_type)
        for r in cutlass.range_constexpr(tall):
            slot, from_row = part_slots * (lo + group), cutlass.min(row + r, end - 1)
            lse_slot = column_blocks * slot + column_block
            own = pairs[None, (lse_slot, from_row, 0)].iterator
            source = cute.make_tensor(own, cute.make_layout((2, depth), stride=(1, lse_apart)))
            cute.autovec_copy(pairs[None, (lse_slot + column_blocks * begins, from_row, 0)], norms[None, 0, r])
            for d in cutlass.range_constexpr(1, depth):
                cute.autovec_copy(source[None, cutlass.min(Int32(d), last)], norms[None, d, r])
            for w in cutlass.range_constexpr(wide):
                own = vectors[None, (slot, from_row, vector + 32 * w)].iterator
                source = cute.make_tensor(own, cute.make_layout((VECTOR, depth), stride=(1, apart)))
                cute.autovec_copy(vectors[None, (slot + begins, from_row, vector + 32 * w)], x[None, 0, w, r])
                for d in cutlass.range_constexpr(1, depth):
                    cute.autovec_copy(source[None, cutlass.min(Int32(d), last)], x[None, d, w, r])
        cute.arch.sync_warp()  # weights wait for the LSEs: all loads of O are on their way before that
        tops, totals = cute.make_rmem_tensor(tall, Float32), cute.make_rmem_tensor(tall, Float32)
        for r in cutlass.range_constexpr(tall):
            tops[r], totals[r] = _weigh(norms[None, None, r], last, sides)
        for r in cutlass.range_constexpr(tall):
            divisor = totals[r]
            if const_expr(sink is not None):
                divisor = add_sink(totals[r], tops[r], sink, cutlass.min(row + r, end - 1))
            scale = cute.arch.rcp_approx(divisor) if totals[r] > 0.0 else Float32(0.0)
            for w in cutlass.range_constexpr(wide):
                acc = cute.make_rmem_tensor(VECTOR, Float32)
                acc.fill(0.0)
                for d in cutlass.range_constexpr(depth):
                    for c in cutlass.range_constexpr(VECTOR):
                        acc[c] = acc[c] + norms[1, d, r] * x[c, d, w, r].to(Float32)
                if const_expr(depth == loads):
                    _reduce_groups(acc, sides, operator.add)
                y = cute.make_rmem_tensor((2, VECTOR // 2), out.element_type)
                for c in cutlass.range_constexpr(VECTOR):
                    y[c] = (acc[c] * scale).to(out.element_type)
                if row + r < end and group == 0:
                    pair = first_column(at + 32 * w) // 2
                    if const_expr(column_blocks > 1):
                        pair = first_column_of_half(at, column_block) // 2
                    for c in cutlass.range_constexpr(VECTOR // 2):
                        cute.autovec_copy(y[None, c], out_pairs[None, (row + r, pair + 4 * c)])
        top, total = tops[0], totals[0]
        for r in cutlass.range_constexpr(1, tall):  # a lane a row
            if lane == r:
                top, total = tops[r], totals[r]
        if column_block == 0 and at == column and lane < tall and row + lane < end:  # the first columns
            lse[row + lane] = (cute.math.log2(total, fastmath=True) + top) * lse_scale if total > 0.0 else Float32.inf


@cute.jit
def add_sink(total: Float32, reference: Float32, sink: cute.Tensor, row: Int32) -> Float32:
    """What the weights of a row are divided by: their sum, relative to 2^reference, and what its sink adds to it."""
    return total + cute.math.exp2(sink[row] * LOG2_E - reference, fastmath=True)


@cute.jit
def _weigh(norms: cute.Tensor, last: Int32, sides: Int32):
    """Turns each part's factor into what its values weigh, relative to the largest LSE of all parts. Returns that, and
    the sum of all weights, which is without the factors. norms: (2, depth)."""
    depth = const_expr(cute.size(norms, mode=[1]))
    one = cute.make_rmem_tensor(1, Float32)
    one[0] = -Float32.inf
    for d in cutlass.range_constexpr(depth):
        norms[0, d] = norms[0, d] if d <= last else -Float32.inf
        one[0] = _greater(one[0], norms[0, d])
    _reduce_groups(one, sides, _greater)
    top = one[0]
    one[0] = Float32(0.0)
    for d in cutlass.range_constexpr(depth):
        weight = cute.math.exp2(norms[0, d] - _finite(top), fastmath=True)
        norms[1, d] = norms[1, d] * weight
        one[0] = one[0] + weight
    _reduce_groups(one, sides, operator.add)
    return top, one[0]


@cute.jit
def _reduce_groups(values: cute.Tensor, sides: Int32, combine: cutlass.Constexpr):
    """Over the groups of lanes, which the upper bits of a lane's number tell apart."""
    for i in cutlass.range_constexpr(5):
        if i < sides:
            for v in cutlass.range_constexpr(cute.size(values)):
                values[v] = combine(values[v], cute.arch.shuffle_sync_bfly(values[v], offset=16 >> i))


def _greater(x, y):
    """NaN where one of them is."""
    return cute.arch.fmax(x, y, nan=True)


@cute.jit
def _begins(j: Int32) -> Int32:
    return Int32(1) if j == 0 else Int32(0)


@cute.jit
def _finite(x: Float32) -> Float32:
    """0 for -inf: what no key was seen by, weighs nothing."""
    return x if x > -Float32.inf else Float32(0.0)
