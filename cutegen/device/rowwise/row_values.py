"""Rows in registers: loads and stores of vectors, and reductions over the threads of a CTA.

Vector i of a thread is number `first + i * threads` of the row, so that neighbouring threads have neighbouring vectors.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr

from cutegen.device.reduction import IDENTITY, join, join_warp

WARP = 32
JOINED = 1  # the named barrier of an exchange; 0 is the CTA's


@cute.jit
def fetch(
    row: cute.Tensor,
    first: Int32,
    threads: cutlass.Constexpr,
    vectors: cutlass.Constexpr,
    vector: cutlass.Constexpr,
):
    """(vector, vectors) elements of a row as they are stored; past its end, zeros. All loads are on their way at once:
    nothing waits for one of them in between."""
    values = cute.make_rmem_tensor((vector, vectors), row.element_type)
    parts = cute.flat_divide(row, (vector,))
    values.fill(row.element_type(0))
    for i in cutlass.range_constexpr(vectors):
        if first + i * threads < row.shape[0] // vector:
            cute.autovec_copy(parts[None, first + i * threads], values[None, i])
    return values


@cute.jit
def store(values: cute.Tensor, row: cute.Tensor, at: Int32):
    """f32 values to vector `at` of a row, which it has, rounded to its dtype."""
    vector = const_expr(cute.size(values))
    rounded = cute.make_rmem_tensor(vector, row.element_type)
    rounded.store(values.load().to(row.element_type))
    cute.autovec_copy(rounded, cute.flat_divide(row, (vector,))[None, at])


def add(totals, index: int, value, inside, op: str):
    """Joins a value to total `index`, unless it lies past the end of the row."""
    combined = "sum" if op == "mean" else op
    totals[index] = join(combined, totals[index], cutlass.select_(inside, Float32(value), Float32(identity(op))))


def identity(op: str) -> float:
    return IDENTITY["sum" if op == "mean" else op]


def start(ops: tuple):
    """Totals of nothing, one for each reduction."""
    totals = cute.make_rmem_tensor(len(ops), Float32)
    for i in range(len(ops)):
        totals[i] = Float32(identity(ops[i]))
    return totals


def join_block(totals, lanes: int, ops: tuple):
    """What neighbouring threads that have a block have, joined; all of them get it."""
    for i in range(len(ops)):
        for step in range(lanes.bit_length() - 1):
            other = cute.arch.shuffle_sync_bfly(totals[i], 1 << step)
            totals[i] = join("sum" if ops[i] == "mean" else ops[i], totals[i], other)


@cute.jit
def join_threads(
    totals: cute.Tensor,
    smem: cute.Tensor,
    slot: Int32,
    columns: Int32,
    thread: Int32,
    threads: cutlass.Constexpr,
    ops: cutlass.Constexpr,
):
    """What the threads of a CTA have, joined in the order of its warps; all of them get it.

    smem: (reductions, warps, slots). Exchanges in turn use two slots, so that one barrier each is enough: who writes to
    a slot again has passed the barrier of the exchange in between, which all reach after they have read the slot.
    """
    for i in cutlass.range_constexpr(len(ops)):
        totals[i] = join_warp("sum" if ops[i] == "mean" else ops[i], totals[i])
    if const_expr(threads > WARP):
        if thread % WARP == 0:
            for i in cutlass.range_constexpr(len(ops)):
                smem[i, thread // WARP, slot] = totals[i]
        cute.arch.barrier(barrier_id=JOINED, number_of_threads=threads)
        for i in cutlass.range_constexpr(len(ops)):
            total = smem[i, 0, slot]
            for warp in cutlass.range_constexpr(1, threads // WARP):
                total = join("sum" if ops[i] == "mean" else ops[i], total, smem[i, warp, slot])
            totals[i] = total
    for i in cutlass.range_constexpr(len(ops)):
        if const_expr(ops[i] == "mean"):
            totals[i] = totals[i] / Float32(columns)
