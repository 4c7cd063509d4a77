"""The numbers that follow from a problem and a candidate, in exact integers; every other module reads them here."""

from __future__ import annotations

import math

from cutegen.arch.architecture import WARPGROUP_THREADS, Arch
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.orientation import block_passes
from cutegen.families.gemm.problem import GemmProblem, once_each
from cutegen.model.smem import F32
from cutegen.runtime.gemm.pieces import half_rows, piece_rows
from cutegen.runtime.gemm.scale_packing import ROWS

SLAB_ROWS = 16  # of a warp's accumulators in one wave
INDEX_BYTES = 4  # of an i32
EPILOGUE_COLUMNS = (32, 16, 8)  # of an epilogue tile, the widest first
PACKED_COLUMNS = 64  # of one with outputs of 4 bits, so that TMA stores whole sectors of 32 bytes
# Accumulators of a thread beyond which an epilogue that reduces rows, or reduces anything beside tiles of f32, has no
# registers for 32 columns at once: of 70 kernels with reductions and tiles of 128 x 160 and 128 x 192 for one warpgroup
# 14 spilled, up to 260 bytes; with 16 columns 6, up to 44. With three reductions 128 were too many as well.
CROWDED_ACCUMULATORS, CROWDED_BY_THREE = 128, 64
COLUMN_BYTES = 128  # of scales in a column of tensor memory: of 32 lanes, which the others repeat
QUEUE_STAGES = 4  # of tile indices: readers may be that many tiles apart
ANSWER_BYTES = 16  # of cluster launch control
QUEUE_COUNTERS = 2  # the next claim, and the clusters that are done


def warpgroups_per_tile(c: Candidate) -> int:
    """Consumer warpgroups that share one tile; in pingpong each works on a tile of its own."""
    return c.consumers if c.schedule == "cooperative" else 1


def threads(c: Candidate) -> int:
    """Threads of a CTA: the consumers and one producer warpgroup."""
    return WARPGROUP_THREADS * (1 + c.consumers)


def accumulators(problem: GemmProblem, c: Candidate) -> int:
    """Accumulator registers of a consumer thread, those of the part that is being promoted among them."""
    if problem.target.tensor_memory:
        # The sums are in tensor memory: a thread has those of one row of a subtile, in a gated product two for each.
        return epilogue_columns(problem)[0] * (2 if problem.paired else 1)
    return c.tile[0] * c.tile[1] // (WARPGROUP_THREADS * warpgroups_per_tile(c)) + part_registers(problem, c)


def promoted_k(problem: GemmProblem, c: Candidate, arch: Arch) -> int:
    """Products that the tensor core sums before f32 registers take the sum; 0: all of them."""
    return c.promote_every * arch.mma_k(problem.a.dtype) if isinstance(c.promote_every, int) else 0


def part_registers(problem: GemmProblem, c: Candidate) -> int:
    """Registers of a thread for the sum that the tensor core hands to f32 registers next: one wave of 64 rows, not the
    whole tile, because a warpgroup promotes wave after wave; 0 without promotion."""
    return c.tile[1] * problem.target.mma_m // WARPGROUP_THREADS if c.promotes else 0


def sharing_ctas(c: Candidate, side: str) -> tuple[int, str]:
    """CTAs of a cluster that need the same tile of A ("a") or B ("b"), and the dim that they lie along."""
    return (c.cluster[1], "n") if side == "a" else (c.cluster[0] // c.mma_ctas, "m")


def contiguous_extent(problem: GemmProblem, c: Candidate, side: str) -> int:
    """Elements of A ("a") or B ("b") that lie side by side in a tile: of one half, where they are rows that come in
    pairs."""
    rows, columns = output_tile(problem, c)
    operand, extent = (problem.a, rows) if side == "a" else (problem.b, min(columns, c.tile[1] // c.mma_ctas))
    return c.tile[2] if operand.major == "k" else extent


def output_tile(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """Rows and columns that a CTA tile has in the epilogue: those of the tile, or pairs of them."""
    rows, columns, _ = c.tile
    paired = problem.paired_dim
    return rows // 2 if paired == "m" else rows, columns // 2 if paired == "n" else columns


def output_sources(problem: GemmProblem) -> tuple[str, str]:
    """The same as source."""
    rows, columns = (f"t.tile[{i}]{' // 2' * (problem.paired_dim == dim)}" for i, dim in enumerate("mn"))
    return rows, columns


def epilogue_tile(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """Elements (m, n) that one group stores at once: 64 rows a warpgroup, and as many columns as divide the tile's."""
    _, columns = output_tile(problem, c)
    widths = epilogue_widths(problem, c)
    return (problem.target.mma_m * warpgroups_per_tile(c), next((w for w in widths if columns % w == 0), 8))


def epilogue_widths(problem: GemmProblem, c: Candidate) -> tuple[int, ...]:
    """Those of EPILOGUE_COLUMNS that leave an epilogue its registers: see CROWDED_ACCUMULATORS."""
    program = problem.kernel_epilogue
    beside_f32 = bool(program.reductions) and any(o.dtype.bytes == 4 for o in program.tiles)
    limit = CROWDED_ACCUMULATORS if len(program.reductions) < 3 else CROWDED_BY_THREE
    crowded = accumulators(problem, c) > limit and (_reduces_rows(problem) or beside_f32)
    widths = epilogue_columns(problem)
    return widths[1:] if crowded else widths


@once_each
def epilogue_columns(problem: GemmProblem) -> tuple[int, ...]:
    """Columns that epilogue tiles may have, where registers allow."""
    packed = any(o.dtype.packing > 1 for o in problem.kernel_epilogue.outputs)
    return (PACKED_COLUMNS, *EPILOGUE_COLUMNS) if packed else EPILOGUE_COLUMNS


def may_spill(problem: GemmProblem, c: Candidate) -> bool:
    """Whether narrow epilogue tiles are no sure remedy: of 16 kernels that had spilled 7 still did, all of them with
    two reductions or more."""
    several = len(problem.kernel_epilogue.reductions) > 1
    return accumulators(problem, c) > CROWDED_ACCUMULATORS and several and _reduces_rows(problem)


@once_each
def _reduces_rows(problem: GemmProblem) -> bool:
    return any(r.kept != "m" for r in problem.kernel_epilogue.reductions)


def in_subtile(problem: GemmProblem) -> bool:
    """Whether a thread has whole blocks of columns in each epilogue tile: their values take one pass."""
    return problem.target.tensor_memory > 0 and 0 < problem.kernel_epilogue.block <= EPILOGUE_COLUMNS[0]


def subtiles(problem: GemmProblem, c: Candidate) -> int:
    """Epilogue tiles of one group per CTA tile."""
    (rows, columns), (sub_m, sub_n) = output_tile(problem, c), epilogue_tile(problem, c)
    return (rows // sub_m) * (columns // sub_n)


def block_values(problem: GemmProblem, c: Candidate) -> int:
    """Values that a thread fetches of inputs with blocks for one subtile, as device/gemm/block_input.py does: one or
    two rows, and one for each group of columns that share a value."""
    width, total = epilogue_tile(problem, c)[1], 0
    anywhere = problem.groups.along if problem.groups and problem.groups.form == "offsets" else ""
    for o in problem.kernel_epilogue.operands:
        if o.kind == "block_input":
            rows, columns = o.block
            shared = width if o.missing == "n" else 1 if anywhere == "n" else math.gcd(columns, width)
            one_row = o.missing == "m" or (rows % 16 == 0 and anywhere != "m")
            total += (1 if one_row else 2) * (width // shared if shared > 1 else width // 4)
    return total


def repeated_values(problem: GemmProblem, c: Candidate) -> int:
    """Values that a thread computes in both passes over the columns that are reduced at once: a block, or those of a
    transposed tile. The compiler keeps them from the first pass for the second."""
    if not problem.kernel_epilogue.block:
        return 0
    rows, columns = output_tile(problem, c)
    width = columns if problem.transposed else problem.kernel_epilogue.block
    return block_passes(problem).repeated * rows * width // (WARPGROUP_THREADS * warpgroups_per_tile(c))


def cuts(problem: GemmProblem, c: Candidate) -> tuple[bool, bool]:
    """Whether tiles that reach past the last row are loaded in pieces, and whether the last piece may be a half."""
    if problem.ragged is None:
        return False, False
    axis = 0 if problem.ragged is problem.a else 1
    rows, peers = c.tile[axis], (c.multicast_a, c.multicast_b)[axis]
    row_bytes = problem.ragged.dtype.size(c.tile[2])
    piece = piece_rows(rows, row_bytes, peers)
    return piece < rows // peers, half_rows(rows, row_bytes, peers) < piece


def slot_bytes(problem: GemmProblem, c: Candidate) -> int:
    """Bytes of one slot of the ring of A and B, and of their scales."""
    tile_m, tile_n, tile_k = c.tile
    operands = problem.a.dtype.size(tile_m * tile_k) + problem.b.dtype.size(tile_n // c.mma_ctas * tile_k)
    return operands + scale_bytes(problem, c) + sum(packed_bytes(problem, c))


def tma_bytes(problem: GemmProblem, c: Candidate) -> int:
    """Those that TMA writes."""
    rows = ((problem.a, c.tile[0]), (problem.b, c.tile[1] // c.mma_ctas))
    operands = sum(t.dtype.size(extent * c.tile[2]) for t, extent in rows if t in problem.by_tma)
    scales = (0 if problem.gathers_row_scale else scale_bytes(problem, c)) + sum(packed_bytes(problem, c))
    return operands + scales


def scale_box(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """(rows, blocks of k) that have a scale each in one slot of the ring of A and B; (0, 0) without such a scale."""
    if problem.row_scale is None:
        return 0, 0
    scale, side = problem.row_scale
    return c.tile["mn".index(side)], c.tile[2] // scale.depth


def packed_bytes(problem: GemmProblem, c: Candidate) -> tuple[int, ...]:
    """Bytes of scales of A and of B in one slot of the ring of A and B: of the chunks that have its rows, and all
    columns of its tile, which each CTA of a pair has; () without such scales."""
    each = ((s, -(-rows // ROWS) * ROWS) for s, rows in zip(problem.packed_scales, c.tile))
    return tuple(rows * c.tile[2] // s.block * s.dtype.bytes for s, rows in each)


def scale_bytes(problem: GemmProblem, c: Candidate) -> int:
    """Bytes of scales in one slot of the ring of A and B, an f32 each."""
    rows, blocks = scale_box(problem, c)
    return rows * blocks * F32.bytes
