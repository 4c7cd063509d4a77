"""One concrete choice of every user-level knob, and the table that names the knobs in a spec and in a lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from cutegen.arch.architecture import Arch
from cutegen.families.knobs import Knob, boolean, integer, word
from cutegen.families.pdl import PDL_TRIGGERS

Kernel: TypeAlias = Literal["seesaw", "seesaw_2cta", "keys_on_m", "pair"]
CLUSTERS: dict[Kernel, int] = {"seesaw": 1, "seesaw_2cta": 2, "keys_on_m": 1, "pair": 2}  # CTAs of a cluster
KEYS_ON_M: Kernel = "keys_on_m"  # for few rows
PAIR: Kernel = "pair"  # that of sm_100a
Both: TypeAlias = Literal["both"]
BOTH: Both = "both"  # kernels of either, chosen at every call
Variant: TypeAlias = Literal[Kernel, Both]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
MAX_UNIT = 2  # key blocks: those of a step
# The calls that `unit: any` gives single key blocks: at most so many rows, of at most so many requests. Measured on an
# H200: up to 11% faster with 1024 keys, up to 30% where two CTAs share columns, up to 2% slower with 16384; other calls
# mostly slower.
SINGLE_BLOCKS = ((64, 8), (128, 4), (256, 1))
SINGLE_ROWS = max(rows for rows, _ in SINGLE_BLOCKS)
_LESS = [f"{rows} of {batch if batch > 1 else 'one'}" for rows, batch in SINGLE_BLOCKS[1:]]
SINGLE_CALLS = "up to {} rows of {} requests, ".format(*SINGLE_BLOCKS[0]) + " or ".join(_LESS)
MAX_OVERHEAD = 64  # pairs of blocks; a request that costs more than 8192 keys beside its own is no request
MAX_JOIN_RATIO = 1024
JOIN_RATIO = 100  # unless a spec or a winner says another one
MAX_PREFETCH = 1  # pairs of blocks: the K warp knows the pages of one pair ahead
MOST_PIECES = 4  # parts of a request, where bits may not depend on the batch
ANY = "any"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Every knob with a value.

    max_splits: most parts of one request, or ANY. unit: as in MlaTiling, or ANY: chosen at every call. overhead,
    join_ratio, pdl_*: as there. split_columns: too, but of several kernels for one CTA only the last. prefetch: too,
    but seesaw as one of both fetches nothing ahead. *_registers: setmaxnreg per thread; 0: none, as in the kernel of a
    pair.
    """

    variant: Variant
    max_splits: int | str
    unit: int | str
    overhead: int
    join_ratio: int
    split_columns: bool
    prefetch: int
    pdl_wait: bool
    pdl_trigger: str
    pdl_schedule_ahead: bool
    pdl_load_ahead: bool
    producer_registers: int
    consumer_registers: int

    @property
    def cluster(self) -> int:
        return 1 if self.variant == BOTH else CLUSTERS[self.variant]

    def instances(self) -> tuple[Candidate, ...]:
        """One candidate for each kernel that is built; the first, of several one CTA with pairs of blocks, runs what no
        other one is for."""
        if self.variant in ("seesaw_2cta", PAIR):
            return (self,)
        units = (MAX_UNIT, 1) if self.unit == ANY else (self.unit,)
        one = replace(self, variant="seesaw", prefetch=0) if self.variant == BOTH else self
        ones = (replace(one, unit=u, split_columns=self.split_columns and u == units[-1]) for u in units)
        if self.variant != BOTH:
            return tuple(ones)
        return (*ones, replace(self, variant="seesaw_2cta", unit=units[0], split_columns=False))


def keep_single(knobs: Mapping[str, Any], decided: Candidate) -> dict[str, Any]:
    """Knobs by field, without the values that stand for several kernels: those of `decided`, of which one at most has
    split_columns."""
    several: dict[str, object] = {"variant": BOTH, "unit": ANY}
    if len(decided.instances()) > 1:
        several["split_columns"] = True
    return {field: value for field, value in knobs.items() if value != several.get(field)}


def _or_any(read: Callable[[object], int]) -> Callable[[object], int | str]:
    def read_either(value: object) -> int | str:
        try:
            return ANY if value == ANY else read(value)
        except ValueError as error:
            raise ValueError(f"{error} or {ANY}") from None

    return read_either


KNOBS: tuple[Knob, ...] = (
    Knob("variant", "variant", word(*VARIANTS), part="core"),
    Knob("max_splits", "split_kv.max", _or_any(integer())),
    Knob("unit", "scheduler.unit", _or_any(integer(1, MAX_UNIT)), part="around"),
    Knob("overhead", "scheduler.overhead", integer(1, MAX_OVERHEAD)),
    Knob("join_ratio", "scheduler.join_ratio", integer(1, MAX_JOIN_RATIO)),
    Knob("split_columns", "scheduler.split_columns", boolean, part="around"),
    Knob("prefetch", "pipeline.prefetch", integer(0, MAX_PREFETCH), part="around"),
    Knob("pdl_wait", "pdl.wait", boolean),
    Knob("pdl_trigger", "pdl.trigger", word(*PDL_TRIGGERS)),
    Knob("pdl_schedule_ahead", "pdl.schedule_ahead", boolean),
    Knob("pdl_load_ahead", "pdl.load_ahead", boolean),
    Knob("producer_registers", "warpgroups.producer.registers", integer()),
    Knob("consumer_registers", "warpgroups.consumer.registers", integer()),
)
REGISTERS = ("producer_registers", "consumer_registers")


def list_knobs(arch: Arch) -> tuple[Knob, ...]:
    """Those that there are: threads whose sums are in tensor memory keep the registers that they are launched with."""
    return tuple(knob for knob in KNOBS if not (arch.tensor_memory and knob.field in REGISTERS))
