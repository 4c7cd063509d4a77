"""mbarriers, named barriers and the cluster barrier."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from cutegen.machine.access import lanes_of, split_shared, spread
from cutegen.machine.assembler import LANES, Assembler, Closure, builds, put
from cutegen.machine.control import converged
from cutegen.machine.parser import Instruction, PtxError
from cutegen.machine.races import ASYNC, PEERS, Channel


class Waitable:
    """What warps wait for; `wake` lets all of them look again. actors: where it hands on what they know."""

    def __init__(self, actors: int = 1) -> None:
        self.waiters: list[Any] = []
        self.channel = Channel(actors)

    def label(self) -> str:
        """What it is, without the state that it is in."""
        return str(self)

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for warp in waiters:
            warp.resume()


class Mbarrier(Waitable):
    """expected: arrivals per phase. pending: arrivals still to come in this phase. bytes: transaction bytes announced
    and not arrived; negative when they came before they were announced. phase: number of completed phases. hidden: who
    cannot see its init yet."""

    def __init__(self, name: str, expected: int, actors: int, cta: Any = None) -> None:
        super().__init__(actors)
        self.cta, self.hidden = cta, {ASYNC, PEERS}
        self.name, self.expected, self.pending, self.bytes, self.phase = name, expected, expected, 0, 0

    def label(self) -> str:
        return f"mbarrier {self.name}"

    def seen_from(self, cta: Any, *, by_async: bool = False) -> Mbarrier:
        """Itself, to be signalled by a warp of that CTA, or by what it issued to the async proxy. PtxError: its init is
        hidden from those."""
        for audience, concerned in ((ASYNC, by_async), (PEERS, cta is not self.cta)):
            if concerned and audience in self.hidden:
                raise PtxError(f"{self.label()} is signalled by {audience}, without fence.mbarrier_init since its init")
        return self

    def arrive(self, count: int, announced: int = 0) -> None:
        self.bytes += announced
        if count > self.pending:
            raise PtxError(f"{self}: {count} arrivals, but only {self.pending} of {self.expected} are still to come")
        self.pending -= count
        self._advance()

    def complete(self, count: int) -> None:
        self.bytes -= count
        self._advance()

    def _advance(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.expected
            self.channel.complete()
            self.wake()

    def __str__(self) -> str:
        return (
            f"mbarrier {self.name} in phase {self.phase} (parity {self.phase & 1}): "
            f"{self.expected - self.pending} of {self.expected} arrived, {self.bytes} bytes outstanding"
        )


class NamedBarrier(Waitable):
    """bar.sync and bar.arrive. threads: what this use of it expects; warps: who came; waiting: who of them waits."""

    def __init__(self, name: str, actors: int) -> None:
        super().__init__(actors)
        self.name, self.threads, self.warps, self.waiting = name, 0, list[int](), list[Any]()

    def label(self) -> str:
        return f"named barrier {self.name}"

    def arrive(self, warp: Any, threads: int, waits: bool) -> bool:
        """Whether this completes it."""
        if self.warps and threads != self.threads:
            raise PtxError(f"{self}: warp {warp.index} comes with {threads} threads")
        if warp.index in self.warps:
            raise PtxError(f"{self}: warp {warp.index} comes a second time")
        self.threads = threads
        self.warps.append(warp.index)
        self.channel.give(warp.agent.release())
        if waits:
            self.waiting.append(warp)
        if LANES * len(self.warps) < threads:
            return False
        for member in self.waiting:
            member.agent.acquire(self.channel.gathered)
        self.warps, self.waiting, self.channel = [], [], Channel(len(self.channel.known))
        self.wake()
        return True

    def __str__(self) -> str:
        return f"named barrier {self.name} of {self.threads} threads, warps {self.warps} came"


class ClusterBarrier(Waitable):
    """barrier.cluster; warps that have exited count as arrived."""

    def __init__(self, warps: int, actors: int) -> None:
        super().__init__(actors)
        self.live, self.arrived, self.phase = warps, 0, 0

    def label(self) -> str:
        return "the cluster barrier"

    def arrive(self, warp: Any, releases: bool) -> None:
        if releases:
            self.channel.give(warp.agent.release())
        if warp.cluster_ticket is not None:
            raise PtxError("barrier.cluster.arrive twice without a wait")
        warp.cluster_ticket = self.phase
        self.arrived += 1
        self._advance()

    def leave(self) -> None:
        self.live -= 1
        self._advance()

    def _advance(self) -> None:
        if self.arrived and self.arrived >= self.live:
            self.phase += 1
            self.arrived = 0
            self.channel.complete()
            self.wake()

    def __str__(self) -> str:
        return f"cluster barrier in phase {self.phase}: {self.arrived} of {self.live} warps arrived"


def barriers_of(w: Any, addresses: Any) -> list[tuple[Mbarrier, int]]:
    """(barrier, number of lanes that name it) of the active lanes' shared addresses."""
    found: list[tuple[Mbarrier, int]] = []
    for cta, _, inside in split_shared(w, addresses):
        for offset, lanes in Counter(inside.tolist()).items():
            found.append((cta.barrier(offset).seen_from(w.cta), lanes))
    return found


@builds("mbarrier")
def _mbarrier(asm: Assembler, ins: Instruction) -> Closure:
    action = ins.opcode[1]
    if action in ("try_wait", "test_wait"):
        return _wait(asm, ins, action == "try_wait")
    operands = list(ins.operands)
    state = asm.target(operands.pop(0)) if action == "arrive" else None
    slot, offset = asm.place(operands[0], asm.address_type(operands[0]))
    value = asm.source(operands[1], "u32") if len(operands) > 1 else None
    transaction, releases = "expect_tx" in ins.opcode, "relaxed" not in ins.opcode
    narrow = "cta" in ins.opcode  # without a scope it is taken for that of the cluster

    def amount(w: Any) -> int:
        if value is None:
            return 1
        values = w.r[value] if w.mask is None else w.r[value][w.mask]
        if (values != values[0]).any():
            raise PtxError("the lanes pass different counts")
        return int(values[0])

    def init(w: Any) -> None:
        for cta, _, inside in split_shared(w, lanes_of(w, slot, offset)):
            for address in inside:
                cta.init_barrier(int(address), amount(w), w.index)

    def invalidate(w: Any) -> None:
        for cta, _, inside in split_shared(w, lanes_of(w, slot, offset)):
            for address in inside:
                cta.barriers.pop(int(address), None)

    def arrive(w: Any) -> None:
        n = amount(w)
        for barrier, lanes in barriers_of(w, lanes_of(w, slot, offset)):
            if state is not None:
                put(w, state, np.full(LANES, barrier.phase, np.uint64))
            if narrow and barrier.cta is not w.cta:
                known = w.agent.fenced["cluster"]
            else:
                known = w.agent.release() if releases else w.agent.fenced["cluster"]
            barrier.channel.give(known)
            barrier.arrive(*((lanes, n * lanes) if transaction else (n * lanes, 0)))
        w.cta.machine.note_event()

    def expect(w: Any) -> None:
        for barrier, lanes in barriers_of(w, lanes_of(w, slot, offset)):
            barrier.bytes += amount(w) * lanes

    def complete(w: Any) -> None:
        for barrier, lanes in barriers_of(w, lanes_of(w, slot, offset)):
            barrier.complete(amount(w) * lanes)

    return {"init": init, "inval": invalidate, "arrive": arrive, "expect_tx": expect, "complete_tx": complete}[action]


def _wait(asm: Assembler, ins: Instruction, blocks: bool) -> Closure:
    """try_wait suspends the warp until the phase completes, or until its time limit passes and it answers no. That
    happens when nothing else in the grid moves, and at random in orders that are."""
    target = asm.target(ins.operands[0])
    slot, offset = asm.place(ins.operands[1], asm.address_type(ins.operands[1]))
    by_parity = "parity" in ins.opcode
    value = asm.source(ins.operands[2], "b32" if by_parity else "b64")
    acquires = "relaxed" not in ins.opcode

    def run(w: Any) -> Any:
        addresses = lanes_of(w, slot, offset)
        wanted = w.r[value] if w.mask is None else w.r[value][w.mask]
        done = np.zeros(len(addresses), bool)
        missing = None
        for cta, _, inside in split_shared(w, addresses):
            if cta is not w.cta:
                raise PtxError("a wait for another CTA's mbarrier")
            for i, address in enumerate(inside):
                barrier = cta.barrier(int(address))
                token = int(wanted[i])
                done[i] = barrier.phase & 1 != token & 1 if by_parity else barrier.phase > token
                if not done[i]:
                    missing = barrier, token
                elif acquires:
                    w.agent.acquire(barrier.channel.known)
                if i == 0 and (inside == inside[0]).all() and (wanted == wanted[0]).all():
                    done[:] = done[0]
                    break
        if missing and blocks and not w.expired and not w.cta.machine.gives_up():
            barrier, token = missing
            return w.block(barrier, f"waits for the phase of parity {token & 1} of", again=True)
        w.expired = False
        put(w, target, spread(w, done))
        return missing is not None

    return run


@builds("bar", "barrier")
def _barrier(asm: Assembler, ins: Instruction) -> Closure:
    if ins.opcode[1] == "cluster":
        return converged(_arrive_cluster(ins) if ins.opcode[2] == "arrive" else _wait_cluster)
    if ins.opcode[1] == "warp":
        return converged(lambda w: None)
    action = next(o for o in ins.opcode[1:] if o in ("sync", "arrive", "red"))
    if action == "red":
        raise PtxError("bar.red is not simulated")
    number = asm.source(ins.operands[0], "u32")
    count = asm.source(ins.operands[1], "u32") if len(ins.operands) > 1 else None

    def run(w: Any) -> Any:
        which = int(w.r[number][0])
        threads = w.cta.threads if count is None else int(w.r[count][0])
        if not 0 <= which < 16 or threads % LANES:
            raise PtxError(f"named barrier {which} of {threads} threads: there are 16, of whole warps")
        barrier = w.cta.named_barrier(which)
        w.cta.machine.note_event()
        if barrier.arrive(w, threads, action != "arrive") or action == "arrive":
            return None
        return w.block(barrier, "waits for", again=False)

    return converged(run)


def _arrive_cluster(ins: Instruction) -> Closure:
    releases = "relaxed" not in ins.opcode

    def run(w: Any) -> None:
        if releases:
            w.cta.show_inits(w.index, PEERS)
        w.cta.cluster_barrier.arrive(w, releases)
        w.cta.machine.note_event()

    return run


def _wait_cluster(w: Any) -> Any:
    barrier = w.cta.cluster_barrier
    if w.cluster_ticket is None:
        raise PtxError("barrier.cluster.wait without an arrive")
    if barrier.phase == w.cluster_ticket:
        return w.block(barrier, "waits for", again=True)
    w.cluster_ticket = None
    w.agent.acquire(barrier.channel.known)
    return None
