"""The portfolio of a plan whose dims are open: the tilings that calls of any extents choose among at run time, by the
cost model. Picked so that the best of them loses least against the model's own pick over a grid of extents."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise, product
from typing import Any, NamedTuple

from cutegen.arch import Arch, Device
from cutegen.families.gemm.auto import finish
from cutegen.families.gemm.candidate import Candidate, Core, structure
from cutegen.families.gemm.cores import ANY_SHAPE, WIDE_CLUSTERS, pool_cores
from cutegen.families.gemm.cost_model import Shape, describe_work, instance_of
from cutegen.families.gemm.derived import may_spill
from cutegen.families.gemm.features.feature_list import as_multiplied, ctas_per_tile, features_with, list_forms
from cutegen.families.gemm.invariance import other_sum
from cutegen.families.gemm.orientation import kernel_frame
from cutegen.families.gemm.problem import GemmProblem
from cutegen.families.gemm.rules import refusals
from cutegen.families.gemm.spec_rules import alignments
from cutegen.families.refusal import Refusal
from cutegen.progress import report_progress
from cutegen.runtime.gemm.cost_model import Instance, spend

CHOOSING = "choosing tilings for problem"
MOST = 12  # tilings of a portfolio, that of the decisions among them, where the spec does not say
AIM = 0.002  # of loss, the logarithm of how much slower, at which a portfolio is good enough
# Mean loss that a tiling has to save; in a kernel module of its own, which is text to read and to build.
TILING_GAIN, MODULE_GAIN = 0.001, 0.0025
# How much more a loss weighs for each 1 of it: one of 20% counts three times as much as it is, one of 1% as it is.
STEEP = 10
FARTHEST = (4, 3)  # times as slow: from there on nobody looks how much slower a tiling is
FAR = math.log(FARTHEST[0] / FARTHEST[1])
# Extents of dims that nothing is known of, as layers have them; rows, and what they are multiplied by.
ROWS = (1, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 2048, 4096, 8192)
# Where what they are multiplied by is known.
FINE_ROWS = (
    1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 288, 320, 352, 384, 448, 512, 640,
    768, 896, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 6144, 8192,
)  # fmt: skip
COLUMNS_AND_DEPTHS = (
    (1024, 4096), (2048, 2048), (4096, 1024), (4096, 4096), (2560, 10240), (8192, 8192), (10240, 2560), (14336, 4096),
    (4096, 14336), (28672, 8192),
)  # fmt: skip
BATCHES, FEW_ROWS = (4, 32), (1, 16, 64, 128, 256, 512, 2048, 8192)  # with a batch, the grid has fewer rows
MOST_PROBLEMS = 170
COARSE = 40  # problems of a grid above which tile n is one of COARSE_N: there are tilings enough
# Of grids with fewer problems: rows from which those halfway to the next ones are looked at as well, as what fits one
# number of rows may be far for the next; how much slower a core may be at the rows of the grid to be tried there; and
# passes over the portfolio, in which each tiling may be replaced. Of coarse grids there is one.
HALFWAY_FROM, NEAR, PASSES = 64, 0.1, 4


class Chosen(NamedTuple):
    """candidates: besides that of the decisions. reason: how good they are, over which problems."""

    candidates: tuple[Candidate, ...]
    reason: str


class _Column(NamedTuple):
    """A problem on a device. best: clocks of the model's pick. losses: of each core but those that are far, the
    logarithm of how much slower it is."""

    shape: Shape
    device: Device
    best: int
    losses: dict[Core, float]


def _weigh(loss: float) -> float:
    """A loss as it counts: a few large ones are worse than many small ones."""
    return loss * (1 + STEEP * loss)


def grid_of(problem: GemmProblem, listed: Sequence[Mapping[str, int]]) -> tuple[Shape, ...]:
    """Problems that a portfolio is to be good at: those that the spec lists, and extents of open dims within what the
    spec promises."""
    dims = [problem.m, problem.n, problem.k, *([problem.batch] if problem.batch else [])]
    steps = alignments(problem)
    found: dict[Shape, None] = {}
    for given in listed or [{}]:
        known = [d.value or given.get(d.name) for d in dims]
        axes: list[list[tuple[int, ...]]] = []
        rows = FEW_ROWS if problem.batch and known[3] is None else ROWS if None in known[1:3] else FINE_ROWS
        axes.append([(known[0],)] if known[0] else [(e,) for e in _within(rows, problem.m, steps)])
        pairs = COLUMNS_AND_DEPTHS if None in known[1:3] else COLUMNS_AND_DEPTHS[:1]
        axes.append(list(dict.fromkeys(
            (known[1] or n, known[2] or k) for pair in pairs
            for n in _within(pair[:1], problem.n, steps) for k in _within(pair[1:], problem.k, steps)
        )))  # fmt: skip
        if problem.batch:
            axes.append([(known[3],)] if known[3] else [(e,) for e in _within(BATCHES, problem.batch, steps)])
        for parts in product(*axes):
            found[Shape(*(extent for part in parts for extent in part))] = None
    step = -(-len(found) // MOST_PROBLEMS)
    return tuple(shape for turn, shape in take_turns(found) if turn % step == 0)


def take_turns(shapes: Iterable[Shape]) -> Iterator[tuple[int, Shape]]:
    """Numbers by which problems take turns: of the same rows, and of the same other extents, neighbours have other
    turns. Counted through, one of two devices would always get the same columns."""
    seen: Counter[object] = Counter()
    for shape in shapes:
        others = shape[1:]
        yield seen[shape.m] + seen[others], shape
        seen.update((shape.m, others))


def _within(extents: Sequence[int], dim: Any, steps: Mapping[str, tuple[int, str]]) -> list[int]:
    """Extents that a dim may have, near those given: inside its range, with both of its ends."""
    step = steps.get(dim.name, (1, ""))[0]
    low, high = -(-dim.lo // step) * step, dim.hi // step * step if dim.hi else None
    if dim.value:
        return [dim.value]
    inside = {max(low, -(-e // step) * step) for e in extents}
    if high is not None:
        inside = {min(e, high) for e in inside} | {high, low}
    return sorted(inside)


def choose_portfolio(
    problem: GemmProblem,
    fixed: Mapping[str, Any],
    default: Candidate,
    arch: Arch,
    devices: Sequence[Device],
    shapes: Sequence[Shape],
    most: int,
) -> Chosen:
    """At most `most` tilings with the fixed knobs (by Candidate field), the default among them, and how good they are.
    devices: the problems take turns with them."""
    if most == 1 or len(shapes) < 2:
        return Chosen((), "")
    return _choose(problem, tuple(sorted(fixed.items())), default, arch, tuple(devices), tuple(shapes), most)


@lru_cache(maxsize=64)  # it takes a second, and one process may resolve a spec several times
def _choose(
    problem: GemmProblem,
    fixed: tuple[tuple[str, Any], ...],
    default: Candidate,
    arch: Arch,
    devices: tuple[Device, ...],
    shapes: tuple[Shape, ...],
    most: int,
) -> Chosen:
    judge = _Judge(problem, dict(fixed), arch, partial(other_sum, problem, default), coarse=len(shapes) > COARSE)
    columns = []
    for number, (turn, shape) in enumerate(take_turns(shapes)):
        report_progress(CHOOSING, number, len(shapes))
        columns.append(judge.rank(shape, devices[turn % len(devices)]))
    if not judge.coarse:
        columns += [*judge.rank_halfway(columns)]
    report_progress(CHOOSING, len(shapes), len(shapes))
    columns = [column for column in columns if column.losses]  # others have no legal core: the default runs them
    if not columns:
        return Chosen((), "")
    picked = judge.pick(columns, default, most)
    left = [min(losses) for losses in zip(*(judge.measure(c, columns) for c in (default, *picked)))]
    mean, worst = (100 * math.expm1(max(x, 0)) for x in (sum(left) / len(left), max(left)))
    spans = ", ".join(
        f"{dim.name} {min(e)} to {max(e)}" if len(e) > 1 else f"{dim.name} {min(e)}"
        for dim, e in zip((problem.m, problem.n, problem.k, problem.batch), map(set, zip(*(c.shape for c in columns))))
        if dim
    )
    reason = (
        f"cost model, {len(columns)} problems ({spans}) on {' and '.join(d.name for d in devices)}: the best of these "
        f"is {mean:.1f}% slower than the model's pick for each problem, {worst:.0f}% at most"
    )
    return Chosen(tuple(picked), reason)


_PROPOSING = features_with("propose_in_portfolio")


def _takes(core: Core, fixed: Mapping[str, Any], shape: Shape, device: Device) -> bool:
    """Whether a core is one for a problem."""
    (m, n), (rows, columns) = core.tile[:2], core.cluster
    x, y = (shape.n, shape.m) if core.swap_ab else (shape.m, shape.n)
    if "cluster" not in fixed and (x <= m * (rows - 1) or y <= n * (columns - 1)):
        return False  # CTAs of a cluster have no tile
    # In a second wave, which few SMs have, wide clusters gain nothing.
    return core.cluster not in WIDE_CLUSTERS or -(-x // m) * -(-y // n) * shape.batch <= device.sms


class _Judge:
    """Cores for single problems, and the candidates that become of them."""

    def __init__(
        self,
        problem: GemmProblem,
        fixed: Mapping[str, Any],
        arch: Arch,
        refuse: Callable[[Candidate], Refusal | None],
        coarse: bool,
    ) -> None:
        self.problem, self.fixed, self.arch, self.refuse, self.coarse = problem, fixed, arch, refuse, coarse
        self.instances: dict[Core, Instance | None] = {}
        self.pools: dict[tuple[object, ...], list[Core]] = {}
        self.legal: dict[Core, Candidate | None] = {}

    def rank(self, shape: Shape, device: Device) -> _Column:
        likely = list_forms(self.problem, [shape])[0]
        alike = {field: self.fixed.get(field, value) for field, value in likely.items()}
        judged, key = as_multiplied(self.problem, alike), tuple(alike.values())
        if key not in self.pools:
            self.pools[key] = list(pool_cores(judged, self.fixed, alike, self.coarse))
        work = describe_work(self.problem, shape, device)
        counted, form, rates = work.counted, work.form, device.known_rates
        bounded = sorted(
            (self._bound(core, device, counted), number, core)
            for number, core in enumerate(self._cores(self.pools[key], judged, shape, device))
        )
        best, clocks = 1 << 62, {}
        for bound, _, core in bounded:
            if bound > best * FARTHEST[0] // FARTHEST[1]:
                break  # and so are all behind it
            if instance := self._instance(core):
                clocks[core] = spent = spend(instance, form, counted, rates).clocks
                best = min(best, spent)
        losses = {core: loss for core, c in clocks.items() if (loss := math.log(c / best)) < FAR}
        return _Column(shape, device, best, losses)

    def rank_halfway(self, columns: Sequence[_Column]) -> Iterator[_Column]:
        """Columns of rows halfway between neighbours of a grid that are at most half as many again, with the cores that
        are near at either: which takes hundredths of a second, as few are."""
        step = alignments(self.problem).get(self.problem.m.name, (1, ""))[0]
        by_others: dict[tuple[int, ...], list[_Column]] = {}
        for column in columns:
            by_others.setdefault(column.shape[1:], []).append(column)
        for alike in by_others.values():
            alike.sort(key=lambda column: column.shape.m)
            for low, high in pairwise(alike):
                rows = (low.shape.m + high.shape.m) // (2 * step) * step
                if max(low.shape.m, HALFWAY_FROM - 1) < rows and 2 * high.shape.m <= 3 * low.shape.m:
                    yield self._rank_near(low.shape._replace(m=rows), high.device, (low.losses, high.losses))

    def _rank_near(self, shape: Shape, device: Device, around: Sequence[Mapping[Core, float]]) -> _Column:
        work, clocks = describe_work(self.problem, shape, device), dict[Core, int]()
        for core in {core: None for losses in around for core, loss in losses.items() if loss < NEAR}:
            if _takes(core, self.fixed, shape, device) and (instance := self._instance(core)):
                clocks[core] = spend(instance, work.form, work.counted, device.known_rates).clocks
        best = min(clocks.values(), default=0)
        losses = {core: loss for core, c in clocks.items() if (loss := math.log(c / best)) < FAR}
        return _Column(shape, device, best, losses)

    def _cores(self, pool: Iterable[Core], judged: GemmProblem, shape: Shape, device: Device) -> Iterator[Core]:
        for core in pool:
            if not _takes(core, self.fixed, shape, device):
                continue
            yield core
            for feature in _PROPOSING:
                yield from feature.propose_in_portfolio(judged, self.fixed, core, shape, device)

    def _instance(self, core: Core) -> Instance | None:
        """What the formula reads of the candidate around a core; None: it has none that is legal."""
        if core not in self.instances:
            c = self.complete(core, ANY_SHAPE)
            self.instances[core] = instance_of(c) if c else None
        return self.instances[core]

    def _bound(self, core: Core, device: Device, work: Any) -> int:
        """Clocks that its MMAs take at least."""
        (m, n, k), rates, parts = core.tile, device.known_rates, ctas_per_tile(core)
        x, y = (work.n, work.m) if core.swap_ab else (work.m, work.n)
        waves = -(-(-(-x // m) * -(-y // n) * work.batch * parts) // rates.sms)
        width = self.problem.a.dtype.bytes
        return (
            waves * -(-work.k // (k * parts)) * (m * n * k * width * rates.sms * rates.clock_hz) // (rates.flops_16bit)
        )

    def pick(self, columns: Sequence[_Column], default: Candidate, most: int) -> list[Candidate]:
        """Besides the default: always the core that saves most of what is left, then others in place of those picked as
        long as that saves more."""
        near: dict[Core, dict[int, float]] = {}
        for number, column in enumerate(columns):
            for core, loss in column.losses.items():
                near.setdefault(core, {})[number] = _weigh(loss)
        base = [_weigh(min(loss, FAR)) for loss in self.measure(default, columns)]
        picked = list[Core]()

        def modules_of(cores: Iterable[Core]) -> set[Any]:
            return {structure(c) for c in (default, *(self.legal[core] for core in cores)) if c}

        def gain(core: Core, left: Sequence[float], modules: Container[Any]) -> float:
            saved = sum(now - loss for j, loss in near[core].items() if loss < (now := left[j])) / len(columns)
            if saved < TILING_GAIN:
                return 0.0
            c = self._candidate(core, near[core], columns)
            return saved - (TILING_GAIN if c and structure(c) in modules else MODULE_GAIN) if c else 0.0

        def left_by(cores: Iterable[Core]) -> list[float]:
            left = list(base)
            for core in cores:
                for j, loss in near[core].items():
                    left[j] = min(left[j], loss)
            return left

        left = base
        while len(picked) < most - 1 and sum(left) > AIM * len(columns):
            modules = modules_of(picked)
            gains = {core: gain(core, left, modules) for core in near if core not in picked}
            if not gains or gains[best := max(gains, key=lambda x: gains[x])] <= 0:
                break
            picked.append(best)
            left = left_by(picked)
        for _ in range(1 if self.coarse else PASSES):
            before = list(picked)
            for place in range(len(picked)):
                others = [core for core in picked if core != picked[place]]
                rest, modules = left_by(others), modules_of(others)
                gains = {core: gain(core, rest, modules) for core in near if core not in others}
                better = max(gains, key=lambda x: gains[x])
                if gains[better] > gains[picked[place]]:
                    picked[place] = better
            if picked == before:
                break
        return [c for core in dict.fromkeys(picked) if (c := self.legal[core])]

    def measure(self, c: Candidate, columns: Sequence[_Column]) -> list[float]:
        """Its loss in each column."""
        instance, found = instance_of(c), []
        for column in columns:
            work = describe_work(self.problem, column.shape, column.device)
            clocks = spend(instance, work.form, work.counted, column.device.known_rates).clocks
            found.append(math.log(clocks / column.best))
        return found

    def _candidate(self, core: Core, near: Mapping[int, float], columns: Sequence[_Column]) -> Candidate | None:
        if core not in self.legal:
            closest = sorted(near, key=lambda j: near[j])[:8]
            self.legal[core] = self.complete(core, [columns[j].shape for j in closest])
        return self.legal[core]

    def complete(self, core: Core, shapes: Sequence[Shape]) -> Candidate | None:
        c: Candidate = finish(self.problem, self.fixed, core, self.arch, shapes, "", "").candidate
        if next(refusals(self.problem, c, self.arch), None) or self.refuse(c):
            return None
        return None if may_spill(*kernel_frame(self.problem, c)) else c
