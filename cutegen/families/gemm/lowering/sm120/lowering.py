"""The lowering of sm_120a: warps, rings and sums are those of sm_90a, products those of single warps."""

from __future__ import annotations

from cutegen.arch.architecture import WARP_THREADS
from cutegen.families.code_plan import MmaPlan
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import SLAB_ROWS, warpgroups_per_tile
from cutegen.families.gemm.lowering.lowering import NVGPU, Cores
from cutegen.families.gemm.lowering.sm90.lowering import Sm90
from cutegen.families.gemm.lowering.sm120.cores import CLUSTERS, CORES, PROMOTED_CORES, SCALED_CORES
from cutegen.families.gemm.problem import GemmProblem

BLOCKS = 2  # of k, that a warp has in registers: one is multiplied while the next is read
CODE_TILES = 2  # k tiles that the code has: the last one reads no next one
MMA_COLUMNS = 8
SCALE_WORDS = 1 + 4  # of a thread, for a chunk of scales of A and one of B
REGISTER_BYTES = 4


class Sm120(Sm90):
    trigger_gain = ""
    clusters = CLUSTERS

    def list_cores(self, problem: GemmProblem) -> Cores:
        if problem.promotable:
            return PROMOTED_CORES
        return SCALED_CORES if problem.packed_scales else CORES

    def list_modules(self, problem: GemmProblem) -> tuple[str, ...]:
        return ("accumulator", "warp_products", *["warp_scales"] * bool(problem.packed_scales))

    def import_mma(self, problem: GemmProblem) -> dict[str, tuple[str, ...]]:
        return {NVGPU: ("cpasync",)}

    def operand_registers(self, problem: GemmProblem, c: Candidate) -> int:
        rows = _waves(problem, c) * SLAB_ROWS + c.tile[1]
        blocks = c.promote_every if isinstance(c.promote_every, int) else BLOCKS  # those of a part are read at once
        operands = blocks * rows * problem.target.mma_k_bytes // (WARP_THREADS * REGISTER_BYTES)
        return operands + (BLOCKS * SCALE_WORDS if problem.packed_scales else 0)

    def count_matrix_loads(self, problem: GemmProblem, c: Candidate) -> int:
        tiles = 1 if c.promotes else CODE_TILES
        return tiles * _blocks(problem, c) * (_waves(problem, c) + c.tile[1] // SLAB_ROWS)

    def plan_mma(self, problem: GemmProblem, c: Candidate) -> MmaPlan:
        return MmaPlan(problem.mma.sass, _waves(problem, c) * (c.tile[1] // MMA_COLUMNS) * _blocks(problem, c))


def _blocks(problem: GemmProblem, c: Candidate) -> int:
    """Of k, in a k tile."""
    return c.tile[2] // problem.target.mma_k(problem.a.dtype)


def _waves(problem: GemmProblem, c: Candidate) -> int:
    """Times 16 rows that a warp has."""
    return c.tile[0] // (problem.target.mma_m * warpgroups_per_tile(c))


LOWERING = Sm120()
