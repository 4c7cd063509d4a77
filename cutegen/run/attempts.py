"""One case after the other, each asked for when the one before it is known: what shrinking a failure takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutegen.run.case_list import Case
from cutegen.run.worker import LostError, Worker
from cutegen.runtime.accuracy import Tolerance

# A file may decline strides it does not take, and what needs a GPU is skipped for kernels that run on the CPU.
ACCEPTABLE = ("pass", "refused", "skipped")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a case fails. status: as in its result. detail: what was found."""

    status: str
    detail: tuple[str, ...]


class Attempts:
    """Cases of the subject at `path`, in a process that is replaced when a case takes it along.

    module, request, settings: of the Worker. questions: what to ask it of a case; each answer is a result, or one and
    whether the worker can go on. timeout: seconds for an answer. CutegenError: it cannot be loaded or compiled.
    """

    def __init__(
        self,
        path: Path,
        module: str,
        request: object,
        questions: Callable[[Case], Iterable[object]],
        timeout: float,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._start = lambda: Worker(path, module, request, settings)
        self._questions, self._timeout = questions, timeout
        self._worker: Worker | None = self._start()

    def __call__(self, case: Case) -> Fault | None:
        """The first fault; None: the case passes."""
        for question in self._questions(case):
            self._worker = self._worker or self._start()
            try:
                answer = self._worker.ask(question, self._timeout)
            except LostError as lost:
                self.end()
                return Fault(lost.status, (str(lost),))
            result, alive = answer if isinstance(answer, tuple) else (answer, True)
            if not alive:
                self.end()
            if result.status not in ACCEPTABLE:
                return Fault(result.status, result.detail)
        return None

    def end(self) -> None:
        if self._worker:
            self._worker.child.end()
        self._worker = None

    def __enter__(self) -> Attempts:
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()


def attempts_on_gpu(path: Path, timeout: float, allowed: Tolerance | None) -> Attempts:
    return Attempts(path, "cutegen.run.worker", (path, (), allowed, ()), lambda case: [(case, 0)], timeout)
