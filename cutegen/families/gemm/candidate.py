"""One concrete choice of every user-level knob, and the table that names the knobs in a spec and in a lock."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from cutegen.families.declared_knobs import DeclaredKnob, insert_knobs, insert_structural
from cutegen.families.gemm import cta_pair
from cutegen.families.gemm.features.gather import knobs as gather
from cutegen.families.gemm.features.last_tile import knobs as last_tile
from cutegen.families.gemm.features.load_ahead import knobs as load_ahead
from cutegen.families.gemm.features.split_k import knobs as split_k
from cutegen.families.knobs import Knob, boolean, either, integer, integers, word
from cutegen.families.pdl import PDL_TRIGGERS

if TYPE_CHECKING:
    from cutegen.families.gemm.problem import GemmProblem

# The words that a knob may have, for the spec, the lock and the search.
Schedule: TypeAlias = Literal["cooperative", "pingpong"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
RasterOrder: TypeAlias = Literal["along_m", "along_n"]
RASTER_ORDERS: tuple[RasterOrder, ...] = get_args(RasterOrder)
Scheduler: TypeAlias = Literal["static_persistent", "dynamic_persistent", "clc"]
SCHEDULERS: tuple[Scheduler, ...] = get_args(Scheduler)
Never: TypeAlias = Literal["never"]
NEVER: Never = "never"

# Knobs that features declare. Candidate has their fields.
FEATURE_KNOBS: tuple[DeclaredKnob, ...] = (
    *gather.KNOBS,
    *split_k.KNOBS,
    *last_tile.KNOBS,
    *load_ahead.KNOBS,
    *cta_pair.KNOBS,
)


class Core(NamedTuple):
    """The knobs that a candidate is built around."""

    schedule: str
    consumers: int
    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    swap_ab: bool
    split_k: int = 1
    gather: str = "none"


@dataclass(frozen=True)
class Candidate(gather.Gather, split_k.SplitK, last_tile.LastTile, load_ahead.LoadAhead, cta_pair.CtaPair):
    """Every knob with a value; those of features are in their folders.

    tile: CTA tile (m, n, k), elements. cluster: CTAs (m, n). stages: slots of the A/B ring; store_stages, load_stages:
    slots of the rings of stored and of loaded epilogue tiles (load_stages 0 without loaded tiles). *_registers:
    setmaxnreg per thread. multicast_a: CTAs along n that one load of A feeds (multicast_b: of B, along m); 1 for none.
    swizzle_*: bytes of a swizzled SMEM row. promote_every: MMAs along k that the
    tensor core sums before f32 registers take the sum, or "never".
    """

    schedule: str
    consumers: int
    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    stages: int
    store_stages: int
    load_stages: int
    producer_registers: int
    consumer_registers: int
    multicast_a: int
    multicast_b: int
    swizzle_a: int
    swizzle_b: int
    raster_order: str
    raster_group: int
    scheduler: str
    swap_ab: bool
    pdl_wait: bool
    pdl_trigger: str
    promote_every: int | str

    @property
    def promotes(self) -> bool:
        """Whether the sum is kept in f32 registers beside the tensor core's accumulator."""
        return self.promote_every != NEVER

    @property
    def dynamic(self) -> bool:
        """Whether CTAs get their tiles when they are ready for one."""
        return self.scheduler != "static_persistent"

    @property
    def counts_tiles(self) -> bool:
        """Whether they claim them from a counter in global memory."""
        return self.scheduler == "dynamic_persistent"

    @property
    def launch_control(self) -> bool:
        """Whether they take them by cluster launch control."""
        return self.scheduler == "clc"

    @property
    def core(self) -> Core:
        return Core(*(getattr(self, field) for field in Core._fields))

    def vary(self, **values: Any) -> Candidate:
        """dataclasses.replace, which takes ten times as long: a search asks for some twenty variations of a candidate.
        KeyError: no such field."""
        if not values.keys() <= _FIELDS:
            raise KeyError(*(values.keys() - _FIELDS))
        varied = object.__new__(Candidate)
        vars(varied).update(vars(self), **values)
        return varied


_FIELDS = {f.name for f in fields(Candidate)}


def cluster_size(c: Candidate | Core) -> int:
    """CTAs of a cluster."""
    return c.cluster[0] * c.cluster[1]


# `{a}`, `{b}` in a key stand for the mainloop operands.
OWN_KNOBS = (
    Knob("schedule", "warpgroups.schedule", word(*SCHEDULES), part="core"),
    Knob("consumers", "warpgroups.consumer.count", integer(), part="core"),
    Knob("tile", "tiling.tile", integers(3), part="core"),
    Knob("cluster", "tiling.cluster", integers(2), part="core"),
    Knob("stages", "pipeline.stages", integer(), part="around"),
    Knob("store_stages", "pipeline.epilogue_stages", integer(), part="around"),
    Knob("load_stages", "pipeline.load_stages", integer(), part="around"),
    Knob("producer_registers", "warpgroups.producer.registers", integer(), part="around"),
    Knob("consumer_registers", "warpgroups.consumer.registers", integer(), part="around"),
    Knob("multicast_a", "tma.{a}.multicast", integer(), part="around"),
    Knob("multicast_b", "tma.{b}.multicast", integer(), part="around"),
    Knob("swizzle_a", "tma.{a}.swizzle", integer(), part="around"),
    Knob("swizzle_b", "tma.{b}.swizzle", integer(), part="around"),
    Knob("raster_order", "tiling.raster.order", word(*RASTER_ORDERS), part="around"),
    Knob("raster_group", "tiling.raster.group", integer(), part="around"),
    Knob("scheduler", "scheduler", word(*SCHEDULERS), part="around"),
    Knob("swap_ab", "tiling.swap_ab", boolean, part="core"),
    Knob("pdl_wait", "pdl.wait", boolean),
    Knob("pdl_trigger", "pdl.trigger", word(*PDL_TRIGGERS)),
    Knob("promote_every", "accumulate.promote_every", either(integer(), word(NEVER)), part="around"),
)
KNOBS = insert_knobs(OWN_KNOBS, FEATURE_KNOBS)

# Which text a kernel module has; every other knob is a number that its instances differ in.
_OWN_STRUCTURAL = (
    "schedule", "scheduler", "swap_ab", "pdl_wait", "pdl_trigger", "promote_every",
)  # fmt: skip
STRUCTURAL = insert_structural(_OWN_STRUCTURAL, FEATURE_KNOBS)


# What a kernel has whose warpgroups multiply; where sums are in tensor memory they say nothing.
OF_WARPGROUPS = ("schedule", "consumers", "producer_registers", "consumer_registers")


def idle_knobs(problem: GemmProblem, c: Candidate) -> frozenset[str]:
    """Fields that say nothing and are in no lock: no tile is loaded, sums are not promoted; or what a
    feature says of its own."""
    idle = {
        "load_stages": c.load_stages == 0,
        **{one.knob.field: one.is_idle(problem, c) for one in FEATURE_KNOBS},
        "promote_every": not problem.promotable,
    }
    return frozenset(field for field, says_nothing in idle.items() if says_nothing)


def structure(c: Candidate) -> tuple[object, ...]:
    """The structural knobs; instances of one module have the same."""
    return tuple(getattr(c, field) for field in STRUCTURAL)


def knobs_of(problem: GemmProblem) -> tuple[Knob, ...]:
    """KNOBS with the names of the problem's operands, less those of warpgroups where none multiplies."""
    names = {"a": problem.a.name, "b": problem.b.name}
    without = OF_WARPGROUPS if problem.target.tensor_memory else ()
    return tuple(replace(knob, key=knob.key.format(**names)) for knob in KNOBS if knob.field not in without)
