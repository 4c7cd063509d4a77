"""Compile processes: what one job does costs that job only. The kernel module is a stand-in."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutegen.build import worker
from cutegen.build.pool import run_jobs
from cutegen.build.worker import Job, Outcome
from cutegen.runtime.cache import KernelCache
from cutegen.runtime.compile import Compiled

KERNEL = """\
import os, signal, sys, time

def compile_kernel(tiling, options):
    print(f"compiling {tiling}", file=sys.stderr)
    if tiling == "abort":
        os.abort()
    if tiling == "exit":
        os._exit(3)
    if tiling == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if tiling == "hang":
        time.sleep(600)
    if tiling == "torch":
        import torch
    raise RuntimeError("\\x1b[91mno layout\\x1b[0m\\nsecond line")
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pool_kernel.py").write_text(KERNEL)
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def outcomes(root: Path, *tilings: str, workers: int = 2, timeout_s: float = 30.0) -> list[Outcome]:
    done: dict[int, Outcome] = {}
    jobs = [Job(f"{i}", str(root), "pool_kernel", tiling, "sm_90a", None) for i, tiling in enumerate(tilings)]
    run_jobs(jobs, workers, timeout_s, done.__setitem__)
    return [done[i] for i in range(len(jobs))]


def test_errors_and_crashes_cost_one_job(root: Path) -> None:
    raised, aborted, exited, again = outcomes(root, "raise", "abort", "exit", "raise")
    assert raised.error == again.error == "RuntimeError: no layout\n  second line"
    assert aborted.error == "the compiler process died (SIGABRT)"
    assert exited.error == "the compiler process died (exit code 3)"
    assert raised.log == "compiling raise"
    assert aborted.log.startswith("compiling abort")


def test_a_process_that_was_killed_says_nothing_of_the_kernel(root: Path) -> None:
    killed, aborted = outcomes(root, "kill", "abort")
    assert killed.error.startswith("the compiler process died (SIGKILL): killed from outside, for want of memory")
    assert (killed.killed, aborted.killed) == (True, False)


@pytest.mark.parametrize(
    ("error", "starved"), [(None, True), (OSError(errno.ENOSPC, "no space"), True), (ValueError("layout"), False)]
)
def test_who_finds_no_room_says_nothing_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, starved: bool
) -> None:
    @contextlib.contextmanager
    def compiled(*args: object) -> Iterator[Compiled]:
        if error:
            raise error
        yield Compiled(None, None, cached=False, seconds=1.0)  # no place could be written to

    monkeypatch.setattr(worker, "compile_kernel", compiled)
    outcome = worker.run_job(Job("0", sys.path[0], "pool_kernel", "raise", "sm_90a", None))
    assert outcome.error
    assert outcome.starved is starved


def test_a_hang_ends_in_time(root: Path) -> None:
    start = time.monotonic()
    # Time enough for a busy machine to start the process that does the second job.
    hung, raised = outcomes(root, "hang", "raise", workers=1, timeout_s=6.0)
    assert hung.error == "the compiler did not finish within 6 s"
    assert raised.error.startswith("RuntimeError")
    assert time.monotonic() - start < 30


def test_workers_do_without_torch(root: Path) -> None:
    assert "import of torch halted" in outcomes(root, "torch")[0].error


def test_an_interrupt_leaves_no_process(root: Path) -> None:
    def interrupt(index: int, outcome: Outcome) -> None:
        raise KeyboardInterrupt

    jobs = [Job(tiling, str(root), "pool_kernel", tiling, "sm_90a", None) for tiling in ("hang", "raise")]
    before = children()
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, 2, 30.0, interrupt)
    assert children() == before


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_who_finds_a_kernel_gone_says_so(tmp_path: Path) -> None:
    (outcome,) = worker.read_outcomes(KernelCache(tmp_path), [("0", Outcome(seconds=1.0, unread=True))])
    assert outcome.facts is None
    assert outcome.error.startswith("the kernel was taken out of the cache before it was read")
