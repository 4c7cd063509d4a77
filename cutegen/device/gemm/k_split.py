"""Split-K: the k tiles of one output tile are shared out to several CTAs, and the partial sums become one.

A work unit is (output tile, part); the parts of a tile are neighbours in the order of units. The CTA of the last part
finishes the tile: it gets the sum of all parts into its accumulators and runs the epilogue. It waits only for units
that come before its own, so that any number of CTAs makes progress as long as all of the grid are on the GPU at once.

How partial sums travel is one function each. They take the accumulators (f32 or i32 in registers), `buffer` (elements
of four bytes in global memory), the tile's counter (zero before, left zero), the tile's number and the group of threads
that holds it.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr
from cutlass._mlir.dialects import llvm

VECTOR = 4  # values of one load, store or addition
FLIGHT = 8  # vectors in flight while parts are added


@dataclass(frozen=True)
class KSplit:
    """k_tiles: of the problem, at least 1. parts: of each output tile."""

    k_tiles: Int32
    parts: Int32

    @cute.jit
    def unit(self, index: Int32) -> tuple[Int32, Int32]:
        """(cluster tile, part) of a work unit."""
        tile = index // self.parts
        return tile, index - tile * self.parts

    @cute.jit
    def k_range(self, part: Int32) -> tuple[Int32, Int32]:
        """First and end k tile of a part; the first ones have a tile more than others where it does not divide."""
        each = self.k_tiles // self.parts
        longer = self.k_tiles - each * self.parts
        begin = part * each + cutlass.min(part, longer)
        return begin, begin + each + (Int32(1) if part < longer else Int32(0))

    @cute.jit
    def steps(self, index: Int32) -> Int32:
        """k tiles of a work unit."""
        _, part = self.unit(index)
        begin, end = self.k_range(part)
        return end - begin

    @cute.jit
    def finishes(self, index: Int32) -> Int32:
        """1 for the work unit that finishes its tile, 0 for others."""
        _, part = self.unit(index)
        return Int32(1) if part == self.parts - 1 else Int32(0)


@cute.jit
def split_evenly(k_tiles: Int32, parts: cutlass.Constexpr) -> KSplit:
    """`parts` parts, fewer where there are fewer k tiles."""
    return KSplit(k_tiles, cutlass.min(k_tiles, Int32(parts)))


@cute.jit
def split_always(k_tiles: Int32, parts: cutlass.Constexpr) -> KSplit:
    """`parts` parts; where there are fewer k tiles, the last ones have one behind the end of k, which TMA fills with
    zeros."""
    return KSplit(cutlass.max(k_tiles, Int32(parts)), Int32(parts))


@cute.jit
def tile_number(tile: Int32, cluster: cutlass.Constexpr) -> Int32:
    """Number of this CTA's output tile, given the cluster's."""
    return tile * (cluster[0] * cluster[1]) + cute.arch.block_idx_in_cluster()


@cute.jit
def sum_ordered_turnstile(acc, buffer, counter, split, parts: cutlass.Constexpr, tile, part, thread, threads, barrier):
    """Part after part adds its values to those of all before: one tile of `buffer`, bitwise repeatable."""
    own = _share(buffer, tile, acc, thread, threads)
    if part > 0:
        if thread == 0:
            _wait(counter, part)
        cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
        _add(acc, own)
    if part < split.parts - 1:
        cute.autovec_copy(_vectors(acc), own)
        _publish(counter, thread, threads, barrier)
    else:
        if thread == 0:
            cute.arch.store(counter, Int32(0))


@cute.jit
def sum_ordered_parallel(acc, buffer, counter, split, parts: cutlass.Constexpr, tile, part, thread, threads, barrier):
    """Every part has a tile of `buffer` of its own; the last one adds them in their order: bitwise repeatable."""
    if part < split.parts - 1:
        cute.autovec_copy(_vectors(acc), _share(buffer, tile * (parts - 1) + part, acc, thread, threads))
        _publish(counter, thread, threads, barrier)
    else:
        _wait_for_all(counter, split, thread, threads, barrier)
        for other in cutlass.range(split.parts - 1, unroll=1):
            _add(acc, _share(buffer, tile * (parts - 1) + other, acc, thread, threads))


@cute.jit
def sum_unordered_atomic(acc, buffer, counter, split, parts: cutlass.Constexpr, tile, part, thread, threads, barrier):
    """Parts add to one tile of `buffer` as they come; the last one takes the sum and leaves zeros. Additions in another
    order round differently: not repeatable."""
    own = _share(buffer, tile, acc, thread, threads)
    if part < split.parts - 1:
        values = _vectors(acc)
        for v in cutlass.range_constexpr(cute.size(values, mode=[1])):
            _add_atomically(own[None, v], values[None, v])
        _publish(counter, thread, threads, barrier)
    else:
        _wait_for_all(counter, split, thread, threads, barrier)
        if split.parts > 1:
            _add(acc, own)
            zeros = cute.make_rmem_tensor(VECTOR, acc.element_type)
            zeros.fill(0)
            for v in cutlass.range_constexpr(cute.size(own, mode=[1])):
                cute.autovec_copy(zeros, own[None, v])


def _vectors(acc):
    """The accumulators of a thread as (4, vectors)."""
    return cute.make_tensor(acc.iterator, cute.make_layout((VECTOR, cute.size(acc) // VECTOR)))


def _share(buffer, slot, acc, thread, threads):
    """This thread's values in tile `slot` of the buffer, (4, vectors); neighbouring threads have neighbouring ones."""
    count = cute.size(acc) // VECTOR
    layout = cute.make_layout(
        (VECTOR, threads, count, 2**31 - 1), stride=(1, VECTOR, VECTOR * threads, VECTOR * threads * count)
    )
    pointer = cute.recast_ptr(buffer.iterator, dtype=acc.element_type)
    return cute.make_tensor(pointer, layout)[None, thread, None, slot]


@cute.jit
def _add(acc, own):
    """acc += own, with several loads in flight."""
    values = _vectors(acc)
    count = const_expr(cute.size(values, mode=[1]))
    for first in cutlass.range_constexpr(0, count, FLIGHT):
        width = const_expr(min(FLIGHT, count - first))
        x = cute.make_rmem_tensor((VECTOR, width), acc.element_type)
        for v in cutlass.range_constexpr(width):
            cute.autovec_copy(own[None, first + v], x[None, v])
        for v in cutlass.range_constexpr(width):
            for i in cutlass.range_constexpr(VECTOR):
                values[i, first + v] = values[i, first + v] + x[i, v]


def _add_atomically(target, values):
    """red.add of four values, without a result: f32 as one vector (PTX ISA 8.1, red.v4.f32), i32 one by one."""
    if values.element_type is not Float32:
        for i in range(VECTOR):
            cute.arch.atomic_add(target.iterator + i, values[i], sem="relaxed", scope="gpu")
        return
    operands = [target.iterator.toint().ir_value(), *(values[i].ir_value() for i in range(VECTOR))]
    text = "red.relaxed.gpu.global.add.v4.f32 [$0], {$1, $2, $3, $4};"
    llvm.inline_asm(None, operands, text, "l,f,f,f,f", has_side_effects=True)


@cute.jit
def _wait(counter, count: Int32):
    """Spins until `count` parts have published. The group passes a barrier before it reads what they wrote."""
    seen = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")
    while seen < count:
        seen = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")


@cute.jit
def _wait_for_all(counter, split, thread, threads, barrier):
    """Until all parts but this one have published; leaves the counter zero."""
    if split.parts > 1:
        if thread == 0:
            _wait(counter, split.parts - 1)
            cute.arch.store(counter, Int32(0))
        cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)


@cute.jit
def _publish(counter, thread, threads, barrier):
    """Tells the parts that wait that all of this group's values are written."""
    cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)
    if thread == 0:
        cute.arch.fence_acq_rel_gpu()
        cute.arch.atomic_add(counter, Int32(1), sem="release", scope="gpu")
