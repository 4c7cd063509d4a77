"""The numbers that follow from a problem and a candidate, in exact integers; every other module reads them here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutegen.arch.architecture import TENSOR_ALIGN, WARPGROUP_THREADS, WARPS_PER_WARPGROUP
from cutegen.families.mla_decode.candidate import KEYS_ON_M, Candidate
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.families.mla_decode.resolved import FreeGroup
from cutegen.model.kernel import Mbarriers, NamedBarrier, Warps
from cutegen.model.smem import F32, I32, Element, SmemField, SmemRegion, lay_out
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK, ROW_BLOCK

CONSUMERS = 2  # warpgroups; w takes block 2i + w of pair i, and columns 256w.. of O
BUFFERS = 2  # of K, one for each block of a pair
TILE_COLUMNS = 64  # of Q and K: one swizzled row of 128 bytes, one TMA box, one mbarrier
# Rows of Q that one TMA copy loads, ascending: those of one warp, of two, and all. With 16 heads a copy of 64 rows is
# up to a microsecond slower, because of its zeros (docs/lab/2026-11-mla-decode.md).
QUERY_BOXES = (16, 32, ROW_BLOCK)
ROW_STEP, FEW_ROWS = 8, 32  # of the N of a WGMMA; the most of keys_on_m, whose rows are on N
WORD = 4  # bytes of an f32 or i32
# A pair's tiles are given back in groups, each by the warpgroup that reads them last: (buffer, warpgroup, tiles).
# V is the first eight tiles; tile 8 holds P of the buffer's block, which the other warpgroup reads.
FREE_ORDER = ((0, 0, (0, 1, 2, 3)), (0, 1, (4, 5, 6, 7, 8)), (1, 1, (4, 5, 6, 7)), (1, 0, (0, 1, 2, 3, 8)))
# Warps of the header; the first warp and the first of consumer 1 have a part in barriers of their own as well.
CONSUMER_WARPS = tuple(Warps(f"consumer {w}", WARPS_PER_WARPGROUP * w, WARPS_PER_WARPGROUP) for w in range(CONSUMERS))
K_WARP, Q_WARP, MEET_WARP, IDLE_WARP = (
    Warps(f"{name} warp", WARPS_PER_WARPGROUP * CONSUMERS + i) for i, name in enumerate(("K", "Q", "meet", "idle"))
)
SETUP_WARP, FIND_WARP = Warps("warp 0", CONSUMER_WARPS[0].first), Warps("warp 4", CONSUMER_WARPS[1].first)
LOAD_WARPS = (K_WARP, Q_WARP)
DECODER_WARPS = Warps("decoder", K_WARP.first, WARPS_PER_WARPGROUP)  # that warpgroup, where the cache is quantised
COPY_WARPS = Warps("copying warpgroup", K_WARP.first, WARPS_PER_WARPGROUP)  # where rows are named, but not decoded
DECODER_REGISTERS = 88  # of its threads: 12 chunks of 16 bytes under way, scales of two rows, one chunk being decoded
EXTRA_DECODER_REGISTERS = 104  # where a row is one of either of two caches, or has more than FEW_SCALES in f32
FEW_SCALES = 4  # with 8 of two rows in 88 registers, 56 bytes were spilled
BLOCK_DECODER_REGISTERS = 104  # of each of two warpgroups that decode a block of each pair
COPY_REGISTERS = 56  # of its threads: addresses of 4 rows, indices of this pair of blocks and of the next
SINGLE_WARPS = {
    "setup": SETUP_WARP, "find": FIND_WARP, "k": K_WARP, "q": Q_WARP, "meet": MEET_WARP, "idle": IDLE_WARP,
}  # fmt: skip
NAMED_BARRIERS = (
    *(
        NamedBarrier(
            1 + w, f"P_READY_{w}", (CONSUMER_WARPS[w],), (CONSUMER_WARPS[1 - w],),
            f"P of warpgroup {w}'s block and its row references are in SMEM", "P_READY",
        )
        for w in range(CONSUMERS)
    ),
    NamedBarrier(
        3, "BOTH", (), CONSUMER_WARPS, "both consumers are done with a request, or with a step of joining its parts"
    ),
    *(
        NamedBarrier(
            4 + w, f"OWN_{w}", (), (CONSUMER_WARPS[w],),
            f"warpgroup {w} on its own: zeroed keys, or O staged for its TMA store", "OWN",
        )
        for w in range(CONSUMERS)
    ),
    NamedBarrier(
        6, "FOUND", (), (*CONSUMER_WARPS, MEET_WARP), "the preceding kernel has ended, and the CTA's part is found"
    ),
    NamedBarrier(
        7, "MET", (MEET_WARP,), CONSUMER_WARPS, "the meet warp knows who shares requests, and whether all started"
    ),
    NamedBarrier(
        8, "READY", (SETUP_WARP, FIND_WARP), LOAD_WARPS,
        "mbarriers are initialised, and the part is found or guessed: loads may begin",
    ),
)  # fmt: skip
GUESS_BARRIERS = (  # where a part is guessed before the wait for the kernel in front
    NamedBarrier(9, "CHECKED", (FIND_WARP,), LOAD_WARPS, "the load warps' guess is known to be right or wrong"),
    NamedBarrier(10, "FREED", (), (*CONSUMER_WARPS, *LOAD_WARPS), "what was loaded by a wrong guess has landed"),
)


def list_named_barriers(problem: MlaProblem, c: Candidate, guess: bool = True) -> tuple[NamedBarrier, ...]:
    """guess: with those of a part that is guessed before the wait. A warpgroup that loads rows begins behind FOUND, as
    consumers do, and loads nothing by a guess."""
    barriers = NAMED_BARRIERS + GUESS_BARRIERS * (guess and not problem.by_rows)
    if problem.by_rows:
        barriers = tuple(
            replace(barrier, wait=(*CONSUMER_WARPS, row_warps(problem, c))) if barrier.name == "FOUND" else barrier
            for barrier in barriers
            if barrier.name != "READY"
        )
    if c.variant != KEYS_ON_M:
        return barriers
    adds = ", largest scores or P of its block"
    return tuple(
        replace(barrier, says=barrier.says.replace(": zeroed keys", ": zeroed keys" + adds)) for barrier in barriers
    )


def loaders(problem: MlaProblem, c: Candidate) -> int:
    """Warpgroups that load keys. Where O has few rows there are registers for two that do so row by row, a block of
    each pair each."""
    return BUFFERS if problem.by_rows and c.variant == KEYS_ON_M else 1


def count_threads(problem: MlaProblem, c: Candidate) -> int:
    """Of a CTA."""
    return WARPGROUP_THREADS * (CONSUMERS + loaders(problem, c))


def row_warps(problem: MlaProblem, c: Candidate) -> Warps:
    """The warpgroup, or both, that load K row by row."""
    one, count = COPY_WARPS if problem.cache is None else DECODER_WARPS, loaders(problem, c)
    return replace(one, name=f"{one.name}s", count=count * one.count) if count > 1 else one


def row_registers(problem: MlaProblem, c: Candidate) -> int:
    """What a thread of it needs."""
    if problem.cache is None:
        return COPY_REGISTERS
    if loaders(problem, c) > 1:
        return BLOCK_DECODER_REGISTERS
    many = problem.cache.scale_dtype == "f32" and problem.cache.scales > FEW_SCALES
    return EXTRA_DECODER_REGISTERS if problem.extra or many else DECODER_REGISTERS


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


def few_rows(problem: MlaProblem, c: Candidate) -> int:
    """Rows of Q where keys are on M: those of the largest promised call, on N; 0 where rows are on M."""
    return -(-problem.rows[1] // ROW_STEP) * ROW_STEP if c.variant == KEYS_ON_M else 0


def query_rows(problem: MlaProblem, c: Candidate) -> int:
    """Rows of Q in shared memory."""
    return few_rows(problem, c) or ROW_BLOCK


def query_boxes(problem: MlaProblem, c: Candidate) -> tuple[int, ...]:
    """Rows of Q that one TMA copy may load, ascending."""
    few = few_rows(problem, c)
    return (few,) if few else QUERY_BOXES


def list_mbarriers(problem: MlaProblem, c: Candidate) -> tuple[Mbarriers, ...]:
    """In the order of their fields in shared memory, and of their initialisation."""
    tiles, groups = problem.head_dim // TILE_COLUMNS, len(FREE_ORDER)
    given = Mbarriers(
        "full_given", 2, "cluster_pair.TURNS", "2 mbarriers: the other CTA of a cluster has told its guess",
        init="cluster_pair.init", when="t.cluster > 1", made=c.cluster > 1,
    )  # fmt: skip
    fillers = ("1", "")
    if problem.cache is not None:
        fillers = f"{WARPS_PER_WARPGROUP}", "warps of the decoder"
    elif problem.sparse:
        fillers = f"{WARPGROUP_THREADS + WARPS_PER_WARPGROUP}", "threads and warps that copy"
    return (
        Mbarriers("full_q", 1, "1", "mbarrier: Q of the request has landed", "1"),
        Mbarriers(
            "empty_q", 1, "1", "mbarrier: both consumers are done with Q", f"{CONSUMERS}", "a thread of each consumer"
        ),
        Mbarriers(
            "full_k", BUFFERS * tiles, f"{BUFFERS} * TILES",
            f"{BUFFERS} x {tiles} mbarriers: a tile of K {'is decoded' if problem.cache else 'has landed'}",
            *fillers,
        ),
        Mbarriers(
            "empty_k", groups, f"{groups}", f"{groups} mbarriers: a group of tiles is read",
            f"{WARPS_PER_WARPGROUP} * t.cluster", "warps that read a group, over all copies",
        ),
        *([given] if not problem.by_rows else []),
    )  # fmt: skip


def list_smem(problem: MlaProblem, c: Candidate) -> list[SmemField]:
    """Fields of the kernel's SharedStorage in order."""
    width, element, few = problem.head_dim, Element.of(problem.dtype), few_rows(problem, c)
    rows, rows_name = query_rows(problem, c), "ROWS" if few else "ROW_BLOCK"

    def of_rows(name: str, holds: str, each_warp: int = few) -> SmemField:
        """For each row and warpgroup, where a row's keys or columns are in all warps for each of these."""
        warps = WARPS_PER_WARPGROUP if each_warp else 1
        by, shape = (f"{CONSUMERS * warps} * ", f", {warps}") if each_warp else (f"{CONSUMERS} * ", "")
        size, align = CONSUMERS * warps * rows, 16 if each_warp else 0
        text = f"f32 ({rows}{shape}, {CONSUMERS}): {holds}"
        return SmemField(name, F32, size, by + rows_name, text, *([align] if align else []))

    guessed = (
        SmemField("guess", I32, 2, "2", "i32 (2,): what became of the loads by the guess"),
        SmemField(
            "given",
            I32,
            64,
            "cluster_pair.WORDS * cluster_pair.TURNS",
            "i32 (32, 2): what the other CTA of a cluster told",
        ),
    )
    valid = SmemField(
        "valid", I32, WARPS_PER_WARPGROUP * BUFFERS, f"{WARPS_PER_WARPGROUP} * {BUFFERS}",
        f"i32 ({WARPS_PER_WARPGROUP}, {BUFFERS}): which keys of a block count, by the warp that stores them",
    )  # fmt: skip
    out = SmemField(
        "sO", element, rows * problem.value_dim, "cute.cosize(o_layout)",
        f"16 bits ({rows}, {problem.value_dim}): O, or a share of it, on its way out", TENSOR_ALIGN,
    )  # fmt: skip
    return [
        *(barriers.field for barriers in list_mbarriers(problem, c)),
        SmemField(
            "work", I32, 18, "2 * split_schedule.FIELDS",
            "i32 (9, 2): which keys of which requests are the CTA's, by a guess and behind the wait",
        ),
        SmemField(
            "lengths", I32, 160, "request_lengths.most_kept(2 * KEY_BLOCK)", "i32 (160,): what the guess was made by"
        ),
        *(guessed if not problem.by_rows else ()),
        *((valid,) if problem.sparse else ()),
        SmemField(
            "shared", I32, 8, "8",
            "i32 (4, 2): who shares the CTA's first and its last request, and who joins them", align=16,
        ),
        of_rows("references", "of the exponents of each row", 0),
        *([of_rows("maxima", "largest scores of each row, of a block")] if few else []),
        SmemField("changed", I32, 8, "8", "i32 (4, 2): whether a warp's references moved"),
        of_rows("sums", "row sums of P"),
        of_rows("tops", "largest |O| of each row"),
        SmemField(
            "sQ", element, rows * width, "cute.cosize(q_layout)",
            f"{problem.dtype} ({rows}, {width})" + "; O on its way out" * (not few), TENSOR_ALIGN,
        ),
        SmemField(
            "sK", element, BUFFERS * KEY_BLOCK * k_columns(problem), "cute.cosize(k_layout)",
            f"{problem.dtype} ({KEY_BLOCK}, {k_columns(problem)}) x {BUFFERS} blocks; V and P as well", TENSOR_ALIGN,
        ),
        *([out] if few else []),
    ]  # fmt: skip


def k_columns(problem: MlaProblem) -> int:
    """Of a buffer of K in shared memory: those of V, and a tile that holds the rest of K, and P once that is read."""
    return problem.value_dim + TILE_COLUMNS


def free_order(problem: MlaProblem) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    """FREE_ORDER of the tiles that a row has."""
    tiles = problem.head_dim // TILE_COLUMNS
    return tuple((b, w, tuple(t for t in group if t < tiles)) for b, w, group in FREE_ORDER)


def derive(problem: MlaProblem, c: Candidate) -> Derived:
    """All derived numbers; defined for illegal candidates, too."""
    regions, smem_bytes = lay_out(list_smem(problem, c))
    columns, rows = problem.value_dim // CONSUMERS, query_rows(problem, c)
    return Derived(
        tiles=problem.head_dim // TILE_COLUMNS,
        threads=count_threads(problem, c),
        output_registers=rows * columns // WARPGROUP_THREADS,
        score_registers=rows * KEY_BLOCK // WARPGROUP_THREADS,
        probability_registers=rows * KEY_BLOCK * problem.dtype.bytes // (WARPGROUP_THREADS * WORD),
        q_bytes=rows * problem.head_dim * problem.dtype.bytes,
        tile_bytes=KEY_BLOCK * TILE_COLUMNS * problem.dtype.bytes,
        free_groups=tuple(
            FreeGroup(b, w, tiles, WARPS_PER_WARPGROUP * c.cluster) for b, w, tiles in free_order(problem)
        ),
        smem=regions,
        smem_bytes=smem_bytes,
    )
