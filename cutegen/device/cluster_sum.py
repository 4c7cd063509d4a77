"""Split-K within a cluster: its CTAs have a part each of one output tile's k, and hand partial sums to one another
through distributed shared memory. Each finishes a share of the subtiles, so the epilogue is shared out as well.

Subtile s belongs to CTA s % parts of the cluster. A CTA stores its sums of all other subtiles into the shared memory of
those who have them, asynchronously (`st.async`): their barrier counts the bytes, and nobody fences for that. It adds
what it was given in the order of the parts: equal inputs give equal bits.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

VECTOR = 4  # values of one store
GIVEN, TAKEN = 0, 1  # barriers: what the others give is there; what this CTA gave was read


@dataclass(frozen=True)
class ClusterSum:
    """Where a CTA is given sums. barriers: two, in shared memory. given: in shared memory, (4, threads, vectors of a
    subtile, parts - 1, sums of an element, subtiles of a share), see `elements`. parts: CTAs of the cluster. threads:
    that hold a tile. subtiles: of a tile."""

    barriers: cute.Pointer
    given: cute.Pointer
    parts: cutlass.Constexpr[int]
    threads: cutlass.Constexpr[int]
    subtiles: cutlass.Constexpr[int]

    def init(self):
        """By one thread, before the cluster meets. One thread announces the bytes that come; each warp that has read
        what this CTA gave it arrives once."""
        takers = cutlass.max(self.takers(cute.arch.block_idx_in_cluster()), 1)  # 0 is no count of a barrier
        cute.arch.mbarrier_init(self.barriers + GIVEN, 1)
        cute.arch.mbarrier_init(self.barriers + TAKEN, takers * (self.threads // 32))

    def shares(self, part):
        """Subtiles that part `part` finishes."""
        return self.subtiles // self.parts + Int32(part < self.subtiles % self.parts)

    def takers(self, part):
        """Other CTAs of the cluster that finish subtiles."""
        owners = min(self.parts, self.subtiles)
        return owners - Int32(part < owners)


def elements(epilogue_tile: tuple[int, int], subtiles: int, parts: int, sums: int = 1) -> int:
    """Values that a CTA may be given. sums: that make an element of the output."""
    return -(-subtiles // parts) * (parts - 1) * sums * epilogue_tile[0] * epilogue_tile[1]


@cute.jit
def exchange(o: ClusterSum, acc, subtiles: cutlass.Constexpr, values: cutlass.Constexpr, thread, turn: Int32, more):
    """Adds to the accumulators of this CTA's subtiles what the other parts have of them; the others keep no meaning.

    acc: f32 or i32, of a thread. subtiles: of each, where its accumulators begin, in one place or, of pairs, in two;
    values: how many there are from there on. turn: exchanges before this one. more: whether another follows.
    """
    part = cute.arch.block_idx_in_cluster()
    sums = const_expr(len(subtiles[0]))
    begin(o, part, sums * values, thread, turn)
    for s in cutlass.range_constexpr(len(subtiles)):
        if part != const_expr(s % o.parts):
            for i in cutlass.range_constexpr(sums):
                give(o, part, s, (i, sums), acc, subtiles[s][i], values, thread)
    await_others(o, part, turn)
    for s in cutlass.range_constexpr(len(subtiles)):
        if part == const_expr(s % o.parts):
            for i in cutlass.range_constexpr(sums):
                add(o, s, (i, sums), acc, subtiles[s][i], values, thread)
    end(o, part, thread, more)


@cute.jit
def begin(o: ClusterSum, part, values: cutlass.Constexpr, thread, turn: Int32):
    """Before sums are given: until the others have taken those of the turn before. values: of a thread and subtile."""
    # Who is given nothing may not wait for it either: its warps could pass several phases of that before one of them,
    # which sees only whether their number is odd, looks.
    shares = o.shares(part)
    if thread == 0 and shares > 0:
        bytes_of_subtile = const_expr((o.parts - 1) * o.threads * values * 4)
        cute.arch.mbarrier_arrive_and_expect_tx(o.barriers + GIVEN, shares * bytes_of_subtile)
    if turn > 0 and o.takers(part) > 0:
        await_turn(o.barriers + TAKEN, turn - 1)


@cute.jit
def give(
    o: ClusterSum,
    part,
    s: cutlass.Constexpr,
    sum_of: cutlass.Constexpr,
    acc,
    first: cutlass.Constexpr,
    values: cutlass.Constexpr,
    thread,
):
    """To the CTA that finishes subtile `s`: `values` of this thread, from acc[first] on. sum_of: (i, sums), which of an
    element's sums they are."""
    owner = const_expr(s % o.parts)
    place = part - (Int32(1) if part > owner else Int32(0))
    barrier = _map((o.barriers + GIVEN).toint(), Int32(owner))
    own = _place(o, s, sum_of, place, values) + thread * VECTOR
    there = _map(o.given.toint() + own * 4, Int32(owner))
    for v in cutlass.range_constexpr(values // VECTOR):
        at = const_expr(first + v * VECTOR)
        _give(there + v * (o.threads * VECTOR * 4), [acc[at + x] for x in range(VECTOR)], barrier)


@cute.jit
def await_others(o: ClusterSum, part, turn: Int32):
    """Until this CTA has what the others give it."""
    if o.shares(part) > 0:
        await_turn(o.barriers + GIVEN, turn)


@cute.jit
def add(
    o: ClusterSum,
    s: cutlass.Constexpr,
    sum_of: cutlass.Constexpr,
    acc,
    first: cutlass.Constexpr,
    values: cutlass.Constexpr,
    thread,
):
    """What the others gave of subtile `s`, see `give`."""
    vectors = const_expr(values // VECTOR)
    layout = cute.make_layout((VECTOR, o.threads, vectors), stride=(1, VECTOR, VECTOR * o.threads))
    for place in cutlass.range_constexpr(o.parts - 1):
        pointer = o.given + _place(o, s, sum_of, place, values)
        given = cute.make_tensor(cute.recast_ptr(pointer, dtype=acc.element_type), layout)
        x = cute.make_rmem_tensor((VECTOR, vectors), acc.element_type)
        for v in cutlass.range_constexpr(vectors):
            cute.autovec_copy(given[None, thread, v], x[None, v])
        for v in cutlass.range_constexpr(values):
            acc[first + v] = acc[first + v] + x[v]


@cute.jit
def end(o: ClusterSum, part, thread, more):
    """When this CTA has added what it was given. more: whether another turn follows."""
    if more and o.shares(part) > 0:
        _tell_others(o.barriers + TAKEN, part, o.parts, thread % 32)


def _place(o, subtile, sum_of, place, values):
    """Where the sums of a subtile lie, those of each element that `sum_of` says, which a part gives: `place` counts the
    other parts."""
    i, sums = sum_of
    return ((subtile // o.parts * sums + i) * (o.parts - 1) + place) * (o.threads * values)


@cute.jit
def _tell_others(barrier, part, parts: cutlass.Constexpr, lane):
    """This warp arrives at a barrier of each of the other CTAs, after all that its threads read before. One fence is
    for all arrivals: each that released would be a MEMBAR of its own."""
    cute.arch.sync_warp()
    if lane == 0:
        cute.arch.fence_acq_rel_cluster()
        for other in cutlass.range_constexpr(parts):
            if part != other:
                _arrive(_map(barrier.toint(), Int32(other)))


@cute.jit
def await_turn(barrier, turn: Int32):
    """Until the barrier has completed as many phases as there were turns, and this one's; acquires what CTAs of the
    cluster released."""
    there = _has_completed(barrier.toint(), turn % 2)
    while there == 0:
        there = _has_completed(barrier.toint(), turn % 2)


def _map(address, rank):
    """The address in the shared memory of the cluster's CTA `rank` of what is at `address` in this CTA's."""
    operands = [Int32(address).ir_value(), rank.ir_value()]
    return Int32(llvm.inline_asm(T.i32(), operands, "mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r"))


def _give(address, values, barrier):
    """Stores four values of 32 bits at an address of the cluster's shared memory, and counts their bytes at a barrier
    there once they are visible. The DSL's `store_async_dsmem` has stored one value at a time before 4.8."""
    kind = "f" if values[0].dtype is cutlass.Float32 else "r"
    store = "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4"
    text = f"{store}.{'f32' if kind == 'f' else 'b32'} [$0], {{$1, $2, $3, $4}}, [$5];"
    operands = [address.ir_value(), *(value.ir_value() for value in values), barrier.ir_value()]
    llvm.inline_asm(None, operands, text, ",".join(["r", *[kind] * VECTOR, "r"]), has_side_effects=True)


def _arrive(address):
    """At a barrier of another CTA; a fence before it releases."""
    text = "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [$0];"
    llvm.inline_asm(None, [address.ir_value()], text, "r", has_side_effects=True)


def _has_completed(address, parity):
    """1 when the phase of that parity has completed, acquiring at the scope of the cluster, else 0."""
    text = (
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [$1], $2; selp.b32 $0, 1, 0, p; }"
    )
    operands = [Int32(address).ir_value(), parity.ir_value()]
    return Int32(llvm.inline_asm(T.i32(), operands, text, "=r,r,r", has_side_effects=True))
