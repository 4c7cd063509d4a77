"""`auto`: ordered lists with reasons; written knobs are constraints, and the first legal candidate wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cutegen.arch import Arch, Device
from cutegen.arch.architecture import SETMAXNREG_MIN, SWIZZLES, WARPGROUP_THREADS
from cutegen.families.decide import Choice
from cutegen.families.gemm.budget_rules import most_stages, other_registers
from cutegen.families.gemm.candidate import (
    Candidate,
    Core,
    cluster_size,
)
from cutegen.families.gemm.cores import (
    RASTER_GROUP,
    bare,
    promotion,
    propose_cores,
)
from cutegen.families.gemm.cost_model import Shape
from cutegen.families.gemm.derived import accumulators, contiguous_extent, may_spill, sharing_ctas, subtiles, threads
from cutegen.families.gemm.features.feature import MANY_ROWS
from cutegen.families.gemm.features.feature_list import FEATURES, list_forms
from cutegen.families.gemm.form_rules import MAX_STAGES, MIN_STAGES
from cutegen.families.gemm.load_rules import multicast_a, multicast_b
from cutegen.families.gemm.lowering import lowering_of
from cutegen.families.gemm.orientation import exchange_sides, kernel_frame, kernel_shape, spec_frame
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rules import refusals
from cutegen.families.gemm.shared_memory import smem_size
from cutegen.families.pdl import PDL_TRIGGER, PDL_WAIT, WHY_WAIT, why_trigger
from cutegen.families.refusal import Refusal
from cutegen.families.register_rules import most_consumer_registers

# consumers -> setmaxnreg pairs (producer, consumer); with two and three consumers they use up the register file.
REGISTERS = {1: ((40, 232), (40, 240)), 2: ((40, 232), (24, 240)), 3: ((32, 160),)}
# (stored, loaded) epilogue slots to begin with, and the A/B stages that must remain: loads are waited for, stores not.
RINGS = ((2, 4, 4), (2, 2, MIN_STAGES), (2, 1, MIN_STAGES))
# Where sums are promoted, tiles are cooperative and their MMAs take half the time: the epilogue in between weighs more
# than an A/B stage beyond the third.
PROMOTED_RINGS = ((4, 4, 4), (4, 2, 3), *RINGS)
RING_GROWTH = 4  # epilogue slots that leftover SMEM buys
MAX_CONSUMER_REGISTERS = 240


def choose(
    problem: GemmProblem,
    fixed: Mapping[str, Any],
    arch: Arch,
    device: Device,
    shapes: Sequence[Shape],
    refuse: Callable[[Candidate], Refusal | None] = lambda c: None,
) -> Choice | tuple[Refusal, ...]:
    """The first legal candidate with the `fixed` knobs (by Candidate field), those last that may spill; else what
    refuses the nearest. refuse: what refuses a candidate beside the rules."""
    nearest = refuse_form(problem, fixed, arch, device, shapes)
    if nearest:
        return nearest
    spare: Choice | None = None
    for choice in candidates(problem, fixed, arch, device, shapes):
        found = (*refusals(problem, choice.candidate, arch), *filter(None, [refuse(choice.candidate)]))
        if not found:
            if "tile" in fixed or not may_spill(*kernel_frame(problem, choice.candidate)):
                return choice
            spare = spare or choice
        elif not nearest or (found[0].form, len(found)) < (nearest[0].form, len(nearest)):
            nearest = found
    return spare or nearest


def refuse_form(
    problem: GemmProblem, fixed: Mapping[str, Any], arch: Arch, device: Device, shapes: Sequence[Shape]
) -> tuple[Refusal, ...]:
    """What refuses a fixed knob of a form that no candidate has, as where no rows are gathered any more."""
    first, *others = list_forms(problem, shapes)
    for field, value in first.items():
        if field in fixed and all(fixed[field] != form[field] for form in (first, *others)):
            nearest = next(candidates(problem, {**fixed, field: value}, arch, device, shapes)).candidate
            found = refusals(problem, nearest.vary(**{field: fixed[field]}), arch)
            return tuple(r for r in found if field in r.knobs)[:1]
    return ()


def candidates(
    problem: GemmProblem, fixed: Mapping[str, Any], arch: Arch, device: Device, shapes: Sequence[Shape]
) -> Iterator[Choice]:
    """Candidates with the fixed knobs, best first."""
    for form in list_forms(problem, shapes):
        if all(fixed.get(field, value) == value for field, value in form.items()):
            for core, (why_tile, why_cluster) in propose_cores(problem, fixed, device, shapes, form).items():
                yield finish(problem, fixed, core, arch, shapes, why_tile, why_cluster)


def finish(
    problem: GemmProblem,
    fixed: Mapping[str, Any],
    core: Core,
    arch: Arch,
    shapes: Sequence[Shape],
    why_tile: str,
    why_cluster: str,
) -> Choice:
    """The candidate around a core, with the fixed knobs; the others get values in the kernel's frame."""
    framed, c = kernel_frame(problem, bare(core))
    knobs = exchange_sides(fixed) if core.swap_ab else fixed
    settling = _Settling(framed, knobs, core, arch, [kernel_shape(shape, c) for shape in shapes])
    settling.core(why_tile, why_cluster)
    for feature in FEATURES:
        feature.settle(settling)
    settling.loads()
    settling.registers()
    settling.rings()
    settling.order()
    for feature in FEATURES:
        feature.settle_last(settling)
    settling.rows()
    settling.neighbours()
    reasons = exchange_sides(settling.reasons) if core.swap_ab else settling.reasons
    return Choice(kernel_frame(problem, settling.c)[1], reasons)


class _Settling:
    """A candidate whose knobs get their values and reasons one after the other, each by what those before it are."""

    def __init__(
        self, problem: GemmProblem, fixed: Mapping[str, Any], core: Core, arch: Arch, shapes: Sequence[Shape]
    ) -> None:
        self.problem, self.fixed, self.arch, self.shapes = problem, fixed, arch, shapes
        self.c = bare(core).vary(**fixed) if fixed else bare(core)
        self.reasons: dict[str, str] = {}

    def settle(self, reason: str, **values: Any) -> None:
        """Values by candidate field; those that are fixed stay, and need no reason."""
        changed = {}
        for field, value in values.items():
            if field not in self.fixed:
                self.reasons[field] = reason
                if getattr(self.c, field) != value:
                    changed[field] = value
        if changed:
            self.c = self.c.vary(**changed)

    def core(self, why_tile: str, why_cluster: str) -> None:
        """The reasons of what is settled by the core, and promotion, which takes registers."""
        c = self.c
        self.settle(why_tile, tile=c.tile)
        self.settle("goes with the tile", schedule=c.schedule, consumers=c.consumers)
        self.settle(why_cluster, cluster=c.cluster)
        self.settle("goes with the cluster", mma_ctas=lowering_of(self.problem).count_mma_ctas(c))
        every, reason = promotion(self.problem, c, self.arch)
        self.settle(reason, promote_every=every)

    def fits(self, c: Candidate) -> bool:
        """Whether there are rings for which the candidate's shared memory suffices."""
        return smem_size(self.problem, _rings(self.problem, c, self.fixed, self.arch)) <= self.arch.smem_bytes

    def loads(self) -> None:
        """How A and B come to shared memory."""
        for side, operand in (("a", self.problem.a), ("b", self.problem.b)):
            row = operand.dtype.size(contiguous_extent(self.problem, self.c, side))
            width = next((w for w in SWIZZLES if row % w == 0), SWIZZLES[-1])
            self.settle(f"the widest that divides a tile row of {row} B", **{f"swizzle_{side}": width})
        for side in ("a", "b"):
            peers, why = _multicast(self.problem, self.c, side, self.arch)
            self.settle(why, **{f"multicast_{side}": peers})

    def registers(self) -> None:
        c = self.c
        producer, consumer = _registers(self.problem, c, self.fixed, self.arch)
        reason = f"{accumulators(self.problem, c)} accumulators a thread"
        pool = self.arch.launch_registers(threads(c)) * threads(c) // WARPGROUP_THREADS
        if producer + c.consumers * consumer == pool:
            reason += f"; 1 + {c.consumers} warpgroups use up the register file"
        self.settle(reason, producer_registers=producer, consumer_registers=consumer)

    def rings(self) -> None:
        rings = _rings(self.problem, self.c, self.fixed, self.arch)
        full = "the most that fits SMEM next to the epilogue's rings"
        self.settle("as many as a ring may have" if rings.stages == MAX_STAGES else full, stages=rings.stages)
        self.settle(_why_stores(self.problem, rings), store_stages=rings.store_stages)
        why_loads = f"one for each subtile, up to {RING_GROWTH}, as far as SMEM next to the A/B stages goes"
        self.settle(why_loads, load_stages=rings.load_stages)

    def order(self) -> None:
        """In which order CTAs take tiles, and how they get them."""
        shapes, c = self.shapes, self.c
        along_n = bool(shapes) and sum(s.n > s.m for s in shapes) * 2 < len(shapes)
        why_order = "m and n of the known shapes" if shapes else "the default where no shape is known"
        self.settle(why_order, raster_order="along_n" if along_n else "along_m")
        self.settle("makes a wave of tiles near square: fewer tiles of A and B to read", raster_group=RASTER_GROUP)
        if why_static := next(filter(None, (feature.why_static(c) for feature in FEATURES)), ""):
            self.settle(why_static, scheduler="static_persistent")
        elif cluster_size(c) > 2 and lowering_of(self.problem).claims_tiles:
            late = "GPCs do not hold whole clusters of 4: the last ones start late, and take what is left"
            self.settle(late, scheduler="dynamic_persistent")
        else:
            self.settle("tiles take the same time: all have the same k", scheduler="static_persistent")

    def rows(self) -> None:
        """Which operand has the rows of a tile."""
        blocks = bool(self.problem.epilogue.block)
        holds = "no other tile holds the blocks" if blocks else "no tile m divides the alignment of groups"
        unknown = holds if self.c.swap_ab else f"{MANY_ROWS} where no shape is known"
        flat = lowering_of(self.problem).list_flat_cores(spec_frame(self.problem)) if self.c.swap_ab else ()
        self.settle("goes with the tile" if self.shapes or any(flat) else unknown, swap_ab=self.c.swap_ab)

    def neighbours(self) -> None:
        """What there is to overlap with the kernels in front and behind."""
        self.settle(WHY_WAIT, pdl_wait=PDL_WAIT)
        self.settle(why_trigger(lowering_of(self.problem).trigger_gain), pdl_trigger=PDL_TRIGGER)


def _multicast(problem: GemmProblem, c: Candidate, side: str, arch: Arch) -> tuple[int, str]:
    """How many CTAs of the cluster share a load of that operand, and why; all that can, or none."""
    operand, rule = (problem.a, multicast_a) if side == "a" else (problem.b, multicast_b)
    peers, along = sharing_ctas(c, side)
    if peers > 1 and rule(problem, c.vary(**{f"multicast_{side}": peers}), arch) is None:
        return peers, f"{peers} CTAs of the cluster along {along} share it"
    gathered = operand is problem.gathered
    return 1, "each CTA gathers its own rows" if gathered else f"no CTAs along {along} can share it"


def _registers(problem: GemmProblem, c: Candidate, fixed: Mapping[str, Any], arch: Arch) -> tuple[int, int]:
    """(producer, consumer): the first pair that leaves the accumulators room, one of them being possibly written."""
    least = max(feature.producer_registers(problem, c) for feature in FEATURES)
    pairs = [
        pair
        for pair in REGISTERS.get(c.consumers, REGISTERS[2])
        if fixed.get("producer_registers", pair[0]) == pair[0]
        and fixed.get("consumer_registers", pair[1]) == pair[1]
        and pair[0] >= least
    ]
    if pairs:
        needed = accumulators(problem, c) + other_registers(problem, c)
        return next((pair for pair in pairs if needed <= pair[1]), pairs[-1])
    producer = fixed.get("producer_registers", max(least, SETMAXNREG_MIN))
    most = most_consumer_registers(arch, threads(c), producer, c.consumers)
    return producer, fixed.get("consumer_registers", min(most, MAX_CONSUMER_REGISTERS))


def _why_stores(problem: GemmProblem, c: Candidate) -> str:
    if not c.promotes:
        return f"2, and up to {RING_GROWTH} from SMEM that is left"
    if c.store_stages >= subtiles(problem, c):
        return "a whole tile's: no subtile waits for the store of another"
    first, _, stages = PROMOTED_RINGS[1]
    return f"{first} where {stages} A/B stages remain, and more from SMEM that is left"


def _rings(problem: GemmProblem, c: Candidate, fixed: Mapping[str, Any], arch: Arch) -> Candidate:
    """The first rings that leave their A/B stages, the most of those, then epilogue slots from what SMEM is left."""
    loads = problem.kernel_epilogue.tiles
    slots = max(1, subtiles(problem, c))
    most = {field: min(RING_GROWTH, slots) for field in ("load_stages", "store_stages")}
    if c.promotes:
        most["store_stages"] = min(MAX_STAGES, slots)

    def fits(c: Candidate, stages: int) -> bool:
        return c.stages >= stages and smem_size(problem, c) <= arch.smem_bytes

    for store, load, stages in PROMOTED_RINGS if c.promotes else RINGS:
        rings = {
            "store_stages": max(MIN_STAGES, min(store, most["store_stages"])),
            "load_stages": min(load, most["load_stages"]) if loads else 0,
        }
        c = c.vary(**{field: fixed.get(field, value) for field, value in rings.items()})
        c = c.vary(stages=fixed.get("stages") or most_stages(problem, c, arch))
        if fits(c, min(stages, fixed.get("stages", stages))):
            break
    else:
        return c.vary(stages=max(c.stages, MIN_STAGES))
    for field in ("load_stages", "store_stages") if loads else ("store_stages",):
        while field not in fixed and getattr(c, field) < most[field]:
            grown = c.vary(**{field: getattr(c, field) + 1})
            if not fits(grown, MIN_STAGES):
                break
            c = grown
    return c
