"""Joins the partial results of a request that several parts decoded: out = sum of 2^(lse_j - lse) out_j.

Part `lo` holds the beginning of the request, in its second slot; parts after it up to `hi` hold theirs in their first.
All of them wait for each other and join a share of the rows each, in an order that does not depend on timing.
"""

import operator

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

VECTOR = 4  # f32 values of one load


@cute.jit
def slot_of(part: Int32, begins: Int32) -> Int32:
    """Workspace slot of a piece: a part has one for a request's continuation and one for a request's beginning."""
    return 2 * part + begins


@cute.jit
def publish(counter, thread: Int32):
    """Tells the other parts that this one's partial results are written. All of the group's threads have passed a
    barrier since they wrote them, so that a release by one is one of all (PTX ISA, causality order)."""
    if thread == 0:
        cute.arch.atomic_add(counter, Int32(1), sem="release", scope="gpu")


@cute.jit
def await_parts(counter, splits: Int32, thread: Int32):
    """Spins until all parts have published. The group passes a barrier before it reads their results.

    Then counts this part out, which looks at the counter no more; the last one leaves it zero, ready for the next
    launch. Not after the join: there nothing would hide the trip to memory.
    """
    if thread == 0:
        seen = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")
        while seen < splits:
            seen = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")
        before = cute.arch.atomic_add(counter, Int32(1), sem="relaxed", scope="gpu")
        if before == 2 * splits - 1:
            cute.arch.store(counter, Int32(0))


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
    warp: Int32,
    warps: cutlass.Constexpr,
    lse_scale: cutlass.Constexpr,
):
    """Joins this part's share of rows origin .. origin + rows.

    partial_out: (slots, rows, d) f32; partial_lse: (slots, rows) f32, base 2; out: (rows, d); lse: (rows,), scaled by
    lse_scale. A warp takes whole rows while there are enough of them for the warps of all parts, then 128 columns of a
    row, then 32 columns with four parts side by side: latency is what counts, so all warps work with many loads in
    flight.
    """
    first = (part - lo) * warps + warp
    step = splits * warps
    if rows * 2 > step:
        _join_columns(partial_out, partial_lse, out, lse, origin, rows, lo, splits, first, step, 4, 4, lse_scale)
    else:
        if splits <= 32:
            _join_columns(partial_out, partial_lse, out, lse, origin, rows, lo, splits, first, step, 1, 16, lse_scale)
        else:
            _join_parts(partial_out, partial_lse, out, lse, origin, rows, lo, splits, first, step, lse_scale)


@cute.jit
def _vectors(row: cute.Tensor) -> cute.Tensor:
    return cute.zipped_divide(row, (VECTOR,))  # (4, columns / 4)


@cute.jit
def _begins(j: Int32) -> Int32:
    return Int32(1) if j == 0 else Int32(0)


@cute.jit
def _finite(x: Float32) -> Float32:
    """0 for -inf: what no key was seen by, weighs nothing."""
    return x if x > -Float32.inf else Float32(0.0)


@cute.jit
def _store_lse(lse: cute.Tensor, row: Int32, total: Float32, top: Float32, scale: cutlass.Constexpr):
    lse[row] = (cute.math.log2(total, fastmath=True) + top) * scale if total > 0.0 else Float32.inf


@cute.jit
def _join_columns(
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
    width: cutlass.Constexpr,
    depth: cutlass.Constexpr,
    lse_scale: cutlass.Constexpr,
):
    """A warp takes `width` x 128 columns of a row, with the loads of `depth` parts in flight."""
    lane = cute.arch.lane_idx()
    per_row = partial_out.shape[2] // (128 * width)
    for item in cutlass.range(first, rows * per_row, step, unroll=1):
        row, at = origin + item // per_row, item % per_row * width
        acc = cute.make_rmem_tensor((VECTOR, width), Float32)
        acc.fill(0.0)
        top, total = -Float32.inf, Float32(0.0)
        for base in cutlass.range(0, splits, 32, unroll=1):
            mine = -Float32.inf
            if base + lane < splits:
                mine = partial_lse[slot_of(lo + base + lane, _begins(base + lane)), row]
            for start in cutlass.range(base, cutlass.min(base + 32, splits), depth, unroll=1):
                x = cute.make_rmem_tensor((VECTOR, width, depth), Float32)
                for d in cutlass.range_constexpr(depth):
                    j = cutlass.min(start + d, splits - 1)
                    source = _vectors(partial_out[slot_of(lo + j, _begins(j)), row, None])
                    for w in cutlass.range_constexpr(width):
                        cute.autovec_copy(source[None, (at + w) * 32 + lane], x[None, w, d])
                new = top
                for d in cutlass.range_constexpr(depth):
                    theirs = cute.arch.shuffle_sync(mine, start + d - base)
                    new = cute.arch.fmax(new, theirs if start + d < splits else -Float32.inf)
                fade = cute.math.exp2(top - _finite(new), fastmath=True)
                total = total * fade
                for c in cutlass.range_constexpr(VECTOR * width):
                    acc[c] = acc[c] * fade
                for d in cutlass.range_constexpr(depth):
                    theirs = cute.arch.shuffle_sync(mine, start + d - base)
                    weight = cute.math.exp2(theirs - _finite(new), fastmath=True)
                    weight = weight if start + d < splits else Float32(0.0)
                    total = total + weight
                    for c in cutlass.range_constexpr(VECTOR * width):
                        acc[c] = acc[c] + weight * x[c + VECTOR * width * d]
                top = new
        scale = 1.0 / total if total > 0.0 else Float32(0.0)
        for w in cutlass.range_constexpr(width):
            y = cute.make_rmem_tensor(VECTOR, out.element_type)
            for c in cutlass.range_constexpr(VECTOR):
                y[c] = (acc[c, w] * scale).to(out.element_type)
            cute.autovec_copy(y, _vectors(out[row, None])[None, (at + w) * 32 + lane])
        if at == 0 and lane == 0:
            _store_lse(lse, row, total, top, lse_scale)


@cute.jit
def _join_parts(
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
    lse_scale: cutlass.Constexpr,
):
    """A warp takes 32 columns of a row: 8 lanes across them, 4 parts side by side, the loads of 32 parts in flight."""
    lane = cute.arch.lane_idx()
    per_row = partial_out.shape[2] // 32
    for item in cutlass.range(first, rows * per_row, step, unroll=1):
        row, at = origin + item // per_row, item % per_row * 8 + lane % 8
        acc = cute.make_rmem_tensor(VECTOR, Float32)
        acc.fill(0.0)
        top, total = -Float32.inf, Float32(0.0)
        for base in cutlass.range(0, splits, 32, unroll=1):
            mine = -Float32.inf
            if base + lane < splits:
                mine = partial_lse[slot_of(lo + base + lane, _begins(base + lane)), row]
            x = cute.make_rmem_tensor((VECTOR, 8), Float32)
            for d in cutlass.range_constexpr(8):
                j = cutlass.min(base + d * 4 + lane // 8, splits - 1)
                cute.autovec_copy(_vectors(partial_out[slot_of(lo + j, _begins(j)), row, None])[None, at], x[None, d])
            new = cute.arch.fmax(top, cute.arch.warp_reduction(mine, cute.arch.fmax))
            fade = cute.math.exp2(top - _finite(new), fastmath=True)
            weight = cute.math.exp2(mine - _finite(new), fastmath=True)
            total = total * fade + weight
            for c in cutlass.range_constexpr(VECTOR):
                acc[c] = acc[c] * fade
            for d in cutlass.range_constexpr(8):
                theirs = cute.arch.shuffle_sync(weight, d * 4 + lane // 8)
                for c in cutlass.range_constexpr(VECTOR):
                    acc[c] = acc[c] + theirs * x[c, d]
            top = new
        total = cute.arch.warp_reduction(total, operator.add)
        scale = 1.0 / total if total > 0.0 else Float32(0.0)
        y = cute.make_rmem_tensor(VECTOR, out.element_type)
        for c in cutlass.range_constexpr(VECTOR):
            value = acc[c] + cute.arch.shuffle_sync_bfly(acc[c], offset=8)
            value = value + cute.arch.shuffle_sync_bfly(value, offset=16)
            y[c] = (value * scale).to(out.element_type)
        if lane < 8:
            cute.autovec_copy(y, _vectors(out[row, None])[None, at])
        if item % per_row == 0 and lane == 0:
            _store_lse(lse, row, total, top, lse_scale)
