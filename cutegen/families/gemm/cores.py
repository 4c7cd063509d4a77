"""What a GEMM candidate is built around: tiles, schedules, clusters and splits, ordered by the cost model where shapes
are known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutegen.arch import ARCHS, Arch, Device, default_device
from cutegen.arch.architecture import SWIZZLES
from cutegen.families.gemm.candidate import NEVER, Candidate, Core
from cutegen.families.gemm.cost_model import Estimate, Shape, describe_work, estimate
from cutegen.families.gemm.features.feature_list import FEATURES, as_multiplied, ctas_per_tile
from cutegen.families.gemm.form_rules import MAX_STAGES, MIN_STAGES
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.orientation import kernel_shape
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.pdl import PDL_TRIGGER, PDL_WAIT
from cutegen.runtime.gemm.pieces import SWIZZLE_ROWS

# Where a shape is known the cost model ranks these as well: (schedule, consumers, tile m), each with every tile n.
GRID = (
    ("cooperative", 2, 128),
    ("cooperative", 2, 256),
    ("pingpong", 2, 128),
    ("pingpong", 2, 64),
    ("cooperative", 3, 192),
    ("cooperative", 1, 128),
    ("cooperative", 1, 64),
)
# For known shapes, where L2 would give the same rows to each of three or four tiles: 8% less time at 312, 3840, 15360.
# WIDE_AREA: elements of the smallest tile that they were the best with.
WIDE_AREA = 64 * 96
WIDE_CLUSTERS = {
    (4, 1): "four CTAs along m share each tile of B",
    (1, 4): "four CTAs along n share each tile of A",
}
# Up to here, transposed, for few rows, tile n in steps of 8; elsewhere in steps of 16, as rows of 8 columns are half of
# what memory writes at once.
FINE_N = 64
COARSE_N = (8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 208, 256)
# Tile k, in elements of 2 bytes, and up to which tile n it is proposed. One of 128 halves the barriers: 2% less time
# where tiles are small. One of 256 took 2 to 5% less again beside 8 columns, but with 16 up to 8% more.
DEPTHS = {64: 256, 128: 64, 256: 8}
RASTER_GROUP = 8
PROMOTED_K = 128  # elements of k between promotions: the interval of cuBLAS and of 128-block scales
ANY_SHAPE = (Shape(1, 1, 1),)  # where the extents do not matter, but that the model ranks
COST_MODEL = "cost model"  # how its reasons begin
EPILOGUE_BYTES = 24 * 1024  # of SMEM, beside the ring: what most tiles keep, for judging them before they are complete


def propose_cores(
    problem: GemmProblem, fixed: Mapping[str, Any], device: Device, shapes: Sequence[Shape], form: Mapping[str, Any]
) -> dict[Core, tuple[str, str]]:
    """Cores with the fixed knobs, best first; of each why it has its tile and why its cluster. form: knobs of
    all, see Feature."""
    problem = as_multiplied(problem, form)
    found = {
        core: why
        for core, why in _list_cores(problem, fixed, shapes, form)
        if core.cluster == fixed.get("cluster") or not _idles(core, shapes)
    }
    if not shapes:
        return found
    works = [describe_work(problem, shape, device) for shape in shapes]
    for feature in FEATURES:
        found |= {more: found[core] for core in found for more in feature.propose(problem, fixed, core, works, device)}
    stages = {core: fixed.get("stages") or stages_of(problem, core, device) for core in found}
    ranked = rank(problem, stages, device, shapes, fixed.get("promote_every"))
    return {core: (why, why) for core, why in ranked.items()}


def pool_cores(problem: GemmProblem, fixed: Mapping[str, Any], form: Mapping[str, Any], coarse: bool) -> Iterator[Core]:
    """The cores with the fixed knobs that the cost model may rank for some shape, of whole k. coarse: fewer tiles n."""
    for core, _ in _list_cores(problem, fixed, ANY_SHAPE, form):
        if not coarse or "tile" in fixed or core.tile[1] in COARSE_N:
            yield core


def _list_cores(
    problem: GemmProblem, fixed: Mapping[str, Any], shapes: Sequence[Shape], form: Mapping[str, Any]
) -> Iterator[tuple[Core, tuple[str, str]]]:
    """Cores with the fixed knobs, and why each has its tile and its cluster."""
    low, high, step = problem.target.mma_n
    written = {field: fixed[field] for field in Core._fields if field in fixed}
    # Blocks, pairs of which take up to 256 columns, may leave no registers for a part to promote, or for values that
    # are computed twice; as rows they have room.
    wide = bool(problem.epilogue.block) and "tile" not in fixed
    aligned = [] if shapes else _aligned_cores(problem)
    open_form = not shapes and fixed.get("swap_ab", True) and not fixed.keys() & {"tile", "cluster", "mma_ctas"}
    seen: set[Core] = set()
    for core, why in _flat_cores(problem) if open_form else ():
        yield core._replace(**form, **written), (why, "few rows share no loads")
    for swap_ab in (False, True) if shapes or wide or aligned else (False,):
        # Where sums are promoted, two warpgroups on a tile of 128 x 128 took 2 to 20% less time than each on its own.
        cores = sorted(
            lowering_of(problem).list_cores(problem), key=lambda core: problem.promotable and core[0] == "pingpong"
        )
        if shapes:
            columns = (*range(high, FINE_N, -2 * step), *range(FINE_N, low - 1, -step if swap_ab else -2 * step))
            depths = {n: tuple(k for k, most in DEPTHS.items() if n <= most) for n in columns}
            cores += [(s, g, (m, n, k), "") for s, g, m in GRID for n in columns for k in depths[n]]
        elif aligned and swap_ab == (problem.groups is not None and problem.groups.along == "m"):
            cores += aligned
        for schedule, consumers, (tile_m, tile_n, tile_k), why in cores:
            tile = (tile_m, tile_n, _whole_blocks(problem.a.dtype.fit(2 * tile_k), problem.scaled_k))
            for cluster, why_cluster in _clusters(problem, swap_ab, tile if shapes else None):
                core = Core(schedule, consumers, tile, cluster, swap_ab, **form)
                core = core._replace(**written) if written else core
                if core not in seen:
                    seen.add(core)
                    yield core, (why, why_cluster)


def _flat_cores(problem: GemmProblem) -> Iterator[tuple[Core, str]]:
    """Of few rows, where no rates rank candidates; before each, where extents are known, those that use more SMs."""
    device = default_device(problem.arch)
    for core, why in lowering_of(problem).list_flat_cores(problem):
        extents = (core.tile[1], problem.n.value, problem.k.value, problem.batch.value if problem.batch else 1)
        if device and device.facts and all(extents):
            shape = Shape(*(extent or 1 for extent in extents))
            for feature in FEATURES:
                for more, gain in feature.propose_unrated(problem, core, shape, device.facts.sms):
                    yield more, f"{why}, and {gain}"
        yield core, why


def _whole_blocks(tile_k: int, scaled_k: int) -> int:
    """The fewest elements, of tile k and above, that blocks of scales divide."""
    return -(-tile_k // scaled_k) * scaled_k if scaled_k else tile_k


def _aligned_cores(problem: GemmProblem) -> list[tuple[str, int, tuple[int, int, int], str]]:
    """More of CORES where groups are aligned to rows that no tile m divides: tiles whose columns divide them."""
    groups, (low, high, step) = problem.groups, problem.target.mma_n
    if groups is None or groups.form != "labels" or groups.align % problem.target.mma_m == 0:
        return []
    columns = [n for n in range(high, low - 1, -step) if groups.align % n == 0]
    why = f"as wide as the alignment of groups to {groups.align} rows lets it be"
    rows = [(2, 256), (2, 128)] if not problem.target.tensor_memory else [(1, problem.target.mma_m)]
    return [("cooperative", consumers, (m, n, 64), why) for n in columns for consumers, m in rows]


def _clusters(
    problem: GemmProblem, swap_ab: bool, tile: tuple[int, int, int] | None
) -> list[tuple[tuple[int, int], str]]:
    """Those of the architecture; where rows fall into groups, those along the rows last: a CTA past the end of a group
    has no work. Where TMA does not load the rows, none along the other dim: its CTAs would share what each copies.
    tile: of a core for known shapes, which may have wide clusters too."""
    along_rows = 1 if swap_ab else 0
    lowering = lowering_of(problem)
    found = [item for item in lowering.clusters.items() if len(problem.by_tma) > 1 or item[0][1 - along_rows] == 1]
    if tile and problem.groups is None and len(problem.by_tma) > 1:
        found += [item for item in WIDE_CLUSTERS.items() if _shares(problem, swap_ab, tile, item[0])]
    return sorted(found, key=lambda item: problem.groups is not None and item[0][along_rows] > 1)


def _shares(problem: GemmProblem, swap_ab: bool, tile: tuple[int, int, int], cluster: tuple[int, int]) -> bool:
    """Whether CTAs of a wide cluster can share what they have in common (the rule `multicast`), and tiles are as large
    as where L2 is short of bandwidth."""
    operands = (problem.b, problem.a) if swap_ab else (problem.a, problem.b)
    axis = 1 if cluster[0] > 1 else 0
    operand, peers = operands[axis], max(cluster)
    step = SWIZZLE_ROWS if operand.major == "k" else operand.dtype.fit(SWIZZLES[0])
    return tile[0] * tile[1] >= WIDE_AREA and tile[axis] % (peers * step) == 0


def _idles(core: Core, shapes: Sequence[Shape]) -> bool:
    """Whether CTAs of a cluster have no tile in any of the shapes."""
    extents = [kernel_shape(shape, core) for shape in shapes]
    peers = list(zip(core.tile, core.cluster))
    return bool(shapes) and all(any(x <= t * (cl - 1) for x, (t, cl) in zip(shape, peers)) for shape in extents)


def rank(
    problem: GemmProblem,
    stages: Mapping[Core, int],
    device: Device,
    shapes: Sequence[Shape],
    promote_every: int | str | None = None,
) -> dict[Core, str]:
    """The cores, given with the stages of their rings, ordered by the cost model, with its reason: by the sum over
    shapes of clocks / fewest clocks, then by what an SM loads and by its work, which tell candidates apart that all
    wait for memory. What a feature handicaps, as splits through scratch, has to win by a margin. Equals, of
    which there are many, come in an order of their own: see prefer. promote_every: the written one; None: what `auto`
    takes."""
    works = [describe_work(problem, shape, device) for shape in shapes]
    sketches = [sketch(problem, core, stages[core], device, promote_every) for core in stages]
    estimates = [[estimate(c, work, device) for work in works] for c in sketches]
    best = [min(row[i].clocks for row in estimates) for i in range(len(works))]
    scores = []
    for core, c, row in zip(stages, sketches, estimates):
        clocks = sum(e.clocks * 10**6 // fewest for e, fewest in zip(row, best)) * _weight(c)
        scores.append((clocks, sum(e.from_l2 for e in row), sum(e.busy for e in row), *prefer(problem, core)))
    cores = list(stages)
    order = sorted(range(len(cores)), key=lambda i: scores[i])
    if len(shapes) > 1:
        names = [shape.name(problem) for shape in shapes]
        return {cores[i]: _why_several(names, [e.clocks for e in estimates[i]], best) for i in order}
    name = shapes[0].name(problem)
    return {cores[i]: _why_one(name, ctas_per_tile(cores[i]), estimates[i][0]) for i in order}


def _why_one(shape: str, parts: int, e: Estimate) -> str:
    each = f" x {parts} parts" * (parts > 1)
    waves = f"{e.tiles // parts} tiles{each} in {e.waves} wave{'s' * (e.waves != 1)} of {e.slots} CTAs"
    return f"{COST_MODEL} for {shape}: {waves}, bound by {e.bound}"


def _why_several(shapes: Sequence[str], clocks: Sequence[int], best: Sequence[int]) -> str:
    """No single one of several problems is the reason; the one that pays most for the others is named."""
    worst = max(range(len(shapes)), key=lambda i: clocks[i] * 10**6 // best[i])
    percent = 100 * (clocks[worst] - best[worst]) // best[worst]
    pays = f"at worst {percent}% slower than that, for {shapes[worst]}" if percent else "within 1% of that for each"
    return f"{COST_MODEL}: the least sum of times relative to the best over {len(shapes)} problems; {pays}"


def promotion(problem: GemmProblem, c: Candidate | Core, arch: Arch) -> tuple[int | str, str]:
    """(promote_every, reason), as `auto` has it."""
    if problem.scaled_k:
        every = max(1, problem.scaled_k // arch.mma_k(problem.a.dtype))
        return every, f"scales change every {problem.scaled_k} elements of k"
    if not problem.mma.rounds:
        return NEVER, f"sums are in {problem.mma.accumulator}"
    mma_k = arch.mma_k(problem.a.dtype)
    every = math.gcd(max(1, c.tile[2] // mma_k), PROMOTED_K // mma_k)
    return every, f"every {every * mma_k} elements of k: the tensor core keeps some 14 bits of a sum of fp8 products"


def sketch(
    problem: GemmProblem, core: Core, stages: int, device: Device, promote_every: int | str | None = None
) -> Candidate:
    """What the cost model judges of a core: the ring it will have, and how its sums are promoted."""
    arch = ARCHS[device.arch]
    c = bare(core, stages, promote_every or promotion(problem, core, arch)[0])
    for feature in FEATURES:
        c = feature.sketch(problem, c, arch)
    return c


def prefer(problem: GemmProblem, core: Core) -> tuple[object, ...]:
    """An order of candidates that the model cannot tell apart. Clusters along the problem's n last: of such pairs those
    along m, whose CTAs share rows of n, were the faster ones in three of four; of groups the other way, see _clusters.
    Then not transposed, then pingpong, where neither was faster; but last where sums are promoted, as in CORES."""
    rows = 1 if core.swap_ab else 0
    axis = rows if problem.groups is not None else 1 - rows
    return core.cluster[axis] > 1, core.swap_ab, (core.schedule == "pingpong") == problem.promotable, core


def _weight(c: Candidate) -> int:
    """Percent."""
    return 100 * 100 // (100 - sum(feature.handicap(c) for feature in FEATURES))


def stages_of(problem: GemmProblem, core: Core, device: Device) -> int:
    """The stages that a candidate around the core will have, or nearly: exact ones take a map of SMEM for each."""
    (m, n, k), arch = core.tile, ARCHS[device.arch]
    reserved = EPILOGUE_BYTES + sum(feature.sketch_smem(core) for feature in FEATURES)
    most = (arch.smem_bytes - reserved) // max(problem.a.dtype.size((m + n) * k), 1)
    return min(max(most, MIN_STAGES), MAX_STAGES)


def bare(core: Core, stages: int = MIN_STAGES, promote_every: int | str = NEVER) -> Candidate:
    """A candidate with the knobs that stand in the core; the others have neutral values."""
    return _BARE.vary(**core._asdict(), stages=stages, promote_every=promote_every)


_BARE = Candidate(
    schedule="cooperative", consumers=1, tile=(64, 64, 64), cluster=(1, 1), swap_ab=False,
    stages=MIN_STAGES, store_stages=MIN_STAGES, load_stages=0, producer_registers=40, consumer_registers=232,
    multicast_a=1, multicast_b=1, swizzle_a=SWIZZLES[0], swizzle_b=SWIZZLES[0],
    raster_order="along_m", raster_group=RASTER_GROUP, scheduler="static_persistent",
    pdl_wait=PDL_WAIT, pdl_trigger=PDL_TRIGGER, promote_every=NEVER,
)  # fmt: skip
