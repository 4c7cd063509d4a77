"""Compiles in processes: one crash or hang costs one kernel, and an interrupt leaves nothing running.

Processes and not threads, because naming a kernel changes the decorated function. Plain child processes and not
multiprocessing's, because those import the caller's main module again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import wait

from cutegen.build.worker import Job, Outcome

LOG_TAIL = 2000  # characters of output kept from a job that failed


class _Process:
    """One worker and the job it has, if any."""

    def __init__(self) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        code = f"import sys; sys.path[:] = {sys.path!r}; from cutegen.build.worker import main; main({theirs.fileno()})"
        self.child = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,  # Ctrl-C reaches this process only, and it ends the workers
        )
        theirs.close()
        self.job: int | None = None
        self.deadline = 0.0
        self.log_start = 0

    def start(self, index: int, job: Job, timeout_s: float) -> None:
        self.job, self.deadline = index, time.monotonic() + timeout_s
        self.log_start = os.fstat(self.log.fileno()).st_size
        with contextlib.suppress(OSError):  # a worker that is gone shows when it is asked for its outcome
            self.connection.send(job)

    def receive(self) -> Outcome:
        """The outcome of the job. EOFError: the process died."""
        try:
            outcome: Outcome = self.connection.recv()
        except OSError as error:
            raise EOFError from error
        return outcome if outcome.facts else replace(outcome, log=self.tail())

    def end_for(self, error: str) -> Outcome:
        """Ends the process; the outcome of a job that it could not finish."""
        self.child.kill()
        outcome = Outcome(error=error, log=self.tail())
        self.end()
        return outcome

    def died(self) -> str:
        code = self.child.wait()
        return f"the compiler process died ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"

    def tail(self) -> str:
        self.log.seek(self.log_start)
        return self.log.read().decode(errors="replace")[-LOG_TAIL:].strip()

    def end(self) -> None:
        self.connection.close()
        self.child.kill()
        self.child.wait()
        self.log.close()


def run_jobs(jobs: Sequence[Job], workers: int, timeout_s: float, on_done: Callable[[int, Outcome], None]) -> None:
    """Runs every job, at most `workers` at a time, `timeout_s` seconds each; on_done(index, outcome) as they end."""
    pending = deque(enumerate(jobs))
    processes: list[_Process] = []
    try:
        while pending or any(p.job is not None for p in processes):
            idle = [p for p in processes if p.job is None]
            while pending and (idle or len(processes) < workers):
                if not idle:
                    processes.append(_Process())
                (idle.pop() if idle else processes[-1]).start(*pending.popleft(), timeout_s)
            _collect(processes, timeout_s, on_done)
    finally:
        for process in processes:
            process.end()


def _collect(processes: list[_Process], timeout_s: float, on_done: Callable[[int, Outcome], None]) -> None:
    """Waits until a job ends or is overdue, and reports those."""
    busy = [p for p in processes if p.job is not None]
    first = min(p.deadline for p in busy)
    ready = wait([p.connection for p in busy], timeout=max(0.0, first - time.monotonic()))
    for process in busy:
        error = ""
        if process.connection in ready:
            try:
                outcome = process.receive()
            except EOFError:
                error = process.died()
        elif process.deadline <= time.monotonic():
            error = f"the compiler did not finish within {timeout_s:g} s"
        else:
            continue
        if error:
            outcome = process.end_for(error)
            processes.remove(process)
        index, process.job = process.job, None
        assert index is not None
        on_done(index, outcome)


def default_workers() -> int:
    """The CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
