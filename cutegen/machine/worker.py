"""Cases executed on the CPU in a process of their own: one that never ends, or takes all memory, is a result."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cutegen.build.messages import describe
from cutegen.defaults import CASE_SECONDS
from cutegen.diagnostics import CutegenError
from cutegen.run.attempts import Attempts
from cutegen.run.output_check import OutputError
from cutegen.run.row import Row
from cutegen.run.shapes import Shape
from cutegen.run.worker import MAX_LOST, LostError, Worker
from cutegen.runtime.accuracy import Tolerance
from cutegen.runtime.sources import LINE_INFO

if TYPE_CHECKING:
    from cutegen.machine.case_list import CpuCase
    from cutegen.machine.package import Simulation
    from cutegen.run.case_list import Case
    from cutegen.run.cases import CaseResult
    from cutegen.run.subject import Subject
    from cutegen.run.warp_timeline import WarpRow

CpuStatus = Literal["pass", "wrong", "race", "hang", "fault", "refused", "crashed", "skipped"]
GRACE_S = 30.0  # seconds in which a case that was given up says where its warps are
# Small products gain nothing by more threads, and lose much where cores are shared.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
MANY = 8  # unknown instructions that a finding lists


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """orders: how many of them each case runs in. timeout: seconds for one order of a case. every: all tilings. ready:
    inputs that were written before the kernel in front could start; None: nobody says, and launches start when it has
    ended. strict: see Simulation. timeline: take notes of the first case. suite: problems to run instead of others."""

    path: Path
    shapes: tuple[Shape, ...] = ()
    orders: int = 5
    timeout: float = CASE_SECONDS
    strict: bool = True
    every: bool = False
    ready: tuple[str, ...] | None = None
    allowed: Tolerance | None = None
    timeline: bool = False
    suite: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class OrderResult:
    """One case in one order of events."""

    order: int
    status: CpuStatus
    detail: tuple[str, ...] = ()
    errors: tuple[OutputError, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A kernel that was executed. unreached: instructions that no case executed, with their lines. uncalibrated: forms
    that were executed, and that no public kernel was right with, see forms.py."""

    name: str
    instructions: int
    unreached: tuple[str, ...]
    uncalibrated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CpuSetup:
    """What a worker tells when the subject is loaded and compiled. lacking: instructions that are not simulated."""

    name: str
    digest: str
    environment: dict[str, Any]
    cases: tuple[CpuCase, ...]
    lacking: tuple[str, ...] = ()


@dataclass(slots=True)
class CpuOutcome:
    """results: by case, in each order. code: what was executed of each kernel. timeline: of the first case."""

    setup: CpuSetup
    results: list[list[OrderResult]] = field(default_factory=list)
    code: tuple[KernelCode, ...] = ()
    timeline: tuple[WarpRow, ...] = ()


OnOrder = Callable[[int, int, "CpuCase"], None]
OnSetup = Callable[[CpuSetup], None]


def execute(request: CpuRequest, on_setup: OnSetup | None = None, on_order: OnOrder | None = None) -> CpuOutcome:
    """Every case in every order. CutegenError: the subject cannot be loaded or compiled.

    on_setup: told before anything is executed. on_order: number of the order, how many there are, its case.
    """
    outcome: CpuOutcome | None = None
    lost = 0
    while True:
        worker = Worker(request.path, "cutegen.machine.worker", request, {**ONE_THREAD, LINE_INFO: "1"})
        try:
            setup: CpuSetup = worker.answer
            if outcome is None:
                outcome = CpuOutcome(setup, [[] for _ in setup.cases])
                if on_setup:
                    on_setup(setup)
            if setup.lacking or _run_left(worker, outcome, request, on_order):
                if not setup.lacking:
                    outcome.code, outcome.timeline = worker.ask(None, GRACE_S)
                return outcome
            lost += 1
            if lost >= MAX_LOST:
                why = f"not run after {lost} hangs or faults"
                for results in outcome.results:
                    results += [OrderResult(i, "skipped", (why,)) for i in range(len(results), request.orders)]
                return outcome
        finally:
            worker.child.end()


def attempts_on_cpu(request: CpuRequest, sms: int) -> Attempts:
    """Single cases of the request's subject, on a GPU of so many SMs, each in all orders until one fails. CutegenError:
    it cannot be loaded, compiled or executed."""
    from cutegen.machine.case_list import CpuCase

    def questions(case: Case) -> list[tuple[CpuCase, int]]:
        return [(CpuCase(case, sms), order) for order in range(request.orders)]

    settings = {**ONE_THREAD, LINE_INFO: "1"}
    return Attempts(request.path, "cutegen.machine.worker", request, questions, request.timeout + GRACE_S, settings)


def _run_left(worker: Worker, outcome: CpuOutcome, request: CpuRequest, on_order: OnOrder | None) -> bool:
    """Runs what has no result yet; False: the worker was lost."""
    count = len(outcome.results) * request.orders
    for index, (case, results) in enumerate(zip(outcome.setup.cases, outcome.results)):
        if case.seconds and case.seconds > request.timeout and not results:
            told = f"one order is expected to take {case.seconds:.0f} s, and --timeout allows {request.timeout:g} s"
            results += [OrderResult(i, "skipped", (told,)) for i in range(request.orders)]
        elif case.bytes and case.bytes > available_memory() and not results:
            needed, free = case.bytes / 1e9, available_memory() / 1e9
            told = f"it is expected to take {needed:.1f} GB of memory, and {free:.1f} GB are free"
            results += [OrderResult(i, "skipped", (told,)) for i in range(request.orders)]
        while len(results) < request.orders:
            order = len(results)
            if on_order:
                on_order(index * request.orders + order, count, case)
            start = time.perf_counter()
            try:
                results.append(worker.ask((case, order), request.timeout + GRACE_S))
            except LostError as lost:
                status: CpuStatus = "hang" if lost.status == "hang" else "crashed"
                results.append(OrderResult(order, status, (str(lost),), seconds=time.perf_counter() - start))
                return False
    return True


def available_memory() -> int:
    """Bytes that may be used without swapping."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return int(re.search(r"^MemAvailable:\s+(\d+)", text, re.M)[1]) * 1024  # type: ignore[index]
    except (OSError, TypeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def main(handle: int) -> None:
    """The worker: loads and compiles a subject, then executes what it is asked for, until the other end is closed."""
    warnings.simplefilter("ignore")
    from cutegen.machine.timeline import collect

    connection = Connection(handle)
    request: CpuRequest = connection.recv()
    try:
        subject, simulation, setup = _load(request)
    except Exception as error:
        told = error if isinstance(error, CutegenError) else None
        connection.send(told or CutegenError(f"{request.path}: {describe(error)}"))
        return
    connection.send(setup)
    timeline: tuple[WarpRow, ...] = ()
    while True:
        try:
            asked = connection.recv()
        except EOFError:
            return
        if asked is None:
            connection.send((_code_of(simulation), timeline))
        else:
            case, order = asked
            simulation.notes = request.timeline and not timeline
            result = _run(subject, simulation, case, order, request.timeout)
            if simulation.notes and simulation.machine:
                timeline = collect(simulation.machine)
            try:
                connection.send(result)
            except OSError:  # whoever asked is gone
                return


def _load(request: CpuRequest) -> tuple[Subject, Simulation, CpuSetup]:
    from cutegen.machine.case_list import list_cpu_cases, needed_tilings
    from cutegen.machine.files import adopt_files
    from cutegen.machine.package import Simulation, simulate
    from cutegen.run.environment import describe_environment
    from cutegen.run.subject import is_plan, load_subject, plan_subject

    simulation = Simulation(strict=request.strict)
    if request.path.is_file() and not is_plan(request.path):
        adopt_files(simulation)
    subject = load_subject(request.path)
    if subject.plan:
        subject = plan_subject(simulate(subject.plan, simulation), request.path)
        _promise(simulation, subject, request.ready)
    subject = replace(subject, allowed=request.allowed)
    cases = list_cpu_cases(subject, request.shapes, request.every, request.suite)
    if subject.plan:
        subject.plan.warm_up(needed_tilings(subject, cases))
    lacking = tuple(dict.fromkeys(simulation.unknown()))
    return subject, simulation, CpuSetup(subject.name, subject.digest, describe_environment(), tuple(cases), lacking)


def _promise(simulation: Simulation, subject: Subject, ready: Sequence[str] | None) -> None:
    """What the launches of a plan may find before the kernel in front has ended."""
    plan, proving = subject.plan, subject.proving
    assert plan
    if ready is None or proving is None:
        simulation.apart = True
        return
    names = [argument.name for argument in plan.inputs]
    guessed = [i for i, name in enumerate(names) if name in proving.guessed_inputs]
    simulation.ready = [i for i, name in enumerate(names) if name in ready]
    simulation.before = lambda *values: {i: values[i] for i in guessed}

    def late(*values: Any) -> dict[int, Any]:
        rows = proving.late_rows(plan, values[: len(names)])
        return {names.index(name): mask for name, mask in rows.items() if name in ready}

    simulation.late = late


def _run(subject: Subject, simulation: Simulation, case: CpuCase, order: int, timeout: float) -> OrderResult:
    from cutegen.run.cases import run_case

    simulation.sm_count, simulation.seed = case.sms, order
    simulation.deadline = time.monotonic() + timeout
    before, known = simulation.launches, len(simulation.lacking)
    result = run_case(subject, case.case, seed=order)
    if subject.plan is None and (told := _not_executed(result, simulation, before, known)):
        return OrderResult(order, "skipped", (told,), seconds=result.seconds)
    return OrderResult(order, _status(result.status, result.detail), result.detail, result.errors, result.seconds)


def _not_executed(result: CaseResult, simulation: Simulation, before: int, known: int) -> str:
    """Why a file's kernel was not executed, in words; "" where it was."""
    if simulation.lacking[known:] and simulation.launches > before:
        return f"the kernel has instructions that are not simulated: {'; '.join(simulation.lacking[known:][:MANY])}"
    if simulation.launches > before:
        return ""
    said = "".join(f"; {text}" for text in result.detail) if result.status == "raised" else ""
    return f"no kernel of CuTe DSL was launched, and nothing else is executed here{said}"


def _status(status: str, detail: Sequence[str]) -> CpuStatus:
    told = "\n".join(detail)
    if status != "raised":
        return status  # type: ignore[return-value]
    if "PtxError: race: " in told:
        return "race"
    hangs = ("PtxError: deadlock", "PtxError: no store, arrival", "PtxError: it did not end")
    return "hang" if any(text in told for text in hangs) else "fault"


def _code_of(simulation: Simulation) -> tuple[KernelCode, ...]:
    from cutegen.machine.forms import executed_forms, uncalibrated

    found = []
    for assembler in simulation.assemblers:
        program = assembler.program
        missed = tuple(
            f"{program.place(instruction.line)}: {instruction.text}"
            for instruction, reached in zip(program.instructions, assembler.reached)
            if not reached
        )
        found.append(
            KernelCode(program.entry, len(program.instructions), missed, uncalibrated(executed_forms(assembler)))
        )
    return tuple(found)
