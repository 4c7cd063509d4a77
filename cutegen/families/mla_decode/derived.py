"""The numbers that follow from a problem and a candidate, in exact integers; every other module reads them here."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch.architecture import (
    MBARRIER_BYTES,
    TENSOR_ALIGN,
    WARP_THREADS,
    WARPGROUP_THREADS,
    WARPS_PER_WARPGROUP,
)
from cutegen.families.mla_decode.candidate import Candidate
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.resolved import FreeGroup, NamedBarrier
from cutegen.families.resolved import SmemRegion, lay_out_struct
from cutegen.runtime.mla import KEY_BLOCK, ROW_BLOCK

CONSUMERS = 2  # warpgroups; w takes block 2i + w of pair i, and columns 256w.. of O
BUFFERS = 2  # of K, one for each block of a pair
TILE_COLUMNS = 64  # of Q and K: one swizzled row of 128 bytes, one TMA box, one mbarrier
# Rows of Q that one TMA copy loads, ascending: those of one warp, of two, and all. With 16 heads a copy of 64 rows is
# up to a microsecond slower, because of its zeros (docs/lab/2026-11-mla-decode.md).
QUERY_BOXES = (16, 32, ROW_BLOCK)
WORD = 4  # bytes of an f32 or i32
THREADS = WARPGROUP_THREADS * (CONSUMERS + 1)
CONSUMING = WARPGROUP_THREADS * CONSUMERS
# A pair's tiles are given back in groups, each by the warpgroup that reads them last: (buffer, warpgroup, tiles).
# V is the first eight tiles; tile 8 holds P of the buffer's block, which the other warpgroup reads.
FREE_ORDER = ((0, 0, (0, 1, 2, 3)), (0, 1, (4, 5, 6, 7, 8)), (1, 1, (4, 5, 6, 7)), (1, 0, (0, 1, 2, 3, 8)))
NAMED_BARRIERS = (
    NamedBarrier(1, "P_READY_0", CONSUMING, "P of warpgroup 0's block and its row references are in SMEM"),
    NamedBarrier(2, "P_READY_1", CONSUMING, "P of warpgroup 1's block and its row references are in SMEM"),
    NamedBarrier(3, "BOTH", CONSUMING, "both consumers are done with a request, or with a step of joining its parts"),
    NamedBarrier(4, "OWN_0", WARPGROUP_THREADS, "warpgroup 0 on its own: zeroed keys, or O staged for its TMA store"),
    NamedBarrier(5, "OWN_1", WARPGROUP_THREADS, "warpgroup 1 on its own: zeroed keys, or O staged for its TMA store"),
    NamedBarrier(6, "FOUND", CONSUMING + WARP_THREADS, "the preceding kernel has ended, and the CTA's part is found"),
    NamedBarrier(
        7, "MET", CONSUMING + WARP_THREADS, "the meet warp knows who shares requests, and whether all started"
    ),
    NamedBarrier(
        8, "READY", 4 * WARP_THREADS, "mbarriers are initialised, and the part is found or guessed: loads may begin"
    ),
)
GUESS_BARRIERS = (  # where a part is guessed before the wait for the kernel in front
    NamedBarrier(9, "CHECKED", 3 * WARP_THREADS, "the load warps' guess is known to be right or wrong"),
    NamedBarrier(10, "FREED", CONSUMING + 2 * WARP_THREADS, "what was loaded by a wrong guess has landed"),
)


@dataclass(frozen=True, slots=True)
class Derived:
    """tiles: of 64 columns in a row of Q or K. *_registers: of a consumer thread. q_bytes, tile_bytes: TMA bytes of Q
    and of one tile of K. free_groups: in the order of their loads."""

    tiles: int
    threads: int
    output_registers: int
    score_registers: int
    probability_registers: int
    q_bytes: int
    tile_bytes: int
    free_groups: tuple[FreeGroup, ...]
    smem: tuple[SmemRegion, ...]
    smem_bytes: int


def smem_map(problem: MlaProblem) -> tuple[tuple[SmemRegion, ...], int]:
    """Fields of the kernel's SharedStorage in order, and its size in bytes, as CuTe lays out a struct."""
    width, tiles, dtype = problem.head_dim, problem.head_dim // TILE_COLUMNS, problem.dtype
    rows = ROW_BLOCK * CONSUMERS
    return lay_out_struct(
        [
            ("full_q", MBARRIER_BYTES, MBARRIER_BYTES, "mbarrier: Q of the request has landed"),
            ("empty_q", MBARRIER_BYTES, MBARRIER_BYTES, "mbarrier: both consumers are done with Q"),
            (
                "full_k",
                BUFFERS * tiles * MBARRIER_BYTES,
                MBARRIER_BYTES,
                f"{BUFFERS} x {tiles} mbarriers: a tile of K has landed",
            ),
            (
                "empty_k",
                len(FREE_ORDER) * MBARRIER_BYTES,
                MBARRIER_BYTES,
                f"{len(FREE_ORDER)} mbarriers: a group of tiles is read",
            ),
            (
                "full_given",
                2 * MBARRIER_BYTES,
                MBARRIER_BYTES,
                "2 mbarriers: the other CTA of a cluster has told its guess",
            ),
            (
                "work",
                18 * WORD,
                WORD,
                "i32 (9, 2): which keys of which requests are the CTA's, by a guess and behind the wait",
            ),
            ("lengths", 160 * WORD, WORD, "i32 (160,): what the guess was made by"),
            ("guess", 2 * WORD, WORD, "i32 (2,): what became of the loads by the guess"),
            ("given", 64 * WORD, WORD, "i32 (32, 2): what the other CTA of a cluster told"),
            ("shared", 8 * WORD, 16, "i32 (4, 2): who shares the CTA's first and its last request, and who joins them"),
            ("references", rows * WORD, WORD, f"f32 ({ROW_BLOCK}, {CONSUMERS}): of the exponents of each row"),
            ("changed", 8 * WORD, WORD, "i32 (4, 2): whether a warp's references moved"),
            ("sums", rows * WORD, WORD, f"f32 ({ROW_BLOCK}, {CONSUMERS}): row sums of P"),
            ("tops", rows * WORD, WORD, f"f32 ({ROW_BLOCK}, {CONSUMERS}): largest |O| of each row"),
            ("sQ", ROW_BLOCK * width * dtype.bytes, TENSOR_ALIGN, f"{dtype} ({ROW_BLOCK}, {width}); O on its way out"),
            (
                "sK",
                BUFFERS * KEY_BLOCK * width * dtype.bytes,
                TENSOR_ALIGN,
                f"{dtype} ({KEY_BLOCK}, {width}) x {BUFFERS} blocks; V and P as well",
            ),
        ]
    )


def derive(problem: MlaProblem, c: Candidate) -> Derived:
    """All derived numbers; defined for illegal candidates, too."""
    regions, smem_bytes = smem_map(problem)
    columns = problem.latent_dim // CONSUMERS
    return Derived(
        tiles=problem.head_dim // TILE_COLUMNS,
        threads=THREADS,
        output_registers=ROW_BLOCK * columns // WARPGROUP_THREADS,
        score_registers=ROW_BLOCK * KEY_BLOCK // WARPGROUP_THREADS,
        probability_registers=ROW_BLOCK * KEY_BLOCK * problem.dtype.bytes // (WARPGROUP_THREADS * WORD),
        q_bytes=ROW_BLOCK * problem.head_dim * problem.dtype.bytes,
        tile_bytes=KEY_BLOCK * TILE_COLUMNS * problem.dtype.bytes,
        free_groups=tuple(FreeGroup(b, w, tiles, WARPS_PER_WARPGROUP * c.cluster) for b, w, tiles in FREE_ORDER),
        smem=regions,
        smem_bytes=smem_bytes,
    )
