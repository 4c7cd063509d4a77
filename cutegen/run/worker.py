"""Cases run in a process of their own: a kernel that hangs or faults is reported, the next case gets a new process."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cutegen.diagnostics import CutegenError
from cutegen.run.case_list import Case, list_cases
from cutegen.run.cases import CaseResult, run_case
from cutegen.run.environment import describe_environment
from cutegen.run.shapes import Shape
from cutegen.run.subject import load_subject

SETUP_SECONDS = 300.0  # imports, compiling every tiling
CASE_SECONDS = 60.0
MAX_LOST = 3  # workers lost to hangs and faults before the rest is skipped

Setup = dict[str, Any]
OnCase = Callable[[int, int, Case], None]


def run_cases(
    path: Path, shapes: Sequence[Shape] = (), timeout: float = CASE_SECONDS, on_case: OnCase | None = None
) -> tuple[Setup, list[CaseResult]]:
    """Runs every case of the subject at `path`. CutegenError: it cannot be loaded or compiled.

    Setup: name, digest and environment. timeout: seconds one case may take (compiling a file's kernel included).
    """
    results: list[CaseResult] = []
    lost = 0
    while True:
        worker = _Worker(path, shapes)
        try:
            cases: list[Case] = worker.setup["cases"]
            for index in range(len(results), len(cases)):
                if lost >= MAX_LOST:
                    why = f"not run after {lost} hangs or faults"
                    results += [CaseResult(c, "skipped", (why,)) for c in cases[index:]]
                    break
                if on_case:
                    on_case(index, len(cases), cases[index])
                result, alive = worker.run(index, cases[index], timeout)
                results.append(result)
                if not alive:
                    lost += 1
                    break
            if len(results) == len(cases):
                return worker.setup, results
        finally:
            worker.close()


class _Worker:
    def __init__(self, path: Path, shapes: Sequence[Shape]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, path, shapes), daemon=True)
        self.process.start()
        theirs.close()
        answer = self._receive(SETUP_SECONDS)
        if not isinstance(answer, dict):
            self.close()
            raise answer if isinstance(answer, CutegenError) else CutegenError(f"{path}: loading it {answer}")
        self.setup: Setup = answer

    def run(self, index: int, case: Case, timeout: float) -> tuple[CaseResult, bool]:
        """The result, and whether the worker can run another case."""
        self.pipe.send(index)
        answer = self._receive(timeout)
        if not isinstance(answer, str):
            return answer
        status: Any = "hang" if "seconds" in answer else "crashed"
        return CaseResult(case, status, (answer,), seconds=timeout), False

    def _receive(self, timeout: float) -> Any:
        """The worker's answer, or in words why there is none."""
        try:
            if self.pipe.poll(timeout):
                return self.pipe.recv()
            return f"did not end within {timeout:g} seconds"
        except EOFError:
            self.process.join(5)
            return f"ended the process (exit code {self.process.exitcode})"

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def serve(pipe: Connection, path: Path, shapes: Sequence[Shape]) -> None:
    """The worker: loads and compiles the subject, then runs the cases it is asked for, until the pipe is closed."""
    warnings.simplefilter("ignore")  # torch's, about settings of the check itself; findings go through the pipe
    try:
        subject = load_subject(path)
        cases = list(list_cases(subject, shapes))
        if subject.plan:
            subject.plan.warm_up()
        environment = describe_environment()
    except Exception as error:
        pipe.send(
            error if isinstance(error, CutegenError) else CutegenError(f"{path}: {type(error).__name__}: {error}")
        )
        return
    pipe.send({"name": subject.name, "digest": subject.digest, "environment": environment, "cases": cases})
    for index in _requests(pipe):
        result = run_case(subject, cases[index], seed=index)
        alive = device_works()
        pipe.send((result, alive))
        if not alive:
            return


def _requests(pipe: Connection) -> Iterator[int]:
    while True:
        try:
            yield pipe.recv()
        except EOFError:
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
