"""Roles, pipelines and barriers of a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cutegen.arch.architecture import WARP_THREADS
from cutegen.model.smem import MBARRIER, SmemField, SmemRegion

# What warps of a producer warpgroup do that have no role.
IDLE = "idle; present because setmaxnreg acts on a whole warpgroup"


@dataclass(frozen=True, slots=True)
class Warps:
    """Consecutive warps of a CTA by what the header calls them."""

    name: str
    first: int
    count: int = 1

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def covers(self, other: Warps) -> bool:
        return self.first <= other.first and other.last <= self.last

    @property
    def span(self) -> str:
        """`0`, or `4..7`."""
        return f"{self.first}..{self.last}" if self.count > 1 else f"{self.first}"


class Event(NamedTuple):
    """What a role waits for, or else signals: a named barrier, or a side of a pipeline, such as `q full`. each: how
    often, "" once."""

    each: str
    waits: bool
    what: str


@dataclass(frozen=True, slots=True)
class Role:
    """What some warps do, with `registers` a thread. does: in words. events: in the order of time, where that of the
    pipelines does not give it."""

    warps: Warps
    registers: int
    does: str
    events: tuple[Event, ...] = ()

    @property
    def name(self) -> str:
        return self.warps.name


@dataclass(frozen=True, slots=True)
class Arrivals:
    """That complete a phase of an mbarrier. source: their number as the kernel counts them."""

    count: int
    source: str


@dataclass(frozen=True, slots=True)
class Creation:
    """How the kernel makes a pipeline of CuTe DSL that TMA fills. barriers: its field of shared memory. stages, tx: of
    the ring, and bytes of TMA that a full barrier counts, as the kernel names them. full, empty: of its producers, and
    of its consumers over all copies. peers: who they are in a cluster, as arguments."""

    barriers: str
    stages: str
    tx: str
    full: Arrivals
    empty: Arrivals
    peers: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One ring of buffers. kind: how it is filled or drained, such as TmaAsync. stage_bytes: of a full stage. full,
    empty: what completes a full and an empty barrier, in words. fills, drains: the warps that do. made: by the kernel,
    where it is one of CuTe DSL. own_empty: whether it has empty barriers; else
    empty_of: the ring whose empty barriers its producers wait for. each: what of a tile fills a slot, "" all of it."""

    name: str
    kind: str
    producer: str
    consumer: str
    stages: int
    stage_bytes: int
    full: str
    empty: str
    fills: tuple[Warps, ...]
    drains: tuple[Warps, ...]
    made: Creation | None = None
    own_empty: bool = True
    empty_of: str = ""
    each: str = ""


@dataclass(frozen=True, slots=True)
class Mbarriers:
    """The mbarriers of one field of shared memory. count, source, holds: of the field. arrivals: that complete a phase
    of each, as the kernel counts them; who: arrives, "" where it is who loads by TMA. init: the device function that
    initialises them, where there is one. when: the condition for that in the kernel, "" if always; made: whether it
    holds."""

    name: str
    count: int
    source: str
    holds: str
    arrivals: str = ""
    who: str = ""
    init: str = ""
    when: str = ""
    made: bool = True

    @property
    def field(self) -> SmemField:
        return SmemField(self.name, MBARRIER, self.count, self.source, self.holds)


@dataclass(frozen=True, slots=True)
class NamedBarrier:
    """A hardware barrier of the CTA. id: its number. arrive, wait: warps that only arrive, and that wait. says: what
    holds behind it. family: of several that follow each other, a warpgroup each, the name of the first's number.
    within: the pipeline whose slots it makes full; around: those that warps use between waiting and arriving."""

    id: int
    name: str
    arrive: tuple[Warps, ...]
    wait: tuple[Warps, ...]
    says: str
    family: str = ""
    within: str = ""
    around: tuple[str, ...] = ()

    @property
    def threads(self) -> int:
        return WARP_THREADS * sum(warps.count for warps in (*self.arrive, *self.wait))


@dataclass(frozen=True, slots=True)
class KernelModel:
    """One instance of a kernel. pipelines: in the order in which a tile goes through them. mbarriers: those that it
    initialises itself, in that order. barriers: that it uses."""

    roles: tuple[Role, ...]
    pipelines: tuple[Pipeline, ...]
    smem: tuple[SmemRegion, ...]
    mbarriers: tuple[Mbarriers, ...] = ()
    barriers: tuple[NamedBarrier, ...] = ()

    @property
    def warps(self) -> dict[str, Warps]:
        """Of each role, by its name."""
        return {role.name: role.warps for role in self.roles}

    def threads(self, barrier: str) -> int:
        """Of a named barrier, or of each of a family."""
        return next(b.threads for b in self.barriers if barrier in (b.name, b.family))

    def count_mbarriers(self) -> int:
        """Those that are made."""
        held = sum(region.field.elements for region in self.smem if region.field.element is MBARRIER)
        return held - sum(barriers.count for barriers in self.mbarriers if not barriers.made)


def list_waits(model: KernelModel) -> Iterator[tuple[Role, tuple[str, ...], tuple[str, ...]]]:
    """Of each role that waits for another: what it waits for, and what it signals. Named barriers that a pipeline has
    are told by the pipeline; single warps of a role take part in the role's name."""
    told = " ".join(f"{pipe.full} {pipe.empty}" for pipe in model.pipelines)
    for role in model.roles:
        waits, signals = ([e.what for e in role.events if e.waits is side] for side in (True, False))
        if role.events:
            yield role, tuple(dict.fromkeys(waits)), tuple(dict.fromkeys(signals))
            continue
        for pipe in model.pipelines:
            full, empty = [f"{pipe.name} full"], [f"{pipe.name} empty"] * pipe.own_empty
            for side, before, after in ((pipe.fills, empty, full), (pipe.drains, full, empty)):
                if role.warps in side:
                    waits += before
                    signals += after
        for barrier in model.barriers:
            if barrier.name not in told.replace(",", "").split():
                waits += [barrier.name] * any(role.warps.covers(warps) for warps in barrier.wait)
                signals += [barrier.name] * any(role.warps.covers(warps) for warps in barrier.arrive)
        if waits or signals:
            yield role, tuple(waits), tuple(signals)


def name_numbers(barriers: tuple[NamedBarrier, ...]) -> Iterator[tuple[str, int, bool]]:
    """Constants of a kernel module: name, number, and whether a warpgroup's index is added to it."""
    seen = set()
    for barrier in barriers:
        name = barrier.family or barrier.name
        if name not in seen:
            seen.add(name)
            yield name, barrier.id, bool(barrier.family)
