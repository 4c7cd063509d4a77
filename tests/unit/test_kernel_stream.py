"""Kernels that are compiled in the background, in an order that changes; processes and the cache are stand-ins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemm_specs import PLAIN, resolve_text

from cutegen.build import kernels
from cutegen.build.kernels import KernelReport, KernelStream
from cutegen.build.pool import JobPool
from cutegen.build.worker import Job, Outcome
from cutegen.diagnostics import CutegenError
from cutegen.resolve import tuning_space
from cutegen.tune.pool import compose, gather


class Pool:
    """In place of JobPool: jobs end when the test says so."""

    def __init__(self, workers: int, timeout_s: float) -> None:
        self.workers, self.running, self.ended = workers, list[tuple[int, Job]](), list[int]()
        self.waited: list[float] = []
        self.closed = False

    @property
    def busy(self) -> bool:
        return bool(self.running)

    @property
    def room(self) -> bool:
        return len(self.running) < self.workers

    def start(self, index: int, job: Job) -> None:
        assert self.room
        self.running.append((index, job))

    def collect(self, seconds: float) -> list[tuple[int, Outcome]]:
        self.waited.append(seconds)
        done = [(i, Outcome(error="no layout")) for i, _ in self.running if i in self.ended]
        self.running = [(i, job) for i, job in self.running if i not in self.ended]
        return done

    def end(self) -> None:
        self.closed = True


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        resolution = resolve_text(PLAIN)
        space, default = tuning_space(resolution), resolution.resolved.default.candidate
        pool = gather(space, {"m": 64, "n": 4096, "k": 4096}, (), default, 4)
        self.package = compose(resolution, pool.tried, [default])
        self.names = [t.name for t in self.package.resolved.tilings]
        self.cached: set[str] = set()
        monkeypatch.setattr(kernels, "JobPool", Pool)
        monkeypatch.setattr(
            kernels,
            "_from_cache",
            lambda task, keep: Outcome(error="cached", cached=True) if task.tiling.name in self.cached else None,
        )
        self.reports: list[KernelReport] = []
        self.stream = KernelStream(1, self.reports.append)
        self.stream.open(self.package.resolved, self.package.rendered, tmp_path)

    @property
    def pool(self) -> Any:
        return self.stream._pool

    @property
    def begun(self) -> list[str]:
        return [task.tiling.name for task in self.stream._begun]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(monkeypatch, tmp_path)


def test_what_has_not_begun_can_be_ordered_anew(bench: Bench) -> None:
    a, b, c, d, _ = bench.names
    bench.stream.request([a, b, c])
    assert bench.begun == [a]
    bench.stream.request([d, c, a, d, "none of them"])
    bench.pool.ended = [0, 1]
    bench.stream.poll()
    bench.stream.poll()
    assert bench.begun == [a, d, c]  # b is not asked for any more, a has begun
    assert [(r.tiling, r.outcome.error) for r in bench.reports] == [(a, "no layout"), (d, "no layout")]
    assert bench.stream.working
    bench.pool.ended.append(2)
    bench.stream.wait(5.0)
    assert not bench.stream.working


def test_who_waits_waits_no_longer_than_asked_and_not_at_all_for_the_cache(bench: Bench) -> None:
    a, b, *_ = bench.names
    bench.stream.request([a])
    bench.stream.wait(5.0)
    assert bench.pool.waited[-1] == 5.0
    bench.cached = {b}
    bench.pool.ended = [0]
    bench.stream.request([b])
    assert bench.reports[-1].outcome.cached
    assert bench.begun == [a]


def test_jobs_are_those_of_build_and_read_their_own_facts(bench: Bench, tmp_path: Path) -> None:
    bench.stream.request(bench.names[:1])
    ((_, job),) = bench.pool.running
    assert (job.root, job.read, job.keep) == (str(tmp_path), True, None)
    assert job.module == f"generated.{bench.package.resolved.name}.{bench.package.resolved.tilings[0].module}"


def test_the_end_ends_processes(bench: Bench) -> None:
    bench.stream.request(bench.names)
    bench.stream.end()
    assert bench.pool.closed
    assert not bench.stream._order


def test_without_a_compiler_nothing_starts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "dsl_version", lambda: None)
    with pytest.raises(CutegenError, match="needs nvidia-cutlass-dsl"):
        bench.stream.prepare()


def test_processes_that_were_prepared_take_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "broken_kernel.py").write_text("def compile_kernel(tiling, options): raise RuntimeError(tiling)\n")
    pool = JobPool(1, 60.0)
    try:
        pool.prepare()
        assert pool.room
        assert not pool.busy
        assert pool.collect(0.0) == []
        pool.start(7, Job("0", str(tmp_path), "broken_kernel", "no layout", "sm_90a", None))
        assert pool.busy
        assert not pool.room
        ((index, outcome),) = pool.collect()
        assert (index, outcome.error) == (7, "RuntimeError: no layout")
        assert pool.room
    finally:
        pool.end()
    assert not pool.busy
