"""Compiles in processes: one crash or hang costs one kernel, and an interrupt leaves nothing running.

Processes and not threads, because naming a kernel changes the decorated function.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import wait

from cutegen.build.worker import Job, Outcome
from cutegen.child import Child
from cutegen.runtime.ahead import usable_cpus


class _Compiler:
    """One worker and the job it has, if any."""

    def __init__(self) -> None:
        self.child = Child("cutegen.build.worker")
        self.job: int | None = None

    def start(self, index: int, job: Job, timeout_s: float) -> None:
        self.job = index
        self.child.send(job, timeout_s)

    def receive(self) -> Outcome:
        """The outcome of the job. EOFError: the process died."""
        outcome: Outcome = self.child.receive()
        return replace(outcome, log=self.child.tail()) if outcome.error else outcome

    def end_for(self, error: str, killed: bool) -> Outcome:
        """Ends the process; the outcome of a job that it could not finish."""
        self.child.process.kill()
        outcome = Outcome(error=error, log=self.child.tail(), killed=killed)
        self.child.end()
        return outcome


class JobPool:
    """At most `workers` compile processes, each with one job at a time of at most `timeout_s` seconds."""

    def __init__(self, workers: int, timeout_s: float) -> None:
        self.workers, self.timeout_s = workers, timeout_s
        self._compilers: list[_Compiler] = []

    @property
    def busy(self) -> bool:
        """Whether a job is under way."""
        return any(c.job is not None for c in self._compilers)

    @property
    def room(self) -> bool:
        """Whether a job can start now."""
        return len(self._compilers) < self.workers or any(c.job is None for c in self._compilers)

    def prepare(self) -> None:
        """Starts all processes, which import the compiler before they have a job."""
        while len(self._compilers) < self.workers:
            self._compilers.append(_Compiler())
            self._compilers[-1].child.send(None, self.timeout_s)

    def start(self, index: int, job: Job) -> None:
        """Hands over a job; there has to be room."""
        idle = next((c for c in self._compilers if c.job is None), None)
        if idle is None:
            idle = _Compiler()
            self._compilers.append(idle)
        idle.start(index, job, self.timeout_s)

    def collect(self, seconds: float = float("inf")) -> list[tuple[int, Outcome]]:
        """Waits until a job ends or is overdue, `seconds` at most; the outcomes of those, by index."""
        busy = [c for c in self._compilers if c.job is not None]
        if not busy:
            return []
        first = min(c.child.deadline for c in busy) - time.monotonic()
        ready = wait([c.child.connection for c in busy], timeout=max(0.0, min(first, seconds)))
        found = []
        for compiler in busy:
            error, killed = "", False
            if compiler.child.connection in ready:
                try:
                    outcome = compiler.receive()
                except EOFError:
                    error, killed = f"the compiler process died ({compiler.child.died()})", compiler.child.was_killed()
                    error += ": killed from outside, for want of memory perhaps; try fewer --jobs" * killed
            elif compiler.child.deadline <= time.monotonic():
                error = f"the compiler did not finish within {self.timeout_s:g} s"
            else:
                continue
            if error:
                outcome = compiler.end_for(error, killed)
                self._compilers.remove(compiler)
            index, compiler.job = compiler.job, None
            assert index is not None
            found.append((index, outcome))
        return found

    def end(self) -> None:
        """Ends all processes, and the jobs under way."""
        for compiler in self._compilers:
            compiler.child.end()
        self._compilers.clear()


def run_jobs(jobs: Sequence[Job], workers: int, timeout_s: float, on_done: Callable[[int, Outcome], None]) -> None:
    """Runs every job, at most `workers` at a time, `timeout_s` seconds each; on_done(index, outcome) as they end."""
    pending, pool = deque(enumerate(jobs)), JobPool(workers, timeout_s)
    try:
        while pending or pool.busy:
            while pending and pool.room:
                pool.start(*pending.popleft())
            for index, outcome in pool.collect():
                on_done(index, outcome)
    finally:
        pool.end()


def default_workers() -> int:
    """The CPUs this process may use."""
    return usable_cpus()
