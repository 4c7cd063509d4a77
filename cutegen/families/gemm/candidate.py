"""One concrete choice of every user-level knob, and the table that names the knobs in a spec and in a lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutegen.families.gemm.problem import GemmProblem

SCHEDULES = ("cooperative", "pingpong")
RASTER_ORDERS = ("along_m", "along_n")
SCHEDULERS = ("static_persistent", "dynamic_persistent")
PDL_TRIGGERS = ("none", "last_tile")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Every knob with a value.

    tile: CTA tile (m, n, k), elements. cluster: CTAs (m, n). stages: slots of the A/B ring; store_stages, load_stages:
    slots of the rings of stored and of loaded epilogue tiles (load_stages 0 without loaded tiles). *_registers:
    setmaxnreg per thread. multicast_a: CTAs along n that one load of A feeds (multicast_b: of B, along m); 1 for none.
    swizzle_*: bytes of a swizzled SMEM row.
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
    split_k: int
    swap_ab: bool
    pdl_wait: bool
    pdl_trigger: str


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise ValueError("a positive integer")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _integers(count: int) -> Callable[[object], tuple[int, ...]]:
    def read(value: object) -> tuple[int, ...]:
        if not isinstance(value, (list, tuple)) or len(value) != count:
            raise ValueError(f"{count} positive integers, such as [{', '.join(['1'] * count)}]")
        return tuple(_integer(v) for v in value)

    return read


def _word(words: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return read


@dataclass(frozen=True, slots=True)
class Knob:
    """field: of Candidate. key: dotted path in a spec; `{a}`, `{b}` stand for the mainloop operands.

    read: a plain YAML value to the field's type; ValueError says what is expected.
    """

    field: str
    key: str
    read: Callable[[object], Any]

    def path(self, problem: GemmProblem) -> tuple[str, ...]:
        return tuple(self.key.format(a=problem.a.name, b=problem.b.name).split("."))


KNOBS: tuple[Knob, ...] = (
    Knob("schedule", "warpgroups.schedule", _word(SCHEDULES)),
    Knob("consumers", "warpgroups.consumer.count", _integer),
    Knob("tile", "tiling.tile", _integers(3)),
    Knob("cluster", "tiling.cluster", _integers(2)),
    Knob("stages", "pipeline.stages", _integer),
    Knob("store_stages", "pipeline.epilogue_stages", _integer),
    Knob("load_stages", "pipeline.load_stages", _integer),
    Knob("producer_registers", "warpgroups.producer.registers", _integer),
    Knob("consumer_registers", "warpgroups.consumer.registers", _integer),
    Knob("multicast_a", "tma.{a}.multicast", _integer),
    Knob("multicast_b", "tma.{b}.multicast", _integer),
    Knob("swizzle_a", "tma.{a}.swizzle", _integer),
    Knob("swizzle_b", "tma.{b}.swizzle", _integer),
    Knob("raster_order", "tiling.raster.order", _word(RASTER_ORDERS)),
    Knob("raster_group", "tiling.raster.group", _integer),
    Knob("scheduler", "scheduler", _word(SCHEDULERS)),
    Knob("split_k", "tiling.split_k", _integer),
    Knob("swap_ab", "tiling.swap_ab", _boolean),
    Knob("pdl_wait", "pdl.wait", _boolean),
    Knob("pdl_trigger", "pdl.trigger", _word(PDL_TRIGGERS)),
)


def plain(value: object) -> object:
    """A knob's value as YAML and JSON hold it: tuples become lists."""
    return [plain(v) for v in value] if isinstance(value, tuple) else value
