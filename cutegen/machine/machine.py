"""A grid on the CPU: CTAs, their memory and barriers, and a scheduler that interleaves warps and asynchronous work.

Orders are drawn from a seed: 0 makes all copies and products as late as can be, 1 immediate; from 2 on each kind is
late, immediate or mixed, and in half of the seeds some warps run far ahead of the others.
"""

from __future__ import annotations

import itertools
import operator
import random
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

# They register instructions.
import cutegen.machine.access
import cutegen.machine.arithmetic
import cutegen.machine.bulk
import cutegen.machine.control
import cutegen.machine.conversion
import cutegen.machine.launch_control
import cutegen.machine.mma_sync
import cutegen.machine.tcgen05  # noqa: F401
from cutegen.machine.assembler import CTA_WINDOW, DYNAMIC_SHARED, LANES, Assembler
from cutegen.machine.barriers import ClusterBarrier, Mbarrier, NamedBarrier
from cutegen.machine.memory import GlobalMemory, Operation, SharedMemory
from cutegen.machine.parser import PtxError
from cutegen.machine.races import Locations, WarpAgent, actor_count
from cutegen.machine.registers import RegisterPool
from cutegen.machine.tensor_memory import TensorMemory
from cutegen.machine.warp import Warp
from cutegen.machine.wgmma import Warpgroup

SPIN_LIMIT = 5000  # turns without any store, arrival or copy, after which polling warps count as deadlocked
PATIENCE = 100  # turns without any of those, after which a late copy is late enough
LOOK = 256  # steps from one look at the clock to the next
_PACES = ("late", "eager", "random")
_rank = operator.attrgetter("rank")


@dataclass(frozen=True, slots=True)
class Launch:
    """grid, cluster, block: extents (x, y, z). shared_bytes: dynamic. parameters: the parameter space's bytes.
    programmatic: it may start before the kernel in front has ended (programmatic dependent launch). entry: the kernel's
    name."""

    grid: tuple[int, int, int]
    cluster: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    parameters: bytes
    programmatic: bool = False
    entry: str = ""


class Cta:
    """where: its index (x, y, z) in the grid. rank: in its cluster."""

    def __init__(self, machine: Machine, where: tuple[int, int, int], rank: int, cluster: list[Cta]) -> None:
        self.machine, self.where, self.rank, self.cluster = machine, where, rank, cluster
        self.shared = SharedMemory(
            machine.assembler.shared_bytes, DYNAMIC_SHARED, f"CTA {where}", machine.describe if machine.races else None
        )
        self.barriers: dict[int, Mbarrier] = {}
        self.hidden_inits: dict[tuple[int, str], list[Mbarrier]] = {}  # by warp and audience
        self.named: dict[int, NamedBarrier] = {}
        self.threads = int(np.prod(machine.launch.block))
        self.warps = [Warp(self, i, machine.assembler.code, self._registers(i)) for i in range(self.threads // LANES)]
        for warp in self.warps:
            machine.all_warps.append(warp)
            warp.agent = WarpAgent(len(machine.all_warps) - 1, machine.actors)
        self.groups = [Warpgroup(self.warps[i : i + 4], machine.actors) for i in range(0, len(self.warps), 4)]
        self.live = len(self.warps)
        self.refused = False  # it was told that no cluster is left to take the work of
        self.tensor = TensorMemory(f"CTA {where}", machine.actors, machine.describe if machine.races else None)
        self.registers = RegisterPool(self.threads, machine.assembler.set_registers, where, machine.actors)
        self.cluster_barrier: ClusterBarrier

    def _registers(self, warp: int) -> list[Any]:
        """A fresh register file, special registers set."""
        registers, launch = list(self.machine.assembler.initial), self.machine.launch
        thread = warp * LANES + np.arange(LANES)
        x, y, _ = launch.block
        ids = {"x": thread % x, "y": thread // x % y, "z": thread // (x * y)}
        values: dict[str, Any] = {"%laneid": np.arange(LANES), "%warpid": warp, "%smid": self.machine.slot_of(self)}
        values["%lanemask_lt"] = (1 << np.arange(LANES)) - 1
        for i, axis in enumerate("xyz"):
            values |= {
                f"%tid.{axis}": ids[axis],
                f"%ntid.{axis}": launch.block[i],
                f"%ctaid.{axis}": self.where[i],
                f"%nctaid.{axis}": launch.grid[i],
                f"%cluster_ctaid.{axis}": self.where[i] % launch.cluster[i],
                f"%cluster_nctaid.{axis}": launch.cluster[i],
                f"%clusterid.{axis}": self.where[i] // launch.cluster[i],
                f"%nclusterid.{axis}": launch.grid[i] // launch.cluster[i],
            }
        values |= {"%cluster_ctarank": self.rank, "%cluster_nctarank": int(np.prod(launch.cluster))}
        values |= {"%dynamic_smem_size": launch.shared_bytes, "%globaltimer": 0, "%clock": 0, "%clock64": 0}
        for name, slot in self.machine.assembler.specials.items():
            if isinstance(name, tuple):
                place = self.machine.assembler.shared[name[0][1:]] + self.rank * CTA_WINDOW
                registers[slot] = np.full(LANES, place, registers[slot].dtype)
                continue
            if name not in values:
                raise PtxError(f"the special register {name} is not simulated")
            registers[slot] = np.full(LANES, values[name], registers[slot].dtype)
        return registers

    def peer(self, rank: int) -> Cta:
        if rank >= len(self.cluster):
            raise PtxError(f"CTA {rank} of a cluster of {len(self.cluster)}")
        if not self.cluster[rank].live:
            raise PtxError(f"CTA {self.cluster[rank].where} is addressed by a peer after it has exited")
        return self.cluster[rank]

    def init_barrier(self, address: int, expected: int, warp: int) -> None:
        name = f"at shared+{address - DYNAMIC_SHARED} of CTA {self.where}"
        if not 1 <= expected < 1 << 20:
            raise PtxError(f"mbarrier {name} cannot expect {expected} arrivals")
        self.barriers[address] = barrier = Mbarrier(name, expected, self.machine.actors, self)
        for audience in barrier.hidden:
            self.hidden_inits.setdefault((warp, audience), []).append(barrier)

    def show_inits(self, warp: int, *audiences: str) -> None:
        """Those see from now on which mbarriers the warp has initialised."""
        for audience in audiences:
            for barrier in self.hidden_inits.pop((warp, audience), ()):
                barrier.hidden.discard(audience)

    def barrier(self, address: int) -> Mbarrier:
        if address not in self.barriers:
            raise PtxError(f"no mbarrier is initialised at shared+{address - DYNAMIC_SHARED} of CTA {self.where}")
        return self.barriers[address]

    def named_barrier(self, number: int) -> NamedBarrier:
        if number not in self.named:
            self.named[number] = NamedBarrier(f"{number} of CTA {self.where}", self.machine.actors)
        return self.named[number]

    def warpgroup(self, warp: Warp) -> Warpgroup:
        return self.groups[warp.index // 4]

    def warp_left(self, warp: Warp) -> None:
        if warp.inflight:
            raise PtxError("a warp exits with WGMMAs in flight")
        if warp.open_bulk or any(not group.awaited for group in warp.bulk):
            raise PtxError("a warp exits without having waited until its bulk stores have read shared memory")
        self.cluster_barrier.leave()
        self.live -= 1
        if self.live == 0:
            self._check_idle()
            self.machine.cta_left(self)

    def _check_idle(self) -> None:
        for operation in self.machine.pending:
            if operation.cta is self:
                raise PtxError(f"CTA {self.where} exits while its shared memory is in use: {operation.text}")
        if self.tensor.sizes:
            raise PtxError(f"CTA {self.where} exits without having freed its tensor memory: {self.tensor.sizes}")
        for barrier in (*self.named.values(), *self.barriers.values()):
            if isinstance(barrier, NamedBarrier) and barrier.warps:
                raise PtxError(f"CTA {self.where} exits with arrivals at {barrier}")
            if isinstance(barrier, Mbarrier) and barrier.bytes:
                raise PtxError(f"CTA {self.where} exits before its copies are complete: {barrier}")


class Machine:
    """runnable: warps that are not blocked. pending: copies that may happen at any time. turns: time.

    resident: how many CTAs are live at once, at most; what waits for a CTA beyond them is a deadlock, as on a GPU.
    """

    def __init__(
        self,
        assembler: Assembler,
        launch: Launch,
        memory: GlobalMemory,
        seed: int = 0,
        resident: int = 1 << 30,
        races: bool = True,
        deadline: float | None = None,
        strict: bool = False,
        notes: bool = False,
    ) -> None:
        """assembler: of the program, for the launch's shared memory. races: look for what nothing orders. deadline: of
        time.monotonic(), when a run that has not ended is given up. strict: a tcgen05.ld reads until the warp's
        tcgen05.wait::ld, and a tcgen05.st writes until its wait::st. notes: take notes for a timeline."""
        self.deadline, self.strict, self.notes = deadline, strict, notes
        self.acting: Warp | Operation | None = None  # whose step it is
        self.assembler, self.program, self.launch, self.memory = assembler, assembler.program, launch, memory
        program = self.program
        if program.threads not in (None, int(np.prod(launch.block))):
            raise PtxError(f"a block of {launch.block} for a kernel of {program.threads} threads")
        if min(launch.grid) < 1:
            raise PtxError(f"a grid of {launch.grid}: CUDA refuses it; are there as many SMs as a cluster has CTAs?")
        if any(g % c for g, c in zip(launch.grid, launch.cluster)):
            raise PtxError(f"a grid of {launch.grid} in clusters of {launch.cluster}")
        self.all_warps: list[Warp] = []  # of CTAs that were started
        self.actors = actor_count(int(np.prod(launch.grid) * np.prod(launch.block)) // LANES)
        self.races, self.locations = races, Locations()
        memory.describe = self.describe if races else None
        self.parameters = np.frombuffer(launch.parameters, np.uint8)
        self.tensor_maps: dict[int, Any] = {}
        # Loads by TMA, by region, coordinates and extents of the box: the L2 policy of each, None without.
        self.boxes: dict[tuple[str, tuple[int, ...], tuple[int, ...]], list[int | None]] = {}
        self.random = random.Random(seed)
        paces = [self.random.choice(_PACES) for _ in range(3)] if seed > 1 else [_PACES[seed]] * 3
        self.pace = dict(zip(("load", "store", "product"), paces))
        self.skewed = seed > 1 and self.random.random() < 0.5  # some warps are far ahead of others
        self.impatient = seed > 1
        self.runnable: list[Warp] = []
        self.pending: list[Operation] = []
        self.ctas: list[Cta] = []
        self.waiting = self._clusters()
        self.resident, self.turns, self.last_event = resident, 0, 0
        self.expiring = False  # the time limits of all waits have passed and nothing happened since

    def _clusters(self) -> list[tuple[int, int, int]]:
        """The first CTA of each cluster, in launch order."""
        (gx, gy, gz), (cx, cy, cz) = self.launch.grid, self.launch.cluster
        return [(x, y, z) for z in range(0, gz, cz) for y in range(0, gy, cy) for x in range(0, gx, cx)]

    def _start_clusters(self) -> None:
        cx, cy, cz = self.launch.cluster
        while self.waiting and (not self.ctas or len(self.ctas) + cx * cy * cz <= self.resident):
            x, y, z = self.waiting.pop(0)
            cluster: list[Cta] = []
            for i in range(cx * cy * cz):
                where = (x + i % cx, y + i // cx % cy, z + i // (cx * cy))
                cluster.append(Cta(self, where, i, cluster))
                self.ctas.append(cluster[-1])
            barrier = ClusterBarrier(sum(len(c.warps) for c in cluster), self.actors)
            for cta in cluster:
                cta.cluster_barrier = barrier
                for warp in cta.warps:
                    warp.agent.places = {"cta": id(cta), "cluster": id(barrier)}
                self.runnable += cta.warps

    def describe(self, actor: int, pc: int) -> str:
        """An actor of races.py at an instruction."""
        warp = self.all_warps[(actor - 1) // 2]
        ins = self.program.instructions[pc]
        who = f"{'' if actor % 2 else 'an operation issued by '}warp {warp.index} of CTA {warp.cta.where}"
        return f"{who} at {self.program.place(ins.line)} ({ins.text[:60]})"

    def slot_of(self, cta: Cta) -> int:
        return len(self.ctas)

    def cta_left(self, cta: Cta) -> None:
        self.ctas.remove(cta)
        self.note_event()

    # -- asynchronous work --

    def now(self) -> int:
        """The step, in the sense of timeline.py, of whoever acts."""
        return self.acting.time if self.acting else 0

    def submit(self, kind: str, operation: Operation) -> None:
        operation.time = self.now()
        if isinstance(self.acting, Warp):
            self.acting.mark(kind)
        if self.pace[kind] == "eager":
            operation.run()
        else:
            self.pending.append(operation)

    def submit_product(self, group: Warpgroup) -> None:
        for warp in group.warps:
            warp.mark("product")
        if self.pace["product"] == "eager" or (self.pace["product"] == "random" and self.random.random() < 0.5):
            while group.ready():
                group.run_next()

    def gives_up(self) -> bool:
        """Whether a try_wait answers no before its phase is complete."""
        return self.impatient and self.random.random() < 0.2

    def note_event(self) -> None:
        self.last_event, self.expiring = self.turns, False

    def _run_pending(self) -> None:
        operation = self.pending.pop(self.random.randrange(len(self.pending)))
        self.acting = operation
        operation.run()
        self.note_event()

    # -- the scheduler --

    def run(self) -> None:
        """Runs the grid to its end. PtxError: what went wrong, and where every live warp is."""
        with np.errstate(all="ignore"):  # lanes that are not active compute with whatever is there
            self._run()

    def _run(self) -> None:
        for step in itertools.count():
            self._start_clusters()
            if self.deadline is not None and not step % LOOK and time.monotonic() > self.deadline:
                raise PtxError(self._report(PtxError("it did not end in the time that it was given"), None))
            if not self.ctas:
                break
            warp = None
            try:
                if self.pending and self._copy_is_next():
                    self._run_pending()
                elif self.runnable:
                    warp = self._next_warp()
                    self._turn(warp)
                elif self.pending:
                    self._run_pending()
                elif not self._expire():
                    raise PtxError("deadlock: no warp can go on and no copy is on its way")
            except PtxError as error:
                raise PtxError(self._report(error, warp)) from error
        while self.pending:
            self._run_pending()

    def _copy_is_next(self) -> bool:
        if self.turns - self.last_event > PATIENCE:  # warps poll for what a copy may bring
            return True
        return "random" in self.pace.values() and self.random.random() < 0.2

    def _next_warp(self) -> Warp:
        i = self.random.randrange(len(self.runnable))
        if self.skewed and self.random.random() < 0.8:
            i = self.runnable.index(max(self.runnable, key=_rank))
        self.runnable[i], self.runnable[-1] = self.runnable[-1], self.runnable[i]
        return self.runnable.pop()

    def _turn(self, warp: Warp) -> None:
        # Where nothing happened since it looked, it would most likely find what it found.
        if warp.polled < self.last_event or self.random.random() < 0.1:
            warp.polled = -1
            self.acting = warp
            warp.run(self.random.choice((5, 20, 100, 400)))
        self.turns += 1
        if not warp.exited and warp.wait is None:
            self.runnable.append(warp)
        if self.turns - self.last_event > SPIN_LIMIT:
            raise PtxError(f"no store, arrival or copy for {SPIN_LIMIT} turns: warps poll for what never comes")

    def _expire(self) -> bool:
        """When nothing else moves, try_wait's time limit passes for all who wait there, once."""
        stuck = [w for cta in self.ctas for w in cta.warps if w.wait and isinstance(w.wait[0], Mbarrier)]
        if not stuck or self.expiring:
            return False
        self.expiring = True
        for warp in stuck:
            warp.wait[0].waiters.remove(warp)  # type: ignore[index]
            warp.expired = True
            warp.resume()
        return True

    def _report(self, error: PtxError, warp: Warp | None) -> str:
        lines = [str(error)]
        if warp is not None:
            ins = self.program.instructions[max(0, warp.pc - 1)]
            lines.append(
                f"in CTA {warp.cta.where} warp {warp.index} at {self.program.place(ins.line)}: {ins.text[:120]}"
            )
        for cta in self.ctas:
            states: dict[str, list[int]] = {}
            for w in cta.warps:
                if not w.exited:
                    states.setdefault(w.state(), []).append(w.index)
            for state, warps in states.items():
                lines.append(f"  CTA {cta.where} warps {', '.join(map(str, warps))}: {state}")
        return "\n".join(lines)
