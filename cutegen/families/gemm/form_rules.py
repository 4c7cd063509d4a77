"""Rules about the form of a GEMM's knobs: each number on its own, and beside those that give it meaning. `load_rules`
has those about how A and B are loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from cutegen.arch.architecture import SETMAXNREG_MIN, SWIZZLES, TMA_ALIGN, Arch
from cutegen.diagnostics import Rule
from cutegen.epilogue import Operand, Output
from cutegen.families.gemm.candidate import Candidate
from cutegen.families.gemm.derived import (
    PACKED_COLUMNS,
    epilogue_columns,
    epilogue_tile,
    threads,
    warpgroups_per_tile,
)
from cutegen.families.gemm.legal_extents import fewest_faults, legal_extents, with_extent
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rule_book import BOOK
from cutegen.families.refusal import Objection, nearest
from cutegen.families.register_rules import REGISTER_VALUES, check_value, most_consumer_registers

PAIRED_STEP_N = 32  # the same for pairs of columns
MAX_TILE_M = 384  # with more, registers leave fewer than 64 columns
MAX_TILE_K = 256  # that a remedy names; more is allowed, and leaves few stages
MIN_STAGES = 2
MAX_STAGES = 16
CONSUMERS = {"cooperative": (1, 2, 3), "pingpong": (2,)}


def legal_columns(problem: GemmProblem, c: Candidate, arch: Arch) -> list[int]:
    """Every tile n that goes with the rest of the candidate."""
    low, high, step = arch.mma_n
    return _legal_extents(problem, c, arch, 1, range(low, high + 1, step))


def _legal_extents(problem: GemmProblem, c: Candidate, arch: Arch, axis: int, extents: Iterable[int]) -> list[int]:
    short = replace(c, stages=MIN_STAGES, store_stages=MIN_STAGES)
    return legal_extents(problem, short, arch, axis, extents)


def _other_extent(problem: GemmProblem, c: Candidate, arch: Arch, axis: int) -> Callable[[], str]:
    """To use one of the legal extents on both sides of that of the candidate's tile."""

    def find() -> str:
        k = arch.mma_k(problem.a.dtype)
        steps = range(arch.mma_m, MAX_TILE_M + 1, arch.mma_m) if axis == 0 else range(k, MAX_TILE_K + 1, k)
        legal = legal_columns(problem, c, arch) if axis == 1 else _legal_extents(problem, c, arch, axis, steps)
        return f"use {nearest(c.tile[axis], legal)}"

    return find


def _other_rows(problem: GemmProblem, c: Candidate, arch: Arch) -> Callable[[], str]:
    """The same for rows, beside any count of consumers: that of the candidate may be one that nobody wrote."""

    def find() -> str:
        short = replace(c, stages=MIN_STAGES, store_stages=MIN_STAGES)
        others = [short if n == c.consumers else _with_consumers(short, n, arch) for n in CONSUMERS[c.schedule]]
        rows = range(arch.mma_m, MAX_TILE_M + 1, arch.mma_m)
        counts: dict[int, list[int]] = {}
        for other in fewest_faults(problem, (with_extent(o, 0, m) for m in rows for o in others), arch):
            counts.setdefault(other.tile[0], []).append(other.consumers)

        def show(m: int) -> str:
            n = counts[m][0]
            return f"{m}" if c.consumers in counts[m] else f"{m} (with {n} consumer warpgroup{'s' * (n > 1)})"

        return f"use {nearest(c.tile[0], counts, show)}"

    return find


def _with_consumers(c: Candidate, count: int, arch: Arch) -> Candidate:
    """Another count of consumers, with as many registers as they can have."""
    c = replace(c, consumers=count, producer_registers=SETMAXNREG_MIN)
    return replace(c, consumer_registers=most_consumer_registers(arch, threads(c), SETMAXNREG_MIN, count))


@BOOK.declare_form(
    Rule(
        "consumer-count",
        "the schedule sets how many consumer warpgroups there are",
        "A cooperative tile is shared by 1 to 3 consumer warpgroups, each with its own rows. In pingpong exactly two "
        "warpgroups work on tiles of their own, one computing while the other stores.",
        "warpgroups: {schedule: pingpong, consumer: {count: 3}}",
    ),
    "consumers",
    "schedule",
    only="sm_90a",
)
def consumer_count(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    allowed = CONSUMERS[c.schedule]
    if c.consumers in allowed:
        return None
    words = f"{allowed[0]} to {allowed[-1]}" if len(allowed) > 1 else f"{allowed[0]}"
    return f"a {c.schedule} schedule has {words} consumer warpgroups, not {c.consumers}", f"use {words}"


@BOOK.declare_form(
    Rule(
        "tile-m",
        f"tile m is a multiple of 64 rows per warpgroup that shares the tile, and at most {MAX_TILE_M}",
        "One warpgroup MMA has 64 rows, so a tile has 64 times as many rows as warpgroups share it: all consumers in a "
        "cooperative schedule, one in pingpong. TMA loads a tile of more than 256 rows in two boxes. Such tiles fit "
        "registers where they are narrow, 320 x 80 with one consumer and 384 x 128 with three, and load more per FLOP "
        "than 256 x 192: `auto` and the search of `tune` do without them.",
        "tiling: {tile: [96, 256, 64]}",
    ),
    "tile",
    "consumers",
    "schedule",
    element=0,
    only="sm_90a",
)
def tile_m(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    m, sharing = c.tile[0], warpgroups_per_tile(c)
    step = arch.mma_m * sharing
    if c.consumers not in CONSUMERS[c.schedule] or (m % step == 0 and m <= MAX_TILE_M):
        return None
    remedy = _other_rows(problem, c, arch)
    if m > MAX_TILE_M:
        return f"tile m = {m} rows, a tile has at most {MAX_TILE_M}", remedy
    if m % arch.mma_m:
        return f"tile m = {m} is not a multiple of {arch.mma_m}, the rows of a warpgroup MMA", remedy
    groups = f"{sharing} warpgroup{'s' * (sharing > 1)} x {arch.mma_m} rows = {step}"
    return f"tile m = {m} is not a multiple of {groups} ({c.schedule})", remedy


@BOOK.declare_form(
    Rule(
        "tile-n",
        "tile n is a multiple of 8 between 8 and 256",
        "One warpgroup MMA has up to 256 columns in steps of 8, with i8 operands in steps of 16 beyond 32. Where 16 "
        "does not divide tile n, epilogue tiles have 8 columns. Their rows have at least 16 bytes: outputs and loaded "
        "tiles that are contiguous along the kernel's n then have elements of 2 bytes or more. On sm_120a columns come "
        "in steps of 16, as ldmatrix reads them.",
        "tiling: {tile: [128, 100, 64]}",
    ),
    "tile",
    element=1,
)
def tile_n(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    n, (low, high, step) = c.tile[1], arch.mma_n
    if n % step or not low <= n <= high:
        return f"tile n = {n} is not a multiple of {step} in {low}..{high}", _other_extent(problem, c, arch, 1)
    if n % (2 * step) == 0 and PACKED_COLUMNS not in epilogue_columns(problem):
        return None
    remedy = _other_extent(problem, c, arch, 1)
    if problem.mma.wide and n > (narrow := problem.mma.wide)[0] and n % narrow[1]:
        return f"tile n = {n} of an i8 product is over {narrow[0]} and not a multiple of {narrow[1]}", remedy
    program = problem.kernel_epilogue
    tiles: list[Operand | Output] = [*program.outputs, *program.tiles]
    width = epilogue_tile(problem, c)[1]
    thin = next((t for t in tiles if t.major == "n" and t.dtype.size(width) < TMA_ALIGN), None)
    if thin is None:
        return None
    reason = f"tile n = {n} makes epilogue rows of {width} elements = {thin.dtype.size(width)} B of `{thin.name}`"
    return f"{reason}, they have at least {TMA_ALIGN} B", remedy


_PAIRED_TILE = Rule(
    "paired-tile",
    "a tile of a gated product holds 16 pairs of columns or more, in steps of 16",
    "Half of the tile's columns are first columns of pairs and half are second ones; the epilogue stores two blocks of "
    "8 results at once. Both accumulators of a pair lie in one thread. With `swap_ab` columns of the product are rows "
    "of the tile, of which each warpgroup that shares it has 64 first and 64 second ones, or a multiple.",
    "epilogue: {d: 'silu(acc[:, 0::2]) * acc[:, 1::2]'}\ntiling: {tile: [128, 208, 64]}",
)


@BOOK.declare_form(_PAIRED_TILE, "tile", element=1)
def paired_tile(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    n, step = c.tile[1], PAIRED_STEP_N
    if problem.paired_dim != "n" or n % step == 0:
        return None
    return f"tile n = {n} of a gated product is not a multiple of {step}", _other_extent(problem, c, arch, 1)


@BOOK.declare_form(_PAIRED_TILE, "tile", "consumers", "schedule", element=0, only="sm_90a")
def paired_rows(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    m, sharing = c.tile[0], warpgroups_per_tile(c)
    step = 2 * arch.mma_m * sharing
    if problem.paired_dim != "m" or c.consumers not in CONSUMERS[c.schedule] or m % step == 0:
        return None
    groups = f"{sharing} warpgroup{'s' * (sharing > 1)} x 64 pairs"
    reason = f"tile m = {m} of a transposed gated product is not a multiple of {groups} = {step} rows"
    return reason, _other_extent(problem, c, arch, 0)


_BLOCK_TILE = Rule(
    "block-tile",
    "a tile holds whole blocks of columns where the epilogue reads a value of each",
    "`max_abs(x, n, 128)` is needed by the outputs of the same 128 columns, so that one tile has them all: tile n is a "
    "multiple of the block, of twice the block in a gated product, of whose columns two make one of x. With `swap_ab` "
    "that is tile m.",
    "epilogue: {s: 'max_abs(acc, n, 128) / 448', q: acc / s}\ntiling: {tile: [128, 192, 64]}",
)


def _block_tile(problem: GemmProblem, c: Candidate, arch: Arch, axis: int) -> Objection | None:
    extent, high = c.tile[axis], (MAX_TILE_M, arch.mma_n[1])[axis]
    block = problem.epilogue.block * (2 if problem.paired else 1)
    if not block or problem.transposed != (axis == 0) or extent % block == 0:
        return None
    reason = f"tile {'mn'[axis]} = {extent} does not hold whole blocks of {block} columns"
    step = block if axis else math.lcm(block, arch.mma_m * warpgroups_per_tile(c))
    if step > high:
        return reason, f"use other blocks, or fewer consumers: tile m would be {step}, it is at most {high}"
    return reason, _other_extent(problem, c, arch, axis)


@BOOK.declare_form(_BLOCK_TILE, "tile", element=1)
def block_tile(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _block_tile(problem, c, arch, 1)


@BOOK.declare_form(_BLOCK_TILE, "tile", element=0)
def block_tile_rows(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return _block_tile(problem, c, arch, 0)


@BOOK.declare_form(
    Rule(
        "tile-k",
        "tile k is a multiple of the MMA's K extent: 16 for 16-bit types, 32 for 8-bit ones",
        "One MMA instruction contracts 32 bytes of K. 64 elements of a 16-bit type or 128 of an 8-bit one fill a "
        "128-byte swizzled row, the widest; a smaller tile k makes `auto` choose a narrower swizzle.",
        "tiling: {tile: [128, 256, 72]}",
    ),
    "tile",
    element=2,
)
def tile_k(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    k, step = c.tile[2], arch.mma_k(problem.a.dtype)
    if k % step == 0:
        return None
    other, full = _other_extent(problem, c, arch, 2), problem.a.dtype.fit(SWIZZLES[0])

    def advise() -> str:
        words = other()
        return words if words == f"use {full}" else f"{words}; {full} fills a {SWIZZLES[0]}-byte row"

    return f"tile k = {k} is not a multiple of {step}, the K extent of one {arch.mma} of {problem.a.dtype}", advise


@BOOK.declare_form(
    Rule(
        "stages",
        f"the A/B ring has {MIN_STAGES} to {MAX_STAGES} stages",
        "With one stage the producer and the consumers would take turns instead of overlapping.",
        "pipeline: {stages: 1}",
    ),
    "stages",
)
def stages(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if MIN_STAGES <= c.stages <= MAX_STAGES:
        return None
    return f"{c.stages} stages; the ring has {MIN_STAGES} to {MAX_STAGES}", "leave it `auto` for the most that fits"


@BOOK.declare_form(
    Rule(
        "epilogue-stages",
        f"the ring of stored epilogue tiles has {MIN_STAGES} to {MAX_STAGES} stages",
        "Each stage holds one epilogue tile of each output until TMA has read it; one is written while another leaves.",
        "pipeline: {epilogue_stages: 1}",
    ),
    "store_stages",
)
def epilogue_stages(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if MIN_STAGES <= c.store_stages <= MAX_STAGES:
        return None
    return f"{c.store_stages} epilogue stages; the ring has {MIN_STAGES} to {MAX_STAGES}", "use 2, or leave it `auto`"


@BOOK.declare_form(
    Rule(
        "load-stages",
        f"the ring of loaded epilogue tiles has 1 to {MAX_STAGES} stages, and exists when the epilogue reads a tile",
        "Operands as large as the output are loaded by TMA through a ring of their own.",
        "pipeline: {load_stages: 2}   # with an epilogue that reads no (m, n) tensor",
    ),
    "load_stages",
)
def load_stages(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    if not problem.kernel_epilogue.tiles:
        reason = f"{c.load_stages} load stages, but the epilogue loads no (m, n) tensor"
        return None if c.load_stages == 0 else (reason, "remove `load_stages`")
    if 1 <= c.load_stages <= MAX_STAGES:
        return None
    return f"{c.load_stages} load stages; the ring has 1 to {MAX_STAGES}", "use 2, or leave it `auto`"


@BOOK.declare_form(REGISTER_VALUES, "producer_registers", "consumers", only="sm_90a")
def producer_registers(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return check_value(arch, threads(c), "producer", c.producer_registers)


@BOOK.declare_form(REGISTER_VALUES, "consumer_registers", "consumers", only="sm_90a")
def consumer_registers(problem: GemmProblem, c: Candidate, arch: Arch) -> Objection | None:
    return check_value(arch, threads(c), "consumer", c.consumer_registers)
