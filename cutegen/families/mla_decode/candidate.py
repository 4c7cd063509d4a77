"""One concrete choice of every user-level knob, and the table that names the knobs in a spec and in a lock."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutegen.families.knobs import Knob, boolean, integer, word
from cutegen.families.pdl import PDL_TRIGGERS

# kernel -> CTAs of its cluster
CLUSTERS = {"seesaw": 1, "seesaw_2cta": 2}
BOTH = "both"  # kernels of either, chosen at every call
VARIANTS = (*CLUSTERS, BOTH)
MAX_UNIT = 2  # key blocks: those of a step
MAX_OVERHEAD = 64  # pairs of blocks; a request that costs more than 8192 keys beside its own is no request
MAX_JOIN_RATIO = 1024
MAX_PREFETCH = 1  # pairs of blocks: the K warp knows the pages of one pair ahead
ANY = "any"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Every knob with a value.

    max_splits: most parts of one request, or ANY. unit, overhead, join_ratio: as in MlaTiling. prefetch: too, but
    seesaw as one of both fetches nothing ahead. pdl_*: too. *_registers: setmaxnreg per thread.
    """

    variant: str
    max_splits: int | str
    unit: int
    overhead: int
    join_ratio: int
    prefetch: int
    pdl_wait: bool
    pdl_trigger: str
    pdl_schedule_ahead: bool
    producer_registers: int
    consumer_registers: int

    @property
    def cluster(self) -> int:
        return CLUSTERS.get(self.variant, 1)

    def instances(self) -> tuple[Candidate, ...]:
        """One candidate for each kernel that is built."""
        if self.variant != BOTH:
            return (self,)
        return replace(self, variant="seesaw", prefetch=0), replace(self, variant="seesaw_2cta")


def _splits(value: object) -> int | str:
    try:
        return ANY if value == ANY else integer()(value)
    except ValueError as error:
        raise ValueError(f"{error} or {ANY}") from None


KNOBS: tuple[Knob, ...] = (
    Knob("variant", "variant", word(*VARIANTS)),
    Knob("max_splits", "split_kv.max", _splits),
    Knob("unit", "scheduler.unit", integer(1, MAX_UNIT)),
    Knob("overhead", "scheduler.overhead", integer(1, MAX_OVERHEAD)),
    Knob("join_ratio", "scheduler.join_ratio", integer(1, MAX_JOIN_RATIO)),
    Knob("prefetch", "pipeline.prefetch", integer(0, MAX_PREFETCH)),
    Knob("pdl_wait", "pdl.wait", boolean),
    Knob("pdl_trigger", "pdl.trigger", word(*PDL_TRIGGERS)),
    Knob("pdl_schedule_ahead", "pdl.schedule_ahead", boolean),
    Knob("producer_registers", "warpgroups.producer.registers", integer()),
    Knob("consumer_registers", "warpgroups.consumer.registers", integer()),
)
