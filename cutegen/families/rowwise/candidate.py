"""The knobs of a row kernel, and what a thread holds with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutegen.arch.architecture import SM_THREADS, WARP_THREADS
from cutegen.epilogue import Operand
from cutegen.families.rowwise.problem import RowProblem
from cutegen.families.tensor_problem import VECTOR_BYTES
from cutegen.runtime.arguments import TensorArg

SM_CTAS, SM_PARTS = 32, 4  # parts of an SM have registers, and whole warps, of their own
LEAST_THREADS = 8  # of a row
HELD_BYTES = 32  # of a tensor's row that a thread has, where a CTA can be as wide: two loads on their way
FEW_HELD = 4  # vectors of a thread that the compiler computes one after the other where it has no room for more
FEW_VECTORS, STREAMED_VECTORS = 1, 2  # of a part of a row: where the threads of the GPU have one each, and elsewhere
LONE_THREADS, PART_THREADS = 512, 256  # of a row in one CTA, and in each of a cluster, where longer rows have one
MOST_CLUSTER = 8  # CTAs
CTA_THREADS = 128  # of rows or parts that take fewer and exchange nothing by shared memory: a CTA has several of them
LONG_THREADS = MOST_CTA_THREADS = 1024  # of a row that is not held, where others are, or where nothing else is decided
OWN_REGISTERS, ROUND_REGISTERS = 22, 4  # of a thread, for indices and totals, and for each further round
LEAST_ROUND_REGISTERS = 2  # that a further round takes more where vectors are computed one after the other
SPARE_REGISTERS = 4  # for each vector that a thread of whole warps has fewer than FEW_HELD, of several rounds
FEW_WARPS = 8  # of a row: totals of more take registers that reductions over rows need
MOST_REGISTERS, REGISTER_FILE, REGISTER_STEP = 255, 65536, 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """Every knob with a value. threads: of the longest rows that are held; more than a CTA has: in a cluster of CTAs.
    bounds: extents up to which rows have a kernel of their own, ascending; longer ones are not held. Empty where rows
    are not reduced."""

    threads: int
    bounds: tuple[int, ...]
    prefetch: bool
    pdl_wait: bool
    pdl_trigger: str


@dataclass(frozen=True, slots=True)
class RowShare:
    """How one kernel of a candidate shares out rows: `threads` for each, of which a CTA has `rows`, or in each of
    `cluster` CTAs; `vectors` of each tensor a thread. prefetch: those of the next row as well."""

    threads: int
    rows: int
    vectors: int
    prefetch: bool
    cluster: int = 1


def least_vectors(problem: RowProblem) -> int:
    """Vectors of each tensor that a thread has, where a row has enough of them."""
    widest = max(o.dtype.bytes for o in problem.operands("tile", "row_vector"))
    return max(1, HELD_BYTES // (problem.step * widest))


def count_vectors(problem: RowProblem, c: Candidate) -> int:
    """Vectors of each tensor that a thread has at once, of the longest row that is held."""
    return -(-c.bounds[-1] // (c.threads * problem.step)) if c.bounds else STREAMED_VECTORS


def is_streamed(problem: RowProblem, c: Candidate) -> bool:
    """Whether some rows are longer than what is held: they are loaded again in each round."""
    return problem.held and (not c.bounds or c.bounds[-1] != problem.most_columns)


def least_threads(problem: RowProblem) -> int:
    """Of a row: threads next to each other have a block."""
    return max(LEAST_THREADS, problem.program.block // problem.vector)


def fit_threads(problem: RowProblem, vectors: int) -> int:
    """The fewest threads that a row can have, for so many vectors: part of a warp or whole warps."""
    if vectors > WARP_THREADS:
        return -(-vectors // WARP_THREADS) * WARP_THREADS
    return max(least_threads(problem), 1 << (vectors - 1).bit_length())


def find_instance(problem: RowProblem, c: Candidate, columns: int | None = None, vectors: int = 0) -> RowShare:
    """columns: bound of the rows; by default those of the longest. vectors: of a thread, where rows are not held."""
    vectors = vectors or count_vectors(problem, c)
    threads, lone = c.threads, PART_THREADS if problem.read_once else LONE_THREADS
    if columns is not None:
        loads = -(-columns // problem.step)
        most = lone if has_clusters(c) else threads
        vectors = min(vectors, max(least_vectors(problem), -(-loads // most)))
        threads = min(threads, fit_threads(problem, -(-loads // vectors)))
    if has_clusters(c) and threads > lone:
        cluster = next(n for n in (2, 4, MOST_CLUSTER) if n == MOST_CLUSTER or threads <= n * PART_THREADS)
        return RowShare(-(-threads // (WARP_THREADS * cluster)) * WARP_THREADS, 1, vectors, c.prefetch, cluster)
    alone = threads <= WARP_THREADS or not problem.held
    return RowShare(threads, max(1, CTA_THREADS // threads) if alone else 1, vectors, c.prefetch)


def has_clusters(c: Candidate) -> bool:
    """Whether the longest rows that are held have a cluster of CTAs each."""
    return c.threads > MOST_CTA_THREADS


def early_columns(problem: RowProblem, c: Candidate) -> tuple[Operand, ...]:
    """Values of columns that are loaded before the kernel waits for the one in front: once, where rows are held."""
    early = c.bounds and c.pdl_wait
    vectors = problem.operands("row_vector")
    return tuple(o for o in vectors if early and (o.part_of or o).name in problem.ready)


def asked_for(problem: RowProblem, c: Candidate) -> tuple[Operand, ...]:
    """What L2 is asked to load of the next row that is held, where a CTA has several and no registers for it: of whole
    copies of 16 bytes."""
    if c.prefetch or not problem.program.reductions:
        return ()
    tiles = problem.operands("tile")
    return tuple(o for o in tiles if not o.part_of and problem.vector * o.dtype.bytes % VECTOR_BYTES == 0)


def find_streamed(problem: RowProblem, c: Candidate) -> RowShare:
    """Of rows that are not held. Many threads have each, so that those that an SM has at once stay in L2 from round to
    round; where there is one round alone, a cluster of CTAs, of which an SM has several."""
    if has_clusters(c) and problem.read_once:
        return RowShare(c.threads // MOST_CLUSTER, 1, 2 * STREAMED_VECTORS, False, MOST_CLUSTER)
    threads = LONG_THREADS if c.bounds else c.threads
    share = RowShare(threads, max(1, CTA_THREADS // threads) if threads <= WARP_THREADS else 1, STREAMED_VECTORS, False)
    while c.bounds and count_registers(problem, share) > most_registers(share):
        share = replace(share, threads=share.threads // 2)
    return share


def row_bytes(problem: RowProblem, i: RowShare) -> int:
    """Bytes of elements that a thread loads of its row, or of its part."""
    return i.vectors * problem.vector * sum(o.dtype.bytes for o in problem.operands("tile"))


def count_registers(problem: RowProblem, i: RowShare) -> int:
    """Of a thread: its own, what it holds of a row, and of the next one, as it is loaded, an f32 for each element
    of all vectors but one, which the compiler computes at once; for what it joins of columns over rows an f32 of each,
    and one of what other vectors add to it."""
    held = sum(
        i.vectors * -(-problem.vector * o.dtype.bytes // 4) * (1 + (i.prefetch and o.kind == "tile"))
        for o in problem.operands("tile", "row_vector")
    )
    tensors = sum(isinstance(a, TensorArg) for a in (*problem.inputs, *problem.outputs))
    own = OWN_REGISTERS + tensors + ROUND_REGISTERS * (_further_rounds(problem) + problem.read_once)
    over_rows = len(problem.program.reductions) * problem.vector * (2 * i.vectors - 1)
    over_rows += max(0, i.threads // WARP_THREADS - FEW_WARPS) if over_rows else 0
    return own + problem.vector * max(1, i.vectors - 1) + held + over_rows


def least_registers(problem: RowProblem, i: RowShare) -> int:
    """Of a thread that computes up to FEW_HELD vectors one after the other. The kernels that are shipped do not spill
    with as many."""
    at_once = problem.vector * max(1, min(i.vectors, FEW_HELD) - 1)
    least = count_registers(problem, i) - at_once
    several = _further_rounds(problem) or problem.read_once or problem.program.block
    if several and i.threads > WARP_THREADS:
        least -= SPARE_REGISTERS * max(0, FEW_HELD - max(2, i.vectors * (1 + problem.halved)))
    return least + LEAST_ROUND_REGISTERS * _further_rounds(problem)


def _further_rounds(problem: RowProblem) -> int:
    return max(0, sum(bool(r.reduced) for r in problem.held_cut.rounds) - 1)


def most_registers(i: RowShare) -> int:
    return min(MOST_REGISTERS, REGISTER_FILE // (i.threads * i.rows))


def most_ctas(i: RowShare, registers: int) -> int:
    """CTAs that an SM has room for, with so many registers a thread: each of its parts has those of its own warps."""
    registers = -(-registers // REGISTER_STEP) * REGISTER_STEP
    warps = -(-i.threads * i.rows // WARP_THREADS)
    room = REGISTER_FILE // (SM_PARTS * WARP_THREADS * registers) * SM_PARTS
    return max(1, min(SM_CTAS, SM_THREADS // (WARP_THREADS * warps), room // warps))


def count_ctas(problem: RowProblem, i: RowShare) -> int:
    """CTAs that an SM has room for; the compiler is held to the registers that they leave each other. Where rows are
    held, more of them are on their way to an SM with the fewest registers."""
    held = problem.held and not problem.program.reductions
    return most_ctas(i, least_registers(problem, i) if held else count_registers(problem, i))


def bytes_in_flight(problem: RowProblem, i: RowShare) -> int:
    """Of an SM, when all of its threads wait for a row."""
    return count_ctas(problem, i) * i.threads * i.rows * row_bytes(problem, i)
