"""A machine on which a tune takes no time: cores that compile, a GPU that measures, and a clock that both move on."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

from cutegen.tune.budget import BudgetedSearch, Standing
from cutegen.tune.measuring_process import CandidateFault, Opened, Setup
from cutegen.tune.pool import Pool
from cutegen.tune.report import TunedProblem
from cutegen.tune.search import Search, Trial
from cutegen.tune.store import Place, TimingStore
from cutegen.tune.tune_problems import Attempt

DEVICE, BASELINE = "Simulated GPU", "cuBLAS"


@dataclass
class Costs:
    """Seconds. A look at a candidate, with its share of default and baseline, takes 0.3 of them."""

    compile: float = 2.5
    start: float = 8.0
    open: float = 0.4
    admit: float = 0.22
    slice: float = 0.004  # and twice what is measured


@dataclass
class Problem:
    """promised: clocks by the cost model, by kernel; truth: seconds; those of default and baseline as well."""

    m: int
    default: str
    promised: Mapping[str, float]
    truth: Mapping[str, float]

    @property
    def best(self) -> float:
        return min(self.truth[name] for name in self.promised)


@dataclass
class Machine:
    problems: Sequence[Problem]
    cores: int = 16
    costs: Costs = field(default_factory=Costs)
    noise: float = 0.004
    broken: frozenset[str] = frozenset()
    now: float = 0.0
    log: list[tuple[float, str]] = field(default_factory=list)
    at: Callable[[float], None] = lambda now: None

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.at(self.now)


class MachineStation:
    """As cutegen.tune.measuring_process.Station."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.random = machine, random.Random(5)
        self.begun, self.alive = machine.now, False
        self.ready: dict[int, set[str]] = {}
        self.problem: Problem | None = None

    def start(self) -> Setup:
        self.machine.pass_time(max(0.0, self.begun + self.machine.costs.start - self.machine.now))
        self.alive = True
        return Setup(DEVICE, 0)

    def open(self, problem: Mapping[str, int], default: str, keep: bool) -> Opened:
        self.problem = next(p for p in self.machine.problems if p.m == problem["m"])
        if problem["m"] not in self.ready:
            self.machine.pass_time(self.machine.costs.open)
            self.ready[problem["m"]] = set()
        self.machine.log.append((self.machine.now, f"open {problem['m']}"))
        return Opened(BASELINE, "", "", 0, 0, tuple(self.ready[problem["m"]]))

    def admit(self, name: str) -> str:
        assert self.problem
        self.machine.log.append((self.machine.now, f"admit {name}"))
        self.machine.pass_time(self.machine.costs.admit)
        if name in self.machine.broken:
            raise CandidateFault("failed", "it is broken", lost=False)
        self.ready[self.problem.m].add(name)
        return ""

    def sample(self, name: str, seconds: float) -> float:
        assert self.problem
        self.machine.pass_time(self.machine.costs.slice + seconds * (2 if seconds < 0.01 else 1.1))
        return self.problem.truth[name] * exp(self.random.gauss(0, self.machine.noise))

    def recheck(self, name: str) -> str:
        self.machine.pass_time(0.1)
        return ""

    def others(self) -> int:
        return 0


class MachineBuilding:
    """As cutegen.build.KernelStream; asked: every kernel that was compiled, in order."""

    def __init__(self, machine: Machine, workers: int) -> None:
        self.machine, self.workers = machine, workers
        self.take: Callable[[str], None] = lambda name: None
        self.order: list[str] = []
        self.running: list[tuple[float, str]] = []
        self.asked: list[str] = []

    @property
    def working(self) -> bool:
        return bool(self.order or self.running)

    def request(self, names: Sequence[str]) -> None:
        self.order = [n for n in dict.fromkeys(names) if n not in self.asked]
        self.poll()

    def poll(self) -> None:
        for end, name in [r for r in self.running if r[0] <= self.machine.now]:
            self.running.remove((end, name))
            self.take(name)
        while self.order and len(self.running) < self.workers:
            name = self.order.pop(0)
            assert name not in self.asked
            self.asked.append(name)
            self.running.append((self.machine.now + self.machine.costs.compile, name))

    def wait(self, seconds: float) -> None:
        ends = min((end for end, _ in self.running), default=self.machine.now)
        self.machine.pass_time(min(seconds, max(0.0, ends - self.machine.now)))
        self.poll()


@dataclass
class Tuned:
    """What a tune found: standings by m, and the machine afterwards."""

    machine: Machine
    building: MachineBuilding
    standings: dict[int, Standing]
    search: BudgetedSearch

    def speed(self, problem: Problem) -> float:
        """Of what would run, relative to the best kernel there is."""
        best = self.standings[problem.m].attempt.report.best
        return problem.best / problem.truth[best.name if best else problem.default]


def tune_on(
    machine: Machine, budget_s: float, begun: float = 4.0, store: TimingStore | None = None, stop: float | None = None
) -> Tuned:
    """begun: seconds that the start has taken. stop: when Ctrl-C comes."""
    station = MachineStation(machine)
    workers = max(1, machine.cores - 1)
    building = MachineBuilding(machine, workers)
    machine.pass_time(begun)
    standings = []
    store = store or TimingStore(None)
    for p in machine.problems:
        trials = [Trial(n, f"kernel {n}", promised=c) for n, c in p.promised.items() if n != p.default]
        report = TunedProblem({"m": p.m}, Pool((), (), 0), trials)
        place = Place(f"m={p.m}", DEVICE, "1")
        attempt = Attempt(report, place, None, Trial(p.default, f"kernel {p.default}"))
        search = Search(
            station,
            store,
            report.problem,
            place,
            attempt.beside,
            clock=lambda: machine.now,
            keep=True,  # type: ignore[arg-type]
        )
        standings.append(Standing(attempt, search))
    search = BudgetedSearch(standings, building, workers, lambda: machine.now, budget_s)
    building.take = search.take

    def interrupt(now: float) -> None:
        if stop is not None and now >= stop:
            raise KeyboardInterrupt

    machine.at = interrupt
    with contextlib.suppress(KeyboardInterrupt):
        search.run()
    for s in standings:
        s.conclude()
    return Tuned(machine, building, {s.attempt.report.problem["m"]: s for s in standings}, search)


def make_problems(
    seed: int, rows: Sequence[int], error: float = 0.1, kernels: int = 120, each: int = 30
) -> list[Problem]:
    """Problems whose candidates are the first of some kernels by the cost model, and fastest anywhere in between: the
    model is wrong by up to `error` either way, half of which a kernel takes to all problems. The default is the second
    of the model's; cuBLAS is up to a tenth slower than the best."""
    draw = random.Random(seed)
    likes = {f"k{i}": (draw.random(), draw.uniform(-error, error)) for i in range(kernels)}
    found = []
    for number, m in enumerate(rows):
        place = (number + draw.random()) / len(rows)
        clocks = {name: 1e4 * (1 + 0.6 * abs(like - place)) for name, (like, _) in likes.items()}
        promised = dict(sorted(clocks.items(), key=lambda item: item[1])[:each])
        truth = {
            name: c * 1e-9 * exp((likes[name][1] + draw.uniform(-error, error)) / 2) for name, c in promised.items()
        }
        truth[BASELINE] = min(truth.values()) * draw.uniform(1.0, 1.1)
        found.append(Problem(m, list(promised)[1], promised, truth))
    return found
