"""Cases run in a process of their own: a kernel that hangs or faults is reported, the next case gets a new process."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cutegen.build.messages import describe
from cutegen.child import Child
from cutegen.diagnostics import CutegenError
from cutegen.run.case_list import Case, list_cases
from cutegen.run.cases import CaseResult, Status, run_case
from cutegen.run.environment import describe_environment
from cutegen.run.row import Row
from cutegen.run.shapes import Shape
from cutegen.run.subject import load_subject
from cutegen.runtime.accuracy import Tolerance

SETUP_SECONDS = 300.0  # imports, compiling every tiling
MAX_LOST = 3  # workers lost to hangs and faults before the rest is skipped

Setup = dict[str, Any]
OnCase = Callable[[int, int, Case], None]


def run_cases(
    path: Path,
    shapes: Sequence[Shape],
    timeout: float,
    on_case: OnCase | None,
    allowed: Tolerance | None = None,
    suite: Sequence[Row] = (),
) -> tuple[Setup, list[CaseResult]]:
    """Runs every case of the subject at `path`. CutegenError: it cannot be loaded or compiled.

    Setup: name, digest and environment. timeout: seconds one case may take (compiling a file's kernel included).
    allowed: the tolerance, instead of the one that follows from the problem.
    """
    results: list[CaseResult] = []
    lost = 0
    while True:
        worker = Worker(path, "cutegen.run.worker", (path, shapes, allowed, suite))
        try:
            cases: list[Case] = worker.answer["cases"]
            for index in range(len(results), len(cases)):
                if on_case:
                    on_case(index, len(cases), cases[index])
                result, alive = worker.run(index, cases[index], timeout)
                results.append(result)
                if not alive:
                    lost += 1
                    break
            if lost >= MAX_LOST:
                why = f"not run after {lost} hangs or faults"
                results += [CaseResult(c, "skipped", (why,)) for c in cases[len(results) :]]
            if len(results) == len(cases):
                return worker.answer, results
        finally:
            worker.child.end()


class LostError(Exception):
    """The process is gone, or about to be. status: what becomes of the case that it had."""

    def __init__(self, status: Status, said: str) -> None:
        super().__init__(said)
        self.status = status


class Worker:
    """A process with the subject at `path` loaded, by the `main` of a module, which answers the request with a setup.
    What its kernels print is shown. CutegenError: the subject cannot be loaded or compiled."""

    def __init__(self, path: Path, module: str, request: object, settings: Mapping[str, str] | None = None) -> None:
        self.child = Child(module, shown=True, settings=settings)
        try:
            answer = self.ask(request, SETUP_SECONDS)
            if isinstance(answer, CutegenError):
                raise answer
        except BaseException as error:
            self.child.end()
            if isinstance(error, LostError):
                raise CutegenError(f"{path}: loading it {error}") from None
            raise
        self.answer: Any = answer

    def run(self, index: int, case: Case, timeout: float) -> tuple[CaseResult, bool]:
        """The result, and whether the worker can run another case."""
        start = time.perf_counter()
        try:
            result, alive = self.ask((case, index), timeout)
        except LostError as lost:
            return CaseResult(case, lost.status, (str(lost),), seconds=time.perf_counter() - start), False
        return result, alive

    def ask(self, message: object, timeout: float) -> Any:
        """The worker's answer, or LostError."""
        self.child.send(message, timeout)
        if not self.child.wait():
            raise LostError("hang", f"did not end within {timeout:g} seconds")
        try:
            return self.child.receive()
        except EOFError:
            raise LostError("crashed", f"ended the process ({self.child.died()})") from None


def main(handle: int) -> None:
    """The worker: loads and compiles a subject, then runs the cases it is asked for, until the other end is closed."""
    warnings.simplefilter("ignore")  # torch's, about settings of the check itself; findings go through the pipe
    connection = Connection(handle)
    path, shapes, allowed, suite = connection.recv()
    try:
        subject = replace(load_subject(path), allowed=allowed)
        cases = list(list_cases(subject, shapes, suite))
        if subject.plan:
            subject.plan.warm_up()
        environment = describe_environment()
    except Exception as error:
        connection.send(error if isinstance(error, CutegenError) else CutegenError(f"{path}: {describe(error)}"))
        return
    connection.send({"name": subject.name, "digest": subject.digest, "environment": environment, "cases": cases})
    while True:
        try:
            case, seed = connection.recv()
        except EOFError:
            return
        result = run_case(subject, case, seed)
        alive = device_works()
        connection.send((result, alive))
        if not alive:
            return


def device_works() -> bool:
    """False after a fault that leaves the CUDA context unusable."""
    import torch

    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
