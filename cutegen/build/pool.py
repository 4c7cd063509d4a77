"""Compiles in processes: one crash or hang costs one kernel, and an interrupt leaves nothing running.

Processes and not threads, because naming a kernel changes the decorated function.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import wait

from cutegen.build.worker import Job, Outcome
from cutegen.child import Child


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


def run_jobs(jobs: Sequence[Job], workers: int, timeout_s: float, on_done: Callable[[int, Outcome], None]) -> None:
    """Runs every job, at most `workers` at a time, `timeout_s` seconds each; on_done(index, outcome) as they end."""
    pending = deque(enumerate(jobs))
    compilers: list[_Compiler] = []
    try:
        while pending or any(c.job is not None for c in compilers):
            idle = [c for c in compilers if c.job is None]
            while pending and (idle or len(compilers) < workers):
                if not idle:
                    compilers.append(_Compiler())
                (idle.pop() if idle else compilers[-1]).start(*pending.popleft(), timeout_s)
            _collect(compilers, timeout_s, on_done)
    finally:
        for compiler in compilers:
            compiler.child.end()


def _collect(compilers: list[_Compiler], timeout_s: float, on_done: Callable[[int, Outcome], None]) -> None:
    """Waits until a job ends or is overdue, and reports those."""
    busy = [c for c in compilers if c.job is not None]
    first = min(c.child.deadline for c in busy)
    ready = wait([c.child.connection for c in busy], timeout=max(0.0, first - time.monotonic()))
    for compiler in busy:
        error, killed = "", False
        if compiler.child.connection in ready:
            try:
                outcome = compiler.receive()
            except EOFError:
                error, killed = f"the compiler process died ({compiler.child.died()})", compiler.child.was_killed()
                error += ": killed from outside, for want of memory perhaps; try fewer --jobs" * killed
        elif compiler.child.deadline <= time.monotonic():
            error = f"the compiler did not finish within {timeout_s:g} s"
        else:
            continue
        if error:
            outcome = compiler.end_for(error, killed)
            compilers.remove(compiler)
        index, compiler.job = compiler.job, None
        assert index is not None
        on_done(index, outcome)


def default_workers() -> int:
    """The CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
