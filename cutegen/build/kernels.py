"""Builds the kernels of resolved specs: from the cache without the compiler, else in worker processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutegen.build.contract import Check, check_contract, holds
from cutegen.build.doctor import COMPILER_REMEDY
from cutegen.build.facts import noted_facts, require_nvdisasm
from cutegen.build.pool import JobPool, default_workers, run_jobs
from cutegen.build.worker import Job, Outcome, keep_artefacts, read_outcomes
from cutegen.defaults import KERNEL_SECONDS
from cutegen.diagnostics import CutegenError
from cutegen.families.code_plan import CodePlan
from cutegen.families.registry import load_family
from cutegen.render import RenderedPackage, render_package, write_package
from cutegen.runtime.by_arch import name_for_arch
from cutegen.runtime.cache import KernelCache, default_root
from cutegen.runtime.compile import find_compiled, instance_key
from cutegen.runtime.sources import dsl_version
from cutegen.runtime.temporary import temporary_folder


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel instance. outcome: what came out, checks: how it compares with the plan (none when it failed).
    several: the spec is for more architectures than this one."""

    spec: str
    tiling: str
    arch: str
    key: str
    plan: CodePlan
    outcome: Outcome
    checks: tuple[Check, ...]
    several: bool = False

    @property
    def shown(self) -> str:
        """What tables call the spec."""
        return name_for_arch(self.spec, self.arch if self.several else "")

    @property
    def ok(self) -> bool:
        return self.outcome.facts is not None and holds(self.checks)

    def to_json(self) -> dict[str, Any]:
        facts = self.outcome.facts
        return {
            "spec": self.spec,
            "tiling": self.tiling,
            "arch": self.arch,
            "ok": self.ok,
            "cached": self.outcome.cached,
            "compile_seconds": round(self.outcome.seconds, 3),
            "error": self.outcome.error,
            "log": self.outcome.log,
            "checks": [asdict(check) for check in self.checks],
            "plan": asdict(self.plan),
            "facts": asdict(facts) if facts else None,
            "key": self.key,
        }


@dataclass(frozen=True, slots=True)
class _Task:
    resolved: Any
    tiling: Any
    key: str

    def job(self, root: Path, keep: Path | None = None, read: bool = False) -> Job:
        return Job(
            self.key,
            str(root),
            _module(self.resolved, self.tiling),
            self.tiling.numbers,
            self.resolved.arch,
            str(self.folder(keep)) if keep else None,
            read,
        )

    def folder(self, keep: Path) -> Path:
        """Where its files are kept."""
        arch = (self.resolved.arch,) if getattr(self.resolved, "archs", ()) else ()
        return keep.joinpath(self.resolved.name, *arch, self.tiling.name)


def build_kernels(
    kernels: Sequence[Any],
    *,
    sample: bool = False,
    workers: int | None = None,
    keep: Path | None = None,
    timeout_s: float = KERNEL_SECONDS,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    on_current: Callable[[Sequence[str]], None] = lambda names: None,
) -> tuple[KernelReport, ...]:
    """Every tiling of every resolved kernel, in order; sample: one of each kernel module. Kernels of one name are one
    package for several architectures, all of which have to be there. keep: folder that gets PTX, cubin, SASS and object
    of each.

    on_progress(done, total) counts those that need a process; on_current(names) tells which have one now.
    CutegenError: there is no compiler or no disassembler.
    """
    with temporary_folder() as root:
        packages = {name: render_package(*of) for name, of in _by_name(kernels).items()}
        tasks = [
            _Task(resolved, tiling, _key(packages[resolved.name].files, root, resolved, tiling))
            for resolved in kernels
            for tiling in (resolved.sample if sample else resolved.built)
        ]
        outcomes = dict(enumerate(_from_cache(task, keep) for task in tasks))
        missing = [i for i, outcome in outcomes.items() if outcome is None]
        if missing:
            _require_toolchain()
            for name in {tasks[i].resolved.name for i in missing}:
                write_package(packages[name], root / "generated")
            jobs = [tasks[i].job(root, keep) for i in missing]
            processes = min(workers or default_workers(), len(jobs))

            def report() -> None:
                left = [tasks[i] for i in missing if outcomes[i] is None]
                on_progress(len(missing) - len(left), len(missing))
                on_current([f"{t.resolved.name} {t.tiling.name}" for t in left[:processes]])  # begun in this order

            def done(position: int, outcome: Outcome) -> None:
                outcomes[missing[position]] = outcome
                report()

            report()
            run_jobs(jobs, processes, timeout_s, done)
            unread = {i: (tasks[i].key, outcome) for i in missing if (outcome := outcomes[i]) and outcome.unread}
            outcomes.update(zip(unread, read_outcomes(KernelCache(default_root()), list(unread.values()))))
    return tuple(_report(task, outcomes[i] or Outcome(error="not built")) for i, task in enumerate(tasks))


class KernelStream:
    """The kernels of one spec, compiled in the background in an order that may change meanwhile.

    Processes get their next job in `poll` and `wait`, so whoever does other things meanwhile calls `poll` often.
    """

    def __init__(self, workers: int, on_built: Callable[[KernelReport], None], timeout_s: float = KERNEL_SECONDS):
        self.on_built = on_built
        self._pool = JobPool(workers, timeout_s)
        self._tasks: dict[str, _Task] = {}  # neither begun nor in the cache, as far as was asked for
        self._begun: list[_Task] = []
        self._order: deque[str] = deque()
        self._root: Path | None = None

    def prepare(self) -> None:
        """Starts the compile processes. CutegenError: there is no compiler or no disassembler."""
        _require_toolchain()
        self._pool.prepare()

    def open(self, resolved: Any, rendered: RenderedPackage, root: Path) -> None:
        """Whose kernels these are, by name. root: the folder above `generated`, where the package is written."""
        self._root = root
        self._tasks = {t.name: _Task(resolved, t, _key(rendered.files, root, resolved, t)) for t in resolved.tilings}

    def request(self, names: Sequence[str]) -> None:
        """The order in which kernels are to be built, in place of what was asked for before and has not begun."""
        self._order = deque(dict.fromkeys(name for name in names if name in self._tasks))
        self.poll()

    @property
    def working(self) -> bool:
        """Whether anything that was asked for is still to come."""
        return bool(self._order) or self._pool.busy

    def poll(self) -> None:
        """Starts what there is room for, and reports what is done."""
        self.wait(0.0)

    def wait(self, seconds: float = float("inf")) -> None:
        """As `poll`, after a job has ended, or so many seconds."""
        if self._start_some():
            seconds = 0.0  # a kernel of the cache is news as well
        for index, outcome in self._pool.collect(seconds):
            self.on_built(_report(self._begun[index], outcome))
        self._start_some()

    def end(self) -> None:
        """Ends everything under way."""
        self._order.clear()
        self._pool.end()

    def _start_some(self) -> bool:
        """Begins what there is room for; whether any was found in the cache."""
        found = False
        while self._order and self._pool.room:
            task = self._tasks.pop(self._order.popleft())
            if outcome := _from_cache(task, None):
                found = True
                self.on_built(_report(task, outcome))
                continue
            assert self._root
            self._begun.append(task)
            self._pool.start(len(self._begun) - 1, task.job(self._root, read=True))
        return found


def _by_name(kernels: Iterable[Any]) -> dict[str, list[Any]]:
    """Those of each package: several are for several architectures."""
    found: dict[str, list[Any]] = {}
    for resolved in kernels:
        found.setdefault(resolved.name, []).append(resolved)
    return found


def _module(resolved: Any, tiling: Any) -> str:
    return f"generated.{resolved.name}.{tiling.module}"


def _key(files: Mapping[str, str], root: Path, resolved: Any, tiling: Any) -> str:
    file = f"{tiling.module}.py"
    path = root / "generated" / resolved.name / file
    return instance_key(files[file], _module(resolved, tiling), path, tiling.numbers, resolved.arch)


def _from_cache(task: _Task, keep: Path | None) -> Outcome | None:
    entry = find_compiled(KernelCache(default_root()), task.key)
    facts = noted_facts(entry) if entry else None
    if entry is None or facts is None:
        return None
    if keep:
        keep_artefacts(entry, task.folder(keep))
    return Outcome(facts, cached=True, seconds=entry.facts["seconds"])


def _require_toolchain() -> None:
    if dsl_version() is None:
        raise CutegenError("compiling needs nvidia-cutlass-dsl, which is not installed", COMPILER_REMEDY, exit_code=2)
    require_nvdisasm()


def _report(task: _Task, outcome: Outcome) -> KernelReport:
    resolved, tiling = task.resolved, task.tiling
    plan: CodePlan = load_family(resolved.family).plan_code(resolved, tiling)
    checks = check_contract(plan, outcome.facts) if outcome.facts else ()
    several = bool(getattr(resolved, "archs", ()))
    return KernelReport(resolved.name, tiling.name, resolved.arch, task.key, plan, outcome, checks, several)
