"""`cutegen bench`: kernels and baselines measured against each other in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cutegen.build.messages import explain
from cutegen.defaults import AGAIN_ROUNDS, PATIENCE_SECONDS, ROUNDS, SLICE_MS, Behind
from cutegen.diagnostics import CutegenError, describe_error
from cutegen.run.candidates import Candidate, bind_baselines, bind_kernel, common_dims
from cutegen.run.device import Launch, Rates
from cutegen.run.environment import Reading
from cutegen.run.intervals import median_interval, round_orders, speed_ratio
from cutegen.run.measured import BenchReport, LeftOut, Measured, ProblemReport, relate
from cutegen.run.patience import Patience, TimeUp
from cutegen.run.preceding import stand_behind
from cutegen.run.row import Row, refuse
from cutegen.run.shapes import bench_shapes, complete
from cutegen.run.subject import Subject
from cutegen.runtime.arguments import TensorArg

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
    """floor: a problem on which a kernel's speed has a lower end under it is measured once more, in `again` rounds.
    lock_mhz: what the SM clock is locked at; None: it is left alone."""

    rounds: int = ROUNDS
    slice_seconds: float = SLICE_MS / 1e3
    baselines: tuple[str, ...] = ()
    against: str = ""
    suite: str = ""
    sms: int | None = None
    patience: float = PATIENCE_SECONDS
    behind: Behind = "nothing"
    floor: float | None = None
    again: int = AGAIN_ROUNDS
    lock_mhz: int | None = None


def measure(
    subjects: Sequence[tuple[Subject, Sequence[Row]]],
    asked: Sequence[str],
    device: Device,
    environment: dict[str, Any],
    settings: Settings,
    on_progress: OnProgress = silent,
    on_problem: Callable[[BenchReport], None] = lambda report: None,
) -> BenchReport:
    """Measures every subject. Those with the same dims share their problems: the shapes `asked` for, else the rows that
    the first one's spec lists, else a default list. Rows of a suite are measured by the kernels they are for.

    on_problem: gets the report so far after each problem.
    """
    notes: list[str] = []
    if settings.lock_mhz:
        notes.append(f"the SM clock was locked at {settings.lock_mhz} MHz")
    if others := device.other_processes():
        notes.append(f"{others} other processes use the GPU: do not trust these figures")
    on_progress("rates of this device")
    rates = device.measure_rates(_operand_dtype(subjects[0][0]))
    problems: list[ProblemReport] = []
    left_out: list[LeftOut] = []
    listed = {subject.path: rows for subject, rows in subjects}
    by_suite, lost = bool(settings.suite) and not asked, False
    patience = Patience(settings.patience)

    def report() -> BenchReport:
        suite = settings.suite if by_suite else ""
        how = (environment, rates, settings.rounds, settings.slice_seconds, suite)
        return BenchReport(
            *how, list(problems), tuple(notes), tuple(left_out), sms=settings.sms, behind=settings.behind,
            floor=settings.floor,
        )  # fmt: skip

    for group in common_dims([subject for subject, _ in subjects]).values():
        rows = list(listed[group[0].path])
        if not by_suite:
            rows = [Row(shape) for shape in bench_shapes(group[0], asked, [row.shape for row in rows])]
        for i, row in enumerate(rows):
            on_progress(f"{i + 1} of {len(rows)}: {row.title}")
            reasons = [refuse(s, row) if by_suite else "" for s in group]
            fitting = [s for s, reason in zip(group, reasons) if not reason]
            refused = {s.name: reason for s, reason in zip(group, reasons) if reason}
            if not fitting:
                left_out.append(LeftOut(row, refused))
                continue
            try:
                problem = measure_twice(fitting, row, device, rates, settings, patience, on_progress)
            except (CutegenError, RuntimeError) as error:
                if not by_suite:
                    raise
                # One of many: the others still count. Every kernel is named, or nobody could tell whom this row lacks.
                alone = error.skipped if isinstance(error, NoKernelError) else {}
                said = {s.name: alone.get(s.name) or _reason(error) for s in fitting}
                left_out.append(LeftOut(row, {**refused, **said}))
                if lost := _is_lost(device):
                    notes.append(f"the device failed at {row.title}: what comes after was not measured")
                    break
                continue
            problem.row, problem.skipped = row, {**refused, **problem.skipped}
            problems.append(problem)
            on_problem(report())
    if not problems:
        given = dict.fromkeys(f"{k}: {reason}" if k else reason for x in left_out for k, reason in x.reasons.items())
        raise CutegenError("; ".join([*notes, *given]) or "there is nothing to measure", exit_code=2)
    if device.other_processes() and not others:
        notes.append("another process came onto the GPU: do not trust these figures")
    return replace(report(), complete=not lost)


def _reason(error: Exception) -> str:
    """In a line; what the compiler says in short, where it is known."""
    if isinstance(error, CutegenError):
        return error.message
    return explain(str(error)).partition("\n")[0] or describe_error(error)


def _is_lost(device: Device) -> bool:
    """A kernel that broke its memory takes the whole context with it: every further call fails."""
    try:
        device.synchronize()
    except RuntimeError:
        return True
    return False


def _operand_dtype(subject: Subject) -> str:
    """The dtype whose matmul rate bounds the kernel: that of its first input; bfloat16 for a file."""
    first = subject.plan.inputs[0] if subject.plan else None
    return first.dtype if isinstance(first, TensorArg) else "bfloat16"


def measure_twice(
    subjects: Sequence[Subject],
    row: Row,
    device: Device,
    rates: Rates,
    settings: Settings,
    patience: Patience,
    on_progress: OnProgress = silent,
) -> ProblemReport:
    """Measures a problem, and once more where a speed reaches under the floor: then the second time counts, whatever it
    says, and the first is kept as well. Errors: see `measure_problem`."""
    first = measure_problem(subjects, row, device, rates, settings, patience, on_progress)
    if settings.floor is None or not first.below(settings.floor):
        return first
    longer = replace(settings, rounds=settings.again)
    second = measure_problem(subjects, row, device, rates, longer, patience, on_progress)
    second.first = first.measured
    return second


def measure_problem(
    subjects: Sequence[Subject],
    row: Row,
    device: Device,
    rates: Rates,
    settings: Settings,
    patience: Patience,
    on_progress: OnProgress = silent,
) -> ProblemReport:
    """Measures kernels that share their dims, and their baselines, on one problem.

    CutegenError: no kernel runs it, or `settings.against` names nobody.
    """
    skipped: dict[str, str] = {}
    patience.begin_problem()
    bound = _bind(subjects, row, device, settings, skipped, patience, on_progress)
    _choose_reference(bound, settings.against)  # before all that takes long
    wrong, prepared = _prepare(bound, device, settings.behind, skipped, patience, on_progress)
    candidates = [c for c in bound if c.name not in skipped]
    names, against = [c.name for c in candidates], _choose_reference(candidates, settings.against)
    measured = [Measured(c, alone=settings.behind == "nothing") for c in candidates]
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
    relate(measured, against)
    moving = next((m.time.median for m in measured if m.candidate.is_bound and m.time), None)
    for m in measured:
        c = m.candidate
        if c.flops and c.moved and m.time and m.alone:
            m.share = rates.floor(c.flops, c.moved, moving) / m.time.median
        c.release()
    return ProblemReport(row.shape, against, measured, skipped, warm)


def _choose_reference(candidates: Sequence[Candidate], asked: str) -> str:
    """The name that speeds are relative to: what was asked for, else the first baseline. CutegenError: it is none."""
    names = [c.name for c in candidates]
    against = asked or next((c.name for c in candidates if c.is_baseline), names[0])
    if against not in names:
        raise CutegenError(f"nothing named {against!r} was measured", f"choose from {', '.join(names)}", exit_code=2)
    return against


def _prepare(
    candidates: Sequence[Candidate],
    device: Device,
    behind: Behind,
    skipped: dict[str, str],
    patience: Patience,
    on_progress: OnProgress,
) -> tuple[set[str], list[Any]]:
    """Names of those with wrong results, and what `device` samples of all but those that are left out: baselines that
    take too long, and what cannot be compiled or launched. NoKernelError: no kernel is left."""
    wrong, prepared = set(), []
    for c in candidates:
        on_progress(f"capturing {c.name}")
        try:
            with patience.spend(c.name) if c.is_baseline else nullcontext():
                c.launch_all()
                c.judge()
                wrong |= {c.name} if c.right is False else set()
                ready = device.prepare(stand_behind(behind, c.launches, c.inputs))
                c.poison()
        except TimeUp as late:
            skipped[c.name] = str(late)
        except (CutegenError, RuntimeError, TypeError, ValueError) as error:
            if _is_lost(device):
                raise
            skipped[c.name] = _reason(error)
        else:
            prepared.append(ready)
            continue
        c.release()
    kernels = [c.name for c in candidates if not c.is_baseline]
    if all(name in skipped for name in kernels):
        raise NoKernelError({name: skipped[name] for name in kernels})
    return wrong, prepared


class NoKernelError(CutegenError):
    """No kernel can be launched on a problem. skipped: why, by kernel."""

    def __init__(self, skipped: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in skipped.items()))
        self.skipped = dict(skipped)


def _bind(
    subjects: Sequence[Subject],
    row: Row,
    device: Device,
    settings: Settings,
    skipped: dict[str, str],
    patience: Patience,
    on_progress: OnProgress,
) -> list[Candidate]:
    """Kernels first, then baselines. Every kernel rotates through as many sets as the first one."""
    kernels: list[Candidate] = []
    seen: set[tuple[object, ...]] = set()
    for subject in subjects:
        on_progress(f"preparing {subject.name}")
        try:
            own = complete(subject, row.shape, "shape")
            sets = len(kernels[0].inputs) if kernels else None
            kernels.append(
                bind_kernel(subject, own, device, 2 * len(subjects) + 1, sets, alike=kernels, draw=row.draw(subject))
            )
        except (CutegenError, TypeError, ValueError, RuntimeError, AssertionError) as error:
            skipped[subject.name] = _reason(error)
    if not kernels:
        raise NoKernelError(skipped)
    _tell_apart(kernels)
    baselines: list[Candidate] = []
    for kernel in kernels:
        on_progress(f"baselines of {kernel.name}")
        baselines += bind_baselines(kernel, settings.baselines, seen, skipped, patience, on_progress)
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
