"""`cutegen bench`: kernels and baselines measured against each other in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from cutegen.diagnostics import CutegenError
from cutegen.run.candidates import Candidate, bind_baselines, bind_kernel, common_dims
from cutegen.run.device import Launch, Rates
from cutegen.run.environment import Reading
from cutegen.run.intervals import Interval, Summary, median_interval, round_orders, speed_ratio, summarise_speeds
from cutegen.run.shapes import Shape, bench_shapes, complete
from cutegen.run.subject import Subject
from cutegen.runtime.arguments import TensorArg, range_fault

MIN_ROUNDS, ROUNDS = 5, 9
SLICE_SECONDS = 0.06
# Warm-up: passes over all candidates until the total time changes by less than this twice in a row, or that many slices
# were spent.
STEADY, STEADY_SLICES = 0.01, 64


OnProgress = Callable[[str], None]


def silent(text: str) -> None:
    """Progress nobody wants to see."""


class Device(Protocol):
    """What measuring needs of a device; tests give one without a GPU."""

    l2_bytes: int

    def free_bytes(self) -> int: ...
    def synchronize(self) -> None: ...
    def other_processes(self) -> int: ...
    def prepare(self, launches: Sequence[Launch]) -> Any: ...
    def sample(self, prepared: Any, seconds: float) -> tuple[float, Reading | None]: ...
    def host_seconds(self, launch: Launch) -> float: ...
    def measure_rates(self, dtype: str) -> Rates: ...


@dataclass(frozen=True, slots=True)
class Settings:
    rounds: int = ROUNDS
    slice_seconds: float = SLICE_SECONDS
    baselines: tuple[str, ...] = ()
    against: str = ""
    suite: str = ""


@dataclass
class Measured:
    """One candidate's figures. samples: seconds per launch, by round. speed: relative to `against` in the same rounds.

    share: of the floor that the rates of this run set, or a candidate that only moves the data. right: outputs after
    timing (None: not comparable).
    step_seconds: what a model runs once per step beside; None where nothing is needed.
    """

    candidate: Candidate
    samples: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    host_seconds: float = 0.0
    time: Interval | None = None
    speed: Interval | None = None
    share: float | None = None
    right: bool | None = None
    step_seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        c, t = self.candidate, self.time
        assert t is not None
        worst = max(c.errors, key=lambda e: e.max_error, default=None)
        return {
            "name": c.name,
            "baseline": c.is_baseline,
            "does": c.does,
            "tiling": c.tiling,
            "digest": c.subject.digest if c.subject and not c.is_baseline else None,
            "sets": c.sets,
            "flops": c.flops,
            "bytes": c.moved,
            "seconds": _interval(t),
            "tflops": c.flops / t.median / 1e12 if c.flops else None,
            "terabytes_per_second": c.moved / t.median / 1e12 if c.moved else None,
            "speed": _interval(self.speed) if self.speed else None,
            "share_of_floor": self.share,
            "host_seconds": self.host_seconds,
            "step_seconds": self.step_seconds,
            "sm_mhz": [r.sm_mhz for r in self.readings],
            "watts": [r.watts for r in self.readings],
            "celsius": [r.celsius for r in self.readings],
            "right": self.right,
            "max_error": worst.max_error if worst else None,
            "allowed": worst.allowed if worst else None,
            "samples": self.samples,
        }


@dataclass
class ProblemReport:
    """One shape. against: the candidate that speeds refer to. skipped: name -> reason."""

    shape: Shape
    against: str
    measured: list[Measured]
    skipped: dict[str, str]
    warm_up_seconds: float

    @property
    def ok(self) -> bool:
        return all(m.right is not False for m in self.measured if not m.candidate.is_baseline)

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "against": self.against,
            "warm_up_seconds": self.warm_up_seconds,
            "candidates": [m.to_json() for m in self.measured],
            "skipped": self.skipped,
        }


@dataclass
class BenchReport:
    """Every problem measured. notes: what makes the figures less than they look, in words."""

    environment: dict[str, Any]
    rates: Rates
    settings: Settings
    problems: list[ProblemReport]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(p.ok for p in self.problems)

    def summaries(self) -> Mapping[str, Summary]:
        """Over all problems, of each kernel that has a speed."""
        found: dict[str, list[Measured]] = {}
        references: dict[str, list[Measured]] = {}
        for p in self.problems:
            by_name = {m.candidate.name: m for m in p.measured}
            for m in p.measured:
                if m.speed and not m.candidate.is_baseline:
                    found.setdefault(m.candidate.name, []).append(m)
                    references.setdefault(m.candidate.name, []).append(by_name[p.against])
        return {name: summarise(references[name], ms) for name, ms in found.items()}

    def to_json(self, command: str) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "command": command,
            "environment": self.environment,
            "rates": asdict(self.rates),
            "rounds": self.settings.rounds,
            "slice_seconds": self.settings.slice_seconds,
            "interval": "order statistics around the median of rounds; speed: median of the rounds' ratios",
            "inputs": "N(0, 1), the last operand scaled to unit variance of the product; sets exceed L2 twice",
            "notes": self.notes,
            "summaries": {name: asdict(s) for name, s in self.summaries().items()},
            "problems": [p.to_json() for p in self.problems],
        }


def measure(
    subjects: Sequence[tuple[Subject, Sequence[Shape]]],
    asked: Sequence[str],
    device: Device,
    environment: dict[str, Any],
    settings: Settings,
    on_progress: OnProgress = silent,
) -> BenchReport:
    """Measures every subject. Those with the same dims share their problems: the shapes `asked` for, else those that
    the first one's spec lists, else a default list."""
    notes = []
    if others := device.other_processes():
        notes.append(f"{others} other processes use the GPU: do not trust these figures")
    on_progress("rates of this device")
    rates = device.measure_rates(_operand_dtype(subjects[0][0]))
    problems = []
    listed = {subject.path: shapes for subject, shapes in subjects}
    for group in common_dims([subject for subject, _ in subjects]).values():
        own = listed[group[0].path]
        shapes = [s for s in own if any(_fits(x, s) for x in group)] if settings.suite else None
        if shapes is None or asked:
            shapes = bench_shapes(group[0], asked, own)
        elif out := len(own) - len(shapes):
            notes.append(f"{out} of the suite's {len(own)} problems are outside of what the kernels promise")
        for i, shape in enumerate(shapes):
            text = " ".join(f"{d}={n}" for d, n in shape.items())
            on_progress(f"{i + 1} of {len(shapes)}: {text}")
            fitting = [s for s in group if _fits(s, shape)] if settings.suite else group
            try:
                problems.append(measure_problem(fitting, shape, device, rates, settings, on_progress))
            except CutegenError as error:
                if not settings.suite or error.exit_code == 2:
                    raise
                notes.append(f"not measured: {text}: {error.message}")  # one of many: the others still count
    if not problems:
        raise CutegenError("; ".join(notes) or "there is nothing to measure", exit_code=2)
    if device.other_processes() and not others:
        notes.append("another process came onto the GPU: do not trust these figures")
    return BenchReport(environment, rates, settings, problems, tuple(notes))


def _fits(subject: Subject, shape: Shape) -> bool:
    """The subject promises this problem."""
    return not any(range_fault(d, n, subject.dims[d]) or n % subject.steps[d] for d, n in shape.items())


def _operand_dtype(subject: Subject) -> str:
    """The dtype whose matmul rate bounds the kernel: that of its first input; bfloat16 for a file."""
    first = subject.plan.inputs[0] if subject.plan else None
    return first.dtype if isinstance(first, TensorArg) else "bfloat16"


def measure_problem(
    subjects: Sequence[Subject],
    shape: Shape,
    device: Device,
    rates: Rates,
    settings: Settings,
    on_progress: OnProgress = silent,
) -> ProblemReport:
    """Measures kernels that share their dims, and their baselines, on one problem.

    CutegenError: no kernel runs it, or `settings.against` names nobody.
    """
    skipped: dict[str, str] = {}
    candidates = _bind(subjects, shape, device, settings, skipped, on_progress)
    names = [c.name for c in candidates]
    against = settings.against or next((c.name for c in candidates if c.is_baseline), names[0])
    if against not in names:
        raise CutegenError(f"nothing named {against!r} was measured", f"choose from {', '.join(names)}", exit_code=2)
    for c in candidates:
        c.launch_all()
        c.judge()
    wrong = {c.name for c in candidates if c.right is False}
    prepared = []
    for c in candidates:
        on_progress(f"capturing {c.name}")
        prepared.append(device.prepare(c.launches))
        c.poison()
    measured = [Measured(c) for c in candidates]
    on_progress("warming up")
    warm = warm_up(device, prepared, settings.slice_seconds)
    for number, order in enumerate(round_orders(len(candidates), settings.rounds)):
        on_progress(f"round {number + 1} of {settings.rounds}")
        for i in order:
            seconds, reading = device.sample(prepared[i], settings.slice_seconds)
            measured[i].samples.append(seconds)
            measured[i].readings += [reading] if reading else []
    device.synchronize()
    reference = measured[names.index(against)].samples
    for m in measured:
        c = m.candidate
        c.judge()
        m.right = None if c.right is None else c.right and c.name not in wrong
        m.time = median_interval(m.samples)
        m.speed = speed_ratio(reference, m.samples) if c.name != against else None
        if not settings.suite:  # it does not depend on the problem, and takes longer than the rest
            m.host_seconds = device.host_seconds(c.launches[0])
        if c.step:
            m.step_seconds = device.sample(device.prepare([c.step]), settings.slice_seconds)[0]
    moving = next((m.time.median for m in measured if m.candidate.is_bound and m.time), None)
    for m in measured:
        c = m.candidate
        if c.flops and c.moved and m.time:
            m.share = rates.floor(c.flops, c.moved, moving) / m.time.median
        c.release()
    return ProblemReport(shape, against, measured, skipped, warm)


def _bind(
    subjects: Sequence[Subject],
    shape: Shape,
    device: Device,
    settings: Settings,
    skipped: dict[str, str],
    on_progress: OnProgress,
) -> list[Candidate]:
    """Kernels first, then baselines. Every kernel rotates through as many sets as the first one."""
    kernels: list[Candidate] = []
    seen: set[tuple[object, ...]] = set()
    for subject in subjects:
        on_progress(f"preparing {subject.name}")
        try:
            own = complete(subject, shape, "shape")
            sets = len(kernels[0].inputs) if kernels else None
            kernels.append(bind_kernel(subject, own, device, 2 * len(subjects) + 1, sets))
        except (CutegenError, TypeError, ValueError, RuntimeError, AssertionError) as error:
            skipped[subject.name] = f"{type(error).__name__}: {error}"
    if not kernels:
        raise CutegenError("; ".join(f"{name}: {reason}" for name, reason in skipped.items()))
    _tell_apart(kernels)
    baselines: list[Candidate] = []
    for kernel in kernels:
        on_progress(f"baselines of {kernel.name}")
        baselines += bind_baselines(kernel, settings.baselines, seen, skipped)
    return kernels + baselines


def _tell_apart(kernels: Iterable[Candidate]) -> None:
    """Numbers the second and later kernels of one name."""
    count: dict[str, int] = {}
    for kernel in kernels:
        count[kernel.name] = count.get(kernel.name, 0) + 1
        if count[kernel.name] > 1:
            kernel.name += f" #{count[kernel.name]}"


def warm_up(device: Device, prepared: Sequence[Any], slice_seconds: float) -> float:
    """Runs everything in turn until the total is steady; returns the seconds of kernel time it took."""
    spent, before, steady = 0.0, float("inf"), 0
    while spent < STEADY_SLICES * slice_seconds and steady < 2:
        total = sum(device.sample(p, slice_seconds)[0] for p in prepared)
        spent += slice_seconds * len(prepared)
        steady = steady + 1 if abs(total - before) <= STEADY * total else 0
        before = total
    return spent


def summarise(references: Sequence[Measured], measured: Sequence[Measured]) -> Summary:
    """Speeds of one kernel over problems, each relative to the candidate it is measured against."""
    return summarise_speeds([r.samples for r in references], [m.samples for m in measured])


def _interval(value: Interval) -> dict[str, float]:
    return {"median": value.median, "low": value.low, "high": value.high, "coverage": value.coverage}
