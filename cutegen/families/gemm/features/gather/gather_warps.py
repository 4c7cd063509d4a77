"""The numbers of warps that copy gathered rows, in exact integers."""

from __future__ import annotations

import math

from cutegen.arch.architecture import ACCESS_BYTES, SETMAXNREG_STEP, WARP_THREADS, WARPS_PER_WARPGROUP
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.problem import GemmProblem
from cutegen.runtime.gemm.pieces import SWIZZLE_ROWS

GATHER_LANES = 8  # threads that copy one row, at most: 128 bytes
GATHER_WARPS = 2  # that copy rows, where as many have nothing else to do
# What a gather thread needs next to the rows that it copies: addresses, loop state, barriers. With less, kernels were
# seen to spill.
BESIDE_ROWS = 32
# Places in a slot that BESIDE_ROWS has room for, and registers of a thread for each further one.
FREE_PLACES, PLACE_REGISTERS = 2, 2
# Of a thread for each row whose scales it copies: the row, where its scales lie, and one more, without which a kernel
# of 8 such rows was seen to spill.
SCALED_ROW_REGISTERS = 4


def gather_warps(problem: GemmProblem, c: Candidate) -> int:
    """Warps of the producer warpgroup that copy gathered rows, the last ones; 0 without a gather."""
    others = 1 + bool(problem.kernel_epilogue.tiles) + c.dynamic
    return min(GATHER_WARPS, WARPS_PER_WARPGROUP - others) if problem.gather else 0


def gather_lanes(problem: GemmProblem, c: Candidate) -> tuple[int, int]:
    """Threads that copy one row of a tile, and the 16 bytes of it that each of them copies."""
    assert problem.gathered
    chunks = c.tile[2] * problem.gathered.dtype.bytes // ACCESS_BYTES
    lanes = math.gcd(GATHER_LANES, chunks)
    return lanes, chunks // lanes


def gather_step(problem: GemmProblem, c: Candidate) -> int:
    """Rows that the gather warps copy at once."""
    return WARP_THREADS * gather_warps(problem, c) // gather_lanes(problem, c)[0]


def gather_places(problem: GemmProblem, c: Candidate) -> int:
    """Swizzled places in a slot from which all others of a gather thread differ by constants, as
    device/gemm/row_gather.py has them."""
    return gather_lanes(problem, c)[1] * max(1, SWIZZLE_ROWS // gather_step(problem, c))


def gathered_rows(problem: GemmProblem, c: Candidate) -> int:
    """Rows of a tile that are gathered."""
    return c.tile["mn".index(problem.gather.along)] if problem.gather else 0


def registers_beside_rows(problem: GemmProblem, c: Candidate) -> int:
    """Registers of a gather thread next to those of its rows."""
    places = PLACE_REGISTERS * max(0, gather_places(problem, c) - FREE_PLACES)
    return BESIDE_ROWS + places + SCALED_ROW_REGISTERS * scaled_rows(problem, c)


def scaled_rows(problem: GemmProblem, c: Candidate) -> int:
    """Rows of a tile whose scales one gather thread copies."""
    if not problem.gathers_row_scale:
        return 0
    return -(-gathered_rows(problem, c) // (WARP_THREADS * gather_warps(problem, c)))


def needed_registers(problem: GemmProblem, c: Candidate) -> int:
    """Registers of a gather thread; 0 without a gather."""
    if problem.gather is None:
        return 0
    needed = gathered_rows(problem, c) // gather_step(problem, c) + registers_beside_rows(problem, c)
    return -(-needed // SETMAXNREG_STEP) * SETMAXNREG_STEP
