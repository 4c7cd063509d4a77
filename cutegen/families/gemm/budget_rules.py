"""Rules about what a CTA has: registers and shared memory."""

from __future__ import annotations

from dataclasses import replace

from cutegen.arch.architecture import SETMAXNREG_STEP, Arch
from cutegen.diagnostics import Rule
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import (
    accumulators,
    block_values,
    part_registers,
    repeated_values,
    slot_bytes,
    threads,
    warpgroups_per_tile,
)
from cutegen.families.gemm.features.feature_list import FEATURES
from cutegen.families.gemm.form_rules import MAX_STAGES, MAX_TILE_M, MIN_STAGES, legal_columns
from cutegen.families.gemm.legal_extents import with_extent
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.orientation import kernel_frame
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.gemm.shared_memory import smem_size
from cutegen.families.refusal import Objection, kib
from cutegen.families.register_rules import REGISTER_FILE, check_file, most_consumer_registers

# What a consumer needs next to the accumulators: descriptors, loop state, one epilogue subtile. Plans with more
# accumulators than this leaves were seen to spill.
OTHER_REGISTERS = 32
# Values of inputs with blocks that OTHER_REGISTERS has room for; with 192 accumulators, 12 values compiled without a
# spill, and 21 did not.
FREE_BLOCK_VALUES = 8
# More where a value of blocks has the epilogue compute elements twice, beside the values that are kept for it: with 128
# accumulators and 64 such values, kernels with 240 registers spilled; with 32 they did not.
REPEATED_REGISTERS = 32
# What ptxas asks for beside the accumulators of one MMA instruction; it fails with C7602 where they do not fit.
MMA_REGISTERS = 26


def other_registers(problem: GemmProblem, c: Candidate) -> int:
    """Registers that a consumer needs next to accumulators: for features; where the epilogue has inputs with blocks,
    those of a subtile; where it computes values twice, those of a block."""
    features = sum(feature.consumer_registers(problem, c) for feature in FEATURES)
    blocks = max(0, block_values(problem, c) - FREE_BLOCK_VALUES)
    repeated = repeated_values(problem, c)
    repeated += REPEATED_REGISTERS if repeated else 0
    return OTHER_REGISTERS + lowering_of(problem).operand_registers(problem, c) + features + blocks + repeated


def most_stages(problem: GemmProblem, c: Candidate, arch: Arch) -> int:
    """The most A/B stages that fit beside everything else the candidate keeps in SMEM; 0 when none does."""

    def needed(stages: int) -> int:
        return smem_size(problem, c, stages)

    # Nearly linear: barriers and alignment are the rest. So the first guess is mostly right.
    slot = max(slot_bytes(problem, c), 1)
    most = min(max(1 + (arch.smem_bytes - needed(1)) // slot, 0), MAX_STAGES)
    while most and needed(most) > arch.smem_bytes:
        most -= 1
    while most < MAX_STAGES and needed(most + 1) <= arch.smem_bytes:
        most += 1
    return most


@BOOK.declare_fit(REGISTER_FILE, "consumer_registers", "producer_registers", "consumers", only="sm_90a")
def register_file(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return check_file(arch, threads(c), c.producer_registers, c.consumers, c.consumer_registers)


@BOOK.declare_fit(
    Rule(
        "accumulator-registers",
        f"a consumer thread has {OTHER_REGISTERS} registers in addition to its accumulators, more with split-K or "
        "blocks, or where it holds operands",
        "The accumulators of a tile live in the registers of the warpgroups that share it, tile m x tile n / 128 a "
        "thread and warpgroup; where sums are promoted, tile n / 2 more for the 64 rows that the tensor core is at. "
        "Descriptors, loop state and the epilogue need the rest; with less, the compiler spills. Where outputs need "
        "both what a block's value is reduced of and what that is computed from, it keeps both for a whole block. On "
        "sm_120a a warp holds two steps of k of the rows and columns that it multiplies.",
        "tiling: {tile: [256, 256, 64]}",
    ),
    "tile",
    "consumer_registers",
    "consumers",
    "schedule",
    *(knob for feature in FEATURES for knob in feature.register_knobs),
    only="sm_90a",
)
def accumulator_registers(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    others = other_registers(problem, c)
    sharing, needed, limit = warpgroups_per_tile(c), accumulators(problem, c), c.consumer_registers - others
    if needed <= limit:
        return None
    part = f" + {part_registers(problem, c)} of the part to promote" if c.promotes else ""
    return (
        f"{c.tile[0]} x {c.tile[1]} / (128 x {sharing}){part} = {needed} accumulator registers a thread, "
        f"{c.consumer_registers} - {others} for the rest = {limit}",
        lambda: _advise_registers(problem, c, arch),
    )


def _advise_registers(problem: GemmProblem, c: Candidate, arch: Arch) -> str:
    """How the accumulators get room: fewer columns, or else more registers, or both, or else fewer rows, or blocks as
    rows. Only what the rules about tiles accept as well."""

    def widest(c: Candidate) -> int:
        sizes = (with_extent(c, 1, n) for n in legal_columns(problem, c, arch))
        return max((x.tile[1] for x in sizes if _needed(problem, x) <= c.consumer_registers), default=0)

    m = f"with tile m = {c.tile[0]}"
    if n := widest(c):
        return f"{m} the widest tile n is {n}"
    most = most_consumer_registers(arch, threads(c), c.producer_registers, c.consumers)
    if (enough := -(-_needed(problem, c) // SETMAXNREG_STEP) * SETMAXNREG_STEP) <= most:
        return f"{m} and tile n = {c.tile[1]} use {enough} consumer registers"
    if n := widest(replace(c, consumer_registers=most)):
        return f"{m} and {most} consumer registers the widest tile n is {n}"

    def fits(framed: GemmProblem, x: Candidate) -> bool:
        return _needed(framed, x) <= x.consumer_registers and not any(rule(framed, x, arch) for rule in BOOK.form)

    low, high, step = arch.mma_n
    heights = range(arch.mma_m, MAX_TILE_M + 1, arch.mma_m)
    for own in dict.fromkeys((c, replace(c, consumer_registers=most))):
        registers = f" and {most} consumer registers" * (own is not c)
        if rows := [i for i in heights if i < c.tile[0] and fits(problem, with_extent(own, 0, i))]:
            return f"with tile n = {c.tile[1]}{registers} the largest tile m is {max(rows)}"
        if c.swap_ab:
            continue
        framed, turned = kernel_frame(problem, replace(own, swap_ab=True))
        tiles = [(i, j, c.tile[2]) for i in heights for j in range(low, high + 1, step)]
        if legal := [tile for tile in tiles if fits(framed, replace(turned, tile=tile))]:
            height, width, _ = max(legal, key=lambda tile: tile[0] * tile[1])
            return f"use `swap_ab`{registers}, with a tile of {height} x {width} at most"
    return f"no tile of {c.consumers} consumer warpgroups has room for the blocks: use fewer, or narrower blocks"


def _needed(problem: GemmProblem, c: Candidate) -> int:
    return accumulators(problem, c) + other_registers(problem, c)


@BOOK.declare_fit(
    Rule(
        "mma-registers",
        "one MMA instruction fits the registers a thread is launched with",
        "The compiler allots registers for what a CTA of that many threads is launched with, before setmaxnreg moves "
        f"them. One instruction of 64 rows needs tile n / 2 accumulators a thread and {MMA_REGISTERS} registers more: "
        "with three consumers, tile n is at most 200.",
        "tiling: {tile: [192, 256, 64]}\nwarpgroups: {consumer: {count: 3}}",
    ),
    "tile",
    "consumers",
    only="sm_90a",
)
def mma_registers(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    needed, launch = c.tile[1] // 2 + MMA_REGISTERS, arch.launch_registers(threads(c))
    if needed <= launch or arch.mma != "wgmma":
        return None

    def advise() -> str:
        fits = [n for n in legal_columns(problem, c, arch) if n // 2 + MMA_REGISTERS <= launch]
        return f"with {c.consumers} consumers the widest tile n is {max(fits)}" if fits else "use fewer consumers"

    return (
        f"one 64 x {c.tile[1]} {arch.mma} needs {c.tile[1] // 2} + {MMA_REGISTERS} = {needed} registers a thread, "
        f"{threads(c)} threads are launched with {launch}",
        advise,
    )


@BOOK.declare_fit(
    Rule(
        "smem-capacity",
        "the rings, vectors and barriers of a CTA fit its shared memory",
        "Each A/B stage holds one tile of A and one of B. Next to the stages stand the rings of stored and loaded "
        "epilogue tiles, the vectors of the epilogue and the barriers; `cutegen explain SPEC` draws the map.",
        "pipeline: {stages: 7}",
    ),
    "stages",
    "tile",
    "store_stages",
    "load_stages",
)
def smem_capacity(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    size = smem_size(problem, c)
    if size <= arch.smem_bytes:
        return None
    most = most_stages(problem, c, arch)
    slot = slot_bytes(problem, c)
    rest = size - c.stages * slot
    return (
        f"{c.stages} stages x {kib(slot)} + {kib(rest)} = {kib(size)}, {arch.name} has {kib(arch.smem_bytes)}",
        f"the most that fits is {most}" if most >= MIN_STAGES else "use a smaller tile or fewer epilogue stages",
    )
