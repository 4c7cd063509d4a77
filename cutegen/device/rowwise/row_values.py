"""Rows in registers: loads and stores of vectors, and reductions over the threads of a CTA.

Vector i of a thread is number `first + i * threads` of the row, so that neighbouring threads have neighbouring vectors.
"""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

from cutegen.device.activation import LOG2_E, exp, round_i8
from cutegen.device.reduction import IDENTITY, join
from cutegen.runtime.epilogue import EXPONENTS
from cutegen.runtime.rowwise.plan import MOST_TURNS, UNLIMITED, WARP

FEW_WARPS = 16  # whose totals every thread loads and joins by itself; a lane has one of those of more
EXP_SUM = "exp_sum"  # of exponentials of differences to the maximum, which is joined right before
JOINED = 1  # the named barrier of an exchange; 0 is the CTA's


def count_shares(rows, at_once: int, ctas_per_sm: int, cluster: int, sm_count):
    """CTAs, or clusters, that take `at_once` of the rows up to MOST_TURNS times, and fewer times where SMs would not
    have two for each that they have room for: they start when there is room, however clusters fit on SMs."""
    room = cutlass.max(sm_count % UNLIMITED * ctas_per_sm // cluster, 1)
    turns = cutlass.min(cutlass.max(rows // (2 * at_once * room), 1), MOST_TURNS)
    return cute.ceil_div(rows, at_once * turns)


def find_end(row, rows, vectors):
    """Where a row ends, in vectors; at once where there are fewer rows."""
    return cutlass.select_(row < rows, Int32(vectors), Int32(0))


def as_rows(tensor: cute.Tensor, like: cute.Tensor, axes: tuple, columns: bool):
    """(rows[, columns]) of a tensor, which are numbered as those of `like`, the last dim first. axes: where each of
    these dims, the last first, is in the tensor; its values are the same along those where it is None."""
    extents = tuple(like.shape[len(axes) - 1 - i] for i in range(len(axes)))
    strides = tuple(0 if axis is None else tensor.stride[axis] for axis in axes)
    last = len(tensor.shape) - 1
    shape = (extents, tensor.shape[last]) if columns else (extents,)
    stride = (strides, tensor.stride[last]) if columns else (strides,)
    return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=stride))


@cute.jit
def fetch(
    row: cute.Tensor,
    first: Int32,
    end: Int32,
    threads: cutlass.Constexpr,
    vectors: cutlass.Constexpr,
    vector: cutlass.Constexpr,
):
    """(vector, vectors) elements of a row as they are stored, from its vector `first` on; zeros from vector `end` on.
    All loads are on their way at once: nothing waits for one of them in between."""
    values = cute.make_rmem_tensor((vector, vectors), row.element_type)
    parts = cute.flat_divide(row, (vector,))
    values.fill(row.element_type(0))
    for i in cutlass.range_constexpr(vectors):
        if first + i * threads < end:
            cute.autovec_copy(parts[None, first + i * threads], values[None, i])
    return values


def ask_for(row: cute.Tensor):
    """Has L2 load a row, whose bytes are a multiple of 16, as its address is; nothing waits for it. One thread does."""
    size = Int32(cute.size(row) * row.element_type.width // 8)
    operands = [row.iterator.toint().ir_value(), size.ir_value()]
    llvm.inline_asm(None, operands, "cp.async.bulk.prefetch.L2.global [$0], $1;", "l,r", has_side_effects=True)


def fetch_pairs(row, first, end, threads: int, vectors: int, vector: int):
    """(vector, vectors) of even elements, and of odd ones, of twice as many that are fetched."""
    both = fetch(row, first, end, threads, vectors, 2 * vector)
    parts = [cute.make_rmem_tensor((vector, vectors), row.element_type) for _ in range(2)]
    for i in range(vectors):
        for j in range(2 * vector):
            parts[j % 2][j // 2, i] = both[j, i]
    return parts[0], parts[1]


@cute.jit
def fetch_value(values: cute.Tensor, row: Int32, end: Int32):
    """(1) what has one value for a row, in f32; 0 where the row has no end."""
    value = cute.make_rmem_tensor(1, Float32)
    value[0] = Float32(0.0)
    if end > 0:
        value[0] = values[row].to(Float32)
    return value


def read(held: cute.Tensor, index: int):
    """Vector `index` of what a thread holds, in f32. It is converted here, wherever else it is read: what is held takes
    no more registers than it was loaded to."""
    own = held[None, index]
    if cute.size(own) * held.element_type.width % 32:
        return own.load().to(Float32)
    copy = cute.make_rmem_tensor(cute.size(own), held.element_type)
    words, copied = (cute.recast_tensor(values, Int32) for values in (own, copy))
    for i in range(cute.size(words)):
        copied[i] = _here(words[i])
    return copy.load().to(Float32)


def indices(at, vector: int):
    """Places of the elements of vector `at` in the row, in f32. They are computed here, too."""
    first = Float32(_here(at * vector))
    return [first + Float32(i) for i in range(vector)]


def has_place(at, vector: int, place, inside):
    """Whether vector `at` of the row, if that is inside of it, has the element whose place is an f32."""
    first = Float32(at * vector)
    return inside & (place >= first) & (place < first + Float32(vector))


def _here(word):
    """An integer of which the compiler does not know that it was there before."""
    operands = [Int32(word).ir_value()]
    return Int32(llvm.inline_asm(T.i32(), operands, "mov.b32 $0, $1;", "=r,r", has_side_effects=True))


@cute.jit
def store(values: cute.Tensor, row: cute.Tensor, at: Int32):
    """f32 values to vector `at` of a row, which it has, rounded to its dtype."""
    vector = const_expr(cute.size(values))
    rounded = cute.make_rmem_tensor(vector, row.element_type)
    if const_expr(row.element_type is cutlass.Int8):
        for i in cutlass.range_constexpr(vector):
            rounded[i] = round_i8(values[i]).to(cutlass.Int8)
    else:
        rounded.store(values.load().to(row.element_type))
    cute.autovec_copy(rounded, cute.flat_divide(row, (vector,))[None, at])


@cute.jit
def store_exponent(values: cute.Tensor, row: Int32, value: Float32, block: Int32 | None = None, last: Int32 = 0):
    """The exponent of a power of two that a row has, or a block of it, as UE8M0 has it: a byte of a tensor of these, or
    one of four in an i32, those behind block `last` being 0."""
    code = (Int32(llvm.bitcast(T.i32(), Float32(value).ir_value())) >> 23).to(cutlass.Uint8)
    if const_expr(block is None):
        _store_byte(values, (row,), 0, code)
    elif const_expr(values.element_type is not Int32):
        _store_byte(values, (row, block), 0, code)
    else:
        word, place = block // EXPONENTS, block % EXPONENTS
        _store_byte(values, (row, word), place, code)
        if block == last:
            for behind in cutlass.range(place + 1, EXPONENTS, unroll=1):
                _store_byte(values, (row, word), behind, cutlass.Uint8(0))


def _store_byte(values, at: tuple, place, code):
    """To byte `place` of the element that is there."""
    own = cute.recast_ptr(cute.domain_offset(at, values).iterator, dtype=cutlass.Uint8)
    cute.make_tensor(own + place, cute.make_layout(1))[0] = code


def store_pairs(even: cute.Tensor, odd: cute.Tensor, row: cute.Tensor, at):
    """f32 values in turn to vector `at` of a row, which has twice as many elements as each of them."""
    both = cute.make_rmem_tensor(2 * cute.size(even), Float32)
    for j in range(cute.size(even)):
        both[2 * j], both[2 * j + 1] = even[j], odd[j]
    store(both, row, at)


def start(ops: tuple):
    """Totals of nothing, one for each reduction."""
    totals = cute.make_rmem_tensor(len(ops), Float32)
    for i in range(len(ops)):
        totals[i] = Float32(_identity(ops[i]))
    return totals


def add(totals, values, inside, ops: tuple):
    """Joins what the elements of a vector contribute, unless it lies past the end of the row. values: of each element
    that of the reduction, or a tuple of several."""
    each = [v if isinstance(v, tuple) else (v,) for v in values]
    for i, op in enumerate(ops):
        if op == EXP_SUM:
            continue
        own, before = each[0][i], totals[i]
        for v in each[1:]:
            own = join(_joined(op), own, v[i])
        totals[i] = join(_joined(op), totals[i], cutlass.select_(inside, Float32(own), Float32(_identity(op))))
        if ops[i + 1 : i + 2] == (EXP_SUM,):
            shift = _finite(totals[i])
            scaled = shift * LOG2_E  # x log2(e) - scaled is one instruction
            own = sum((_exp_2(v[i] * LOG2_E - scaled) for v in each[1:]), _exp_2(each[0][i] * LOG2_E - scaled))
            totals[i + 1] = totals[i + 1] * exp(before - shift) + cutlass.select_(inside, own, Float32(0.0))


def _exp_2(x):
    return cute.math.exp2(x, fastmath=True)


def _finite(top):
    """What exponentials are relative to: where there is nothing but -inf so far, 0."""
    return cutlass.select_(top == Float32(-math.inf), Float32(0.0), top)


def _joined(op: str) -> str:
    """A mean is a sum until all of it is joined."""
    return "sum" if op in ("mean", EXP_SUM) else op


def _identity(op: str) -> float:
    return 0.0 if op == EXP_SUM else IDENTITY[_joined(op)]


def join_lanes(totals, lanes: int, ops: tuple):
    """What so many neighbouring threads of a warp have, joined; all of them get it. Sums of exponentials are made
    relative to the maximum of all of them first."""
    for i in range(len(ops)):
        before = totals[i]
        if ops[i] != EXP_SUM:
            totals[i] = _join_lanes(_joined(ops[i]), before, lanes)
        if ops[i + 1 : i + 2] == (EXP_SUM,):
            own = totals[i + 1] * exp(before - _finite(totals[i]))
            totals[i + 1] = _join_lanes("sum", own, lanes)


def _join_lanes(op: str, value, lanes: int):
    for step in range(lanes.bit_length() - 1):
        value = join(op, value, cute.arch.shuffle_sync_bfly(value, 1 << step))
    return value


def _join_pairs(op: str, values: list):
    """All of a list, neighbours first: as few steps as can be, one behind the other."""
    while len(values) > 1:
        values = [join(op, *values[i : i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    return values[0]


@cute.jit
def join_threads(
    totals: cute.Tensor,
    smem: cute.Tensor,
    slot: Int32,
    inverse: Float32,
    thread: Int32,
    threads: cutlass.Constexpr,
    ops: cutlass.Constexpr,
):
    """What the threads of a row have, joined in the order of its warps; all of them get it. Those of several warps
    are all that the CTA has.

    smem: (reductions, warps, slots). Exchanges in turn use two slots, so that one barrier each is enough: who writes to
    a slot again has passed the barrier of the exchange in between, which all reach after they have read the slot.
    inverse: 1 / the elements of a row, for means.
    """
    _join_cta(totals, smem, slot, thread, threads, ops)
    _finish(totals, inverse, ops)


@cute.jit
def join_cluster(
    totals: cute.Tensor,
    smem: cute.Tensor,
    peers: cute.Tensor,
    slot: Int32,
    inverse: Float32,
    thread: Int32,
    threads: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    ops: cutlass.Constexpr,
):
    """As `join_threads`, of a row that `cluster` CTAs of so many threads share, `thread` being one of all of these:
    then each CTA gives the others what it has, which is joined in order of the CTAs. peers: (reductions, cluster,
    slots)."""
    member = thread % threads
    _join_cta(totals, smem, slot, member, threads, ops)
    if const_expr(cluster > 1):
        if member < cluster:
            for i in cutlass.range_constexpr(len(ops)):
                own = cute.domain_offset((i, thread // threads, slot), peers)
                _give(own.iterator.toint(), member, totals[i])
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        _join_members(totals, peers, slot, thread % WARP, cluster, ops)
    _finish(totals, inverse, ops)


@cute.jit
def enter_cluster(cluster: cutlass.Constexpr):
    """Lets the other CTAs of the cluster know that this one's shared memory is there."""
    if const_expr(cluster > 1):
        cute.arch.cluster_arrive_relaxed()


@cute.jit
def await_cluster(cluster: cutlass.Constexpr):
    """Until all CTAs of the cluster have entered."""
    if const_expr(cluster > 1):
        cute.arch.cluster_wait()


def _give(address, rank, value):
    """Stores an f32 in the shared memory of the cluster's CTA `rank`, where `address` is in this CTA's."""
    operands = [Int32(address).ir_value(), rank.ir_value(), Float32(value).ir_value()]
    text = "{ .reg .b32 a; mapa.shared::cluster.u32 a, $0, $1; st.shared::cluster.f32 [a], $2; }"
    llvm.inline_asm(None, operands, text, "r,r,f", has_side_effects=True)


@cute.jit
def _join_cta(totals, smem, slot: Int32, thread: Int32, threads: cutlass.Constexpr, ops: cutlass.Constexpr):
    join_lanes(totals, min(threads, WARP), ops)
    if const_expr(threads > WARP):
        if thread % WARP == 0:
            for i in cutlass.range_constexpr(len(ops)):
                smem[i, thread // WARP, slot] = totals[i]
        cute.arch.barrier(barrier_id=JOINED, number_of_threads=threads)
        _join_members(totals, smem, slot, thread % WARP, const_expr(threads // WARP), ops)


def _join_members(totals, smem, slot, lane, members: int, ops: tuple):
    """What so many warps, or CTAs, have written to a slot, joined in an order of theirs: by every thread of a few, and
    by lanes of more, or of sums of exponentials, as each takes an exponential."""
    if members <= FEW_WARPS and EXP_SUM not in ops:
        for i in range(len(ops)):
            totals[i] = _join_pairs(_joined(ops[i]), [smem[i, member, slot] for member in range(members)])
        return
    lanes = 1 << (members - 1).bit_length()
    member = lane % lanes
    for i in range(len(ops)):
        own = smem[i, cutlass.min(member, members - 1), slot]
        totals[i] = cutlass.select_(member < members, own, Float32(_identity(ops[i])))
    join_lanes(totals, lanes, ops)


@cute.jit
def _finish(totals, inverse: Float32, ops: cutlass.Constexpr):
    for i in cutlass.range_constexpr(len(ops)):
        if const_expr(ops[i] == "mean"):
            totals[i] = totals[i] * inverse
        if const_expr(ops[i] == EXP_SUM):  # as if -inf was subtracted from each
            totals[i] = cutlass.select_(totals[i - 1] == Float32(-math.inf), Float32(math.nan), totals[i])
