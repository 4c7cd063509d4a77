"""The numbers of the kernel of a pair, in exact integers.

Source of where a product lies: PTX ISA, tcgen05.mma with cta_group::2 and M 128: each CTA has 64 rows, lanes 0 to 63
the first half of the columns, the others the second half.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch.architecture import TENSOR_ALIGN, WARP_THREADS, WARPS_PER_WARPGROUP, Arch
from cutegen.dtypes import DTYPES, DType
from cutegen.families.mla_decode.problem import MlaProblem
from cutegen.model.kernel import Mbarriers, NamedBarrier, Warps
from cutegen.model.smem import F32, I32, Element, SmemField, SmemRegion, lay_out
from cutegen.runtime.mla_decode.tiling import KEY_BLOCK, ROW_BLOCK

PAIR = 2  # CTAs of a product
UNIT = 2  # key blocks of a step: of one, each CTA has half as K
KEYS = UNIT * KEY_BLOCK
VALUE_COLUMNS = 256  # of a slot with V, of which each CTA has half
SWIZZLE_BYTES = 128  # of a row of a slot with K
SLOT_BYTES = KEY_BLOCK * SWIZZLE_BYTES  # of the ring of K and V, of each CTA
STAGES = 2  # of scores and of P: one is worked on while the next is computed
SCORE_COLUMNS, OUT_COLUMNS = KEYS // 2, 256  # of tensor memory, of a block of scores and of O: half of a row
OUT_CHUNK = 32  # columns of O that a thread has in registers at once
# PTX ISA, tcgen05.alloc: a power of two. All of them, as no other CTA has room on the SM.
TMEM_COLUMNS = 512

SOFTMAX, CORRECTION = (
    Warps(f"{name} warps", WARPS_PER_WARPGROUP * i, WARPS_PER_WARPGROUP)
    for i, name in enumerate(("softmax", "correction"))
)
MMA_WARP, LOAD_WARP, MEET_WARP = (
    Warps(f"{name} warp", 2 * WARPS_PER_WARPGROUP + i) for i, name in enumerate(("MMA", "load", "meet"))
)
THREADS = WARP_THREADS * (MEET_WARP.last + 1)


def group_keys(problem: MlaProblem) -> int:
    """Keys of a block that lie in one page, and that one TMA copy loads as K."""
    return min(problem.page_size, KEY_BLOCK)


@dataclass(frozen=True, slots=True)
class Operands:
    """What tcgen05 multiplies: elements of `dtype`, K and V as they lie in the cache, Q and P as sums of `terms` of
    them."""

    dtype: DType
    terms: int

    @property
    def tile(self) -> int:
        """Columns of a slot with K."""
        return SWIZZLE_BYTES // self.dtype.bytes

    @property
    def value_keys(self) -> int:
        """Of a slot with V."""
        return SLOT_BYTES // (VALUE_COLUMNS // PAIR * self.dtype.bytes)


def operands(problem: MlaProblem) -> Operands:
    return Operands(DTYPES["e4m3"], 2) if problem.cache else Operands(problem.dtype, 1)


def list_named_barriers(problem: MlaProblem) -> tuple[NamedBarrier, ...]:
    factors = "; of a request, what rows of Q are times" if problem.cache else ""

    def halves(first: int, name: str, role: Warps, says: str) -> tuple[NamedBarrier, ...]:
        """Of the two warps that have a row, for either pair of them."""
        pairs = [(Warps(role.name, role.first + i), Warps(role.name, role.first + i + 2)) for i in range(2)]
        return tuple(NamedBarrier(first + i, f"{name}_{i}", (), pair, says, name) for i, pair in enumerate(pairs))

    return (
        *halves(1, "EXCHANGED", SOFTMAX, f"the largest scores of both halves of a row are in SMEM{factors}"),
        *halves(3, "HALVES", CORRECTION, "both halves of a row have read, or written, what they share of it"),
        NamedBarrier(5, "BOTH", (), (SOFTMAX, CORRECTION), "a step of joining parts is done"),
        NamedBarrier(
            6, "MET", (MEET_WARP,), (SOFTMAX, CORRECTION), "who shares requests is known, and results are written"
        ),
    )  # fmt: skip


def list_mbarriers(problem: MlaProblem, stages: int) -> tuple[Mbarriers, ...]:
    """In the order of their fields in shared memory, and of their initialisation."""
    commit, warps = "tcgen05.commit", WARPS_PER_WARPGROUP
    both = f"{warps} * PAIR"
    landed = ("Q of both CTAs has landed", "1", "")
    stored = ("Q of both CTAs is in SMEM", both, "softmax warps of both CTAs")

    def ring(
        name: str, count: int, full: tuple[str, str, str], empty: tuple[str, str, str] | None = None, source: str = ""
    ) -> tuple[Mbarriers, ...]:
        """Of `count` slots; (what it says, arrivals, who) of either side. empty: None where others imply it."""
        said, source = f"{count} mbarriers" if count > 1 else "mbarrier", source or str(count)
        sides = (("full", full), ("empty", empty))
        return tuple(
            Mbarriers(f"{side}_{name}", count, source, f"{said}: {of_side[0]}", *of_side[1:])
            for side, of_side in sides
            if of_side
        )

    return (
        *(ring("q", 1, stored) if problem.cache else ring("q", 1, landed, ("its last product is done", "1", commit))),
        *ring("kv", stages, ("K or V of both CTAs has landed", "1", ""), ("its products are done", "1", commit),
              "t.stages"),
        *ring("s", STAGES, ("scores are in tensor memory", "1", commit)),
        *ring("p", STAGES, ("P of both CTAs is in SMEM", both, "softmax warps of both CTAs")),
        *ring("fade", STAGES, ("what O shrinks by is in SMEM", f"{warps // 2}", "softmax warps of the first halves")),
        *ring("sum", 1, ("sums of a request are in SMEM", f"{warps}", "softmax warps"),
              ("they are read", f"{warps}", "correction warps")),
        *ring("o", 1, ("a product with V is in tensor memory", "1", commit),
              ("the next one may be added", both, "correction warps of both CTAs")),
    )  # fmt: skip


def list_smem(problem: MlaProblem, stages: int) -> list[SmemField]:
    """Fields of the kernel's SharedStorage in order."""
    of = operands(problem)
    element, name, width, keys = Element.of(of.dtype), of.dtype, of.terms * problem.head_dim, of.terms * KEYS
    halves = f"f32 ({ROW_BLOCK}, 2)"
    factors = SmemField("factors", F32, ROW_BLOCK, "ROW_BLOCK", f"f32 ({ROW_BLOCK},): what rows of Q are times")
    return [
        *(barriers.field for barriers in list_mbarriers(problem, stages)),
        SmemField("tmem_address", I32, 1, "1", "where tensor memory was allocated"),
        SmemField("work", I32, 9, "split_schedule.FIELDS", "i32 (9, 1): which keys of which requests are the pair's"),
        SmemField(
            "shared", I32, 8, "8", "i32 (4, 2): who shares the pair's first and last request, and who joins them",
            align=16,
        ),
        SmemField(
            "exchange", F32, 4 * ROW_BLOCK, "4 * ROW_BLOCK", f"f32 ({ROW_BLOCK}, 2, 2): largest scores of half rows"
        ),
        SmemField("fades", F32, 2 * ROW_BLOCK, "2 * ROW_BLOCK", f"{halves}: what O of each row shrinks by"),
        SmemField("sums", F32, 2 * ROW_BLOCK, "2 * ROW_BLOCK", f"{halves}: sums of P of half rows, then largest |O|"),
        SmemField("references", F32, ROW_BLOCK, "ROW_BLOCK", f"f32 ({ROW_BLOCK},): of the exponents of each row"),
        *([factors] if problem.cache else []),
        SmemField(
            "sQ", element, ROW_BLOCK * width, "cute.cosize(q_layout)", f"{name} ({ROW_BLOCK}, {width})",
            TENSOR_ALIGN,
        ),
        SmemField(
            "sKV", element, stages * KEY_BLOCK * of.tile, "cute.cosize(k_layout)",
            f"{name} x {stages}: ({KEY_BLOCK}, {of.tile}) of K, "
            f"or ({of.value_keys}, {VALUE_COLUMNS // PAIR}) of V", TENSOR_ALIGN,
        ),
        SmemField(
            "sP", element, STAGES * ROW_BLOCK * keys, "cute.cosize(p_layout)",
            f"{name} ({ROW_BLOCK}, {keys}) x {STAGES} blocks", TENSOR_ALIGN,
        ),
    ]  # fmt: skip


def lay_out_most(problem: MlaProblem, arch: Arch) -> tuple[int, tuple[SmemRegion, ...], int]:
    """(slots of the ring, regions, bytes): as many slots as shared memory has room for."""
    stages = 1
    while lay_out(list_smem(problem, stages + 1))[1] <= arch.smem_bytes:
        stages += 1
    return stages, *lay_out(list_smem(problem, stages))
