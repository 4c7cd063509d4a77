"""Finds accesses that nothing orders, whatever order they happened to have in this run.

Vector clocks (Flanagan, Freund: "FastTrack", PLDI 2009). The actors are warps, and for each warp the asynchronous
copies and products that it issued. A release (an arrival, a barrier, an atomic) hands on what its actor knows; an
acquire (a wait, a load) takes it. A copy knows what its warp knew when it was issued, and what it did is known to those
who waited for it. An access races with an earlier one that its actor does not know of, if one of them writes.

Lanes of a warp are one actor. To know of a copy is to know of those that its warp issued before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cutegen.machine.parser import PtxError

SCOPES = ("cta", "cluster", "gpu")  # of releases, acquires and fences, from narrow to wide
# Whom the init of an mbarrier is hidden from until the warp that did it fences (PTX ISA, membar / fence).
ASYNC, PEERS = "the async proxy", "other CTAs"


def within(scope: str) -> tuple[str, ...]:
    """The scopes that one of them includes, itself among them; `sys` is as `gpu`."""
    return SCOPES[: SCOPES.index(scope) + 1] if scope in SCOPES else SCOPES


class Agent:
    """Who accesses memory. clock: what it knows, an epoch per actor. epoch: its own. pc: its instruction. early: a copy
    that was issued before the wait for the kernel in front."""

    early = False

    def __init__(self, actor: int, clock: Any, epoch: int, pc: int = 0) -> None:
        self.actor, self.clock, self.epoch, self.pc = actor, clock, epoch, pc

    def acquire(self, other: Any) -> None:
        np.maximum(self.clock, other, out=self.clock)

    def release(self) -> Any:
        """What it knows, to be handed on; what it does from now on is not part of it."""
        known = self.clock.copy()
        self.epoch += 1
        self.clock[self.actor] = self.epoch
        return known


class WarpAgent(Agent):
    """A warp. copies: the actor of what it issues; issued: how many of them. fenced: what it knew at its last fence of
    each scope or a wider one; seen: what it read without acquiring it, until a fence of that scope does. places: the
    CTA and the cluster that it is in."""

    def __init__(self, index: int, actors: int) -> None:
        super().__init__(2 * index + 1, np.zeros(actors, np.int64), 1)
        self.clock[self.actor] = 1
        self.copies, self.issued = 2 * index + 2, 0
        self.fenced = {scope: np.zeros(actors, np.int64) for scope in SCOPES}
        self.seen = {scope: np.zeros(actors, np.int64) for scope in SCOPES}
        self.places: dict[str, int] = {}

    def issue(self) -> Agent:
        """The agent of a copy or product that it issues now."""
        self.issued += 1
        return Agent(self.copies, self.release(), self.issued, self.pc)

    def fence(self, scope: str) -> None:
        """fence.acq_rel and stronger."""
        for inner in within(scope):
            self.acquire(self.seen[inner])
        known = self.release()
        for inner in within(scope):
            self.fenced[inner] = known


def published(agent: Agent) -> Any:
    """What those know who waited for a copy."""
    known = agent.clock.copy()
    known[agent.actor] = max(known[agent.actor], agent.epoch)
    return known


def actor_count(warps: int) -> int:
    return 2 * warps + 1  # 0 is nobody


class Runs:
    """An array with one item for each unit of a memory, seen as runs of equal width: (runs, width), or (units,) for
    1."""

    def __init__(self, array: Any) -> None:
        self._views = {1: array}

    def of(self, width: int) -> Any:
        if (view := self._views.get(width)) is None:
            view = self._views[width] = self._views[1].reshape(-1, width)
        return view


# An access is noted as its epoch, shifted, and its instruction; a write has its actor above them.
EPOCH, ACTOR = 20, 42  # shifts
INSTRUCTION, STAMP = (1 << EPOCH) - 1, (1 << ACTOR) - 1  # masks
PAGE = 1 << 10  # units
LARGE = 1 << 18  # units of a memory of which readers have pages
MIXED = -1


class ChunkStamps:
    """A stamp for each unit of a memory, 0 for never. Chunks of `per` units have one while that of all units is the
    same, and MIXED otherwise."""

    def __init__(self, units: int, per: int = 1) -> None:
        self.per = per
        self._whole = Runs(np.zeros(-(-units // per), np.int64))
        self._units: Runs | None = None  # of the units of chunks that are MIXED

    def of(self, runs: Any, width: int) -> Any:
        """The stamps of these runs of `width` units: (..., width), or (...) where those of each run are the same."""
        if width >= self.per:
            found = self._whole.of(width // self.per).take(runs, 0)
        else:
            found = self._whole.of(1).take(runs // (self.per // width))
        if self._units is None:
            return found
        mixed = found == MIXED
        if not np.count_nonzero(mixed):
            return found
        units = self._units.of(width).take(runs, 0)
        if width == 1:
            return np.where(mixed, units, found)
        if width <= self.per:
            mixed, found = mixed[..., None], found[..., None]
        else:
            mixed, found = mixed.repeat(self.per, -1), found.repeat(self.per, -1)
        return np.where(mixed, units, found)

    def note(self, runs: Any, width: int, stamp: int) -> None:
        if width >= self.per:
            self._whole.of(width // self.per)[runs] = stamp
            return
        chunks, whole = runs // (self.per // width), self._whole.of(1)
        if self._units is None:
            self._units = Runs(np.zeros(len(whole) * self.per, np.int64))
        found = whole.take(chunks)
        same = found != MIXED
        if np.count_nonzero(same):
            split = chunks[same]
            self._units.of(self.per)[split] = found[same][:, None]
            whole[split] = MIXED
        self._units.of(width)[runs] = stamp


class PageStamps:
    """Those of a large memory, which is the scratch of a large grid, and of which one actor reads little: for the pages
    of that alone."""

    def __init__(self, units: int) -> None:
        # Where the stamps of each page are; those at 0 are of all pages that nobody has read.
        self._slots = np.zeros(-(-units // PAGE), np.int64)
        self._used = 1
        self._stamps = Runs(np.zeros(PAGE, np.int64))

    def of(self, runs: Any, width: int) -> Any:
        return self._stamps.of(width).take(self._find(runs, width), 0)

    def note(self, runs: Any, width: int, stamp: int) -> None:
        pages = runs // (PAGE // width)
        self._add({page for page in set(pages.ravel().tolist()) if not self._slots[page]})
        self._stamps.of(width)[self._find(runs, width)] = stamp

    def _find(self, runs: Any, width: int) -> Any:
        pages = runs // (PAGE // width)
        return runs + (self._slots.take(pages) - pages) * (PAGE // width)

    def _add(self, pages: set[int]) -> None:
        for page in pages:
            self._slots[page] = self._used
            self._used += 1
        stamps = self._stamps.of(1)
        if len(stamps) < self._used * PAGE:
            more = np.zeros(self._used * PAGE, np.int64)  # some of it for pages to come
            self._stamps = Runs(np.concatenate([stamps, more]))


class Shadow:
    """Who wrote each unit of a memory last, and who has read it since.

    name: tells of a unit. describe: tells of an actor at an instruction. per: units of a chunk, which most accesses
    take as a whole.
    """

    def __init__(
        self, units: int, name: Callable[[int], str], describe: Callable[[int, int], str], per: int = 1
    ) -> None:
        self.units, self.per, self.name, self.describe = units, per, name, describe
        self.written = ChunkStamps(units, per)
        self.readers: dict[int, ChunkStamps | PageStamps] = {}  # per actor
        self.latest: Any = None  # per actor, the newest epoch in there

    def read(self, runs: Any, width: int, *agents: Agent) -> None:
        """By all the agents. runs: the numbers of runs of `width` units."""
        self._check_writers(runs, width, "reads", *agents)
        if self.latest is None:
            self.latest = np.zeros(len(agents[0].clock), np.int64)
        for agent in agents:
            if agent.actor not in self.readers:
                many = self.units > LARGE
                self.readers[agent.actor] = PageStamps(self.units) if many else ChunkStamps(self.units, self.per)
            self.readers[agent.actor].note(runs, width, agent.epoch << EPOCH | agent.pc)
            if self.latest[agent.actor] < agent.epoch:
                self.latest[agent.actor] = agent.epoch

    def write(self, runs: Any, width: int, agent: Agent) -> None:
        self._check_writers(runs, width, "writes", agent)
        if self.latest is not None:
            for actor in np.flatnonzero(self.latest > agent.clock).tolist():
                self._check_reader(actor, runs, width, agent)
        self.written.note(runs, width, agent.actor << ACTOR | agent.epoch << EPOCH | agent.pc)

    def _check_reader(self, actor: int, runs: Any, width: int, agent: Agent) -> None:
        found = self.readers[actor].of(runs, width)
        late = found >= agent.clock[actor] + 1 << EPOCH
        if actor == agent.actor:  # the same copy
            late &= found >> EPOCH != agent.epoch
        if np.count_nonzero(late):
            self._tell(runs, width, late, agent, "writes", actor, found, "read")

    def _check_writers(self, runs: Any, width: int, verb: str, *agents: Agent) -> None:
        found = self.written.of(runs, width)
        if not found.size:
            return
        first = found.item(0)
        if not np.count_nonzero(found != first):  # of one copy, or never written
            writer, epoch = first >> ACTOR, (first & STAMP) >> EPOCH
            if all(agent.clock[writer] >= epoch for agent in agents):
                return
        writers, stamps = found >> ACTOR, found & STAMP
        known = agents[0].clock if len(agents) == 1 else np.minimum.reduce([agent.clock for agent in agents])
        if not np.count_nonzero((known + 1 << EPOCH).take(writers) <= stamps):
            return
        for agent in agents:
            late = (agent.clock + 1 << EPOCH).take(writers) <= stamps
            late &= (writers != agent.actor) | (stamps >> EPOCH != agent.epoch)  # not the same copy
            if np.count_nonzero(late):
                self._tell(runs, width, late, agent, verb, int(writers[late][0]), stamps, "wrote")

    def _tell(
        self, runs: Any, width: int, late: Any, agent: Agent, verb: str, actor: int, stamps: Any, past: str
    ) -> None:
        """stamps: what the runs have, by unit or one for each; late: those that nothing orders."""
        units = np.asarray(runs)[..., None] * width + np.arange(width)
        found = late.reshape(*np.shape(runs), -1)
        unit = int(units[found.repeat(width // found.shape[-1], -1)][0])
        here = self.describe(agent.actor, agent.pc)
        there = self.describe(actor, int(stamps[late][0]) & INSTRUCTION)
        raise PtxError(f"race: {here} {verb} {self.name(unit)}; {there} {past} it, and nothing orders the two")


class Channel:
    """What has been handed on through a barrier. gathered: by arrivals; known: to those who wait."""

    def __init__(self, actors: int) -> None:
        self.gathered = np.zeros(actors, np.int64)
        self.known = np.zeros(actors, np.int64)

    def give(self, knowledge: Any) -> None:
        np.maximum(self.gathered, knowledge, out=self.gathered)

    def complete(self) -> None:
        np.maximum(self.known, self.gathered, out=self.known)


class Locations:
    """Words of memory that signal: what was handed on through each, by address, scope, and the CTA or cluster whose
    scope it is. A release hands on to those in its scope, and an acquire takes from those in its own."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, str, int], Any] = {}

    def read(self, agent: WarpAgent, addresses: Any, acquires: bool, scope: str) -> None:
        for address in addresses.tolist():
            for inner in SCOPES:
                if (known := self.known.get((address, inner, agent.places.get(inner, 0)))) is None:
                    continue
                if acquires and inner in within(scope):
                    agent.acquire(known)
                else:
                    np.maximum(agent.seen[inner], known, out=agent.seen[inner])

    def write(self, agent: WarpAgent, addresses: Any, releases: bool, scope: str) -> None:
        released = agent.release() if releases else None
        for inner in SCOPES:
            given = agent.fenced[inner] if released is None or inner not in within(scope) else released
            for address in addresses.tolist():
                key = (address, inner, agent.places.get(inner, 0))
                known = self.known.get(key)
                self.known[key] = given.copy() if known is None else np.maximum(known, given)
