"""Builds the kernels of resolved specs: from the cache without the compiler, else in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutegen.build.contract import Check, check_contract, holds
from cutegen.build.facts import noted_facts, require_nvdisasm
from cutegen.build.pool import default_workers, run_jobs
from cutegen.build.worker import Job, Outcome, keep_artefacts, read_outcomes
from cutegen.defaults import KERNEL_SECONDS
from cutegen.diagnostics import CutegenError
from cutegen.families.code_plan import CodePlan
from cutegen.families.registry import load_family
from cutegen.render import render_package, write_package
from cutegen.runtime.cache import KernelCache, default_root
from cutegen.runtime.compile import find_compiled, instance_key
from cutegen.runtime.sources import dsl_version
from cutegen.runtime.temporary import temporary_folder

COMPILER_REMEDY = "pip install 'cutegen[dsl]'"  # all that compiling needs; `doctor` names the parts that are missing


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel instance. outcome: what came out, checks: how it compares with the plan (none when it failed)."""

    spec: str
    tiling: str
    arch: str
    key: str
    plan: CodePlan
    outcome: Outcome
    checks: tuple[Check, ...]

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

    def job(self, root: Path, keep: Path | None) -> Job:
        return Job(
            self.key,
            str(root),
            _module(self.resolved, self.tiling),
            self.tiling.numbers,
            self.resolved.arch,
            str(keep / self.resolved.name / self.tiling.name) if keep else None,
        )


def build_kernels(
    kernels: Sequence[Any],
    *,
    workers: int | None = None,
    keep: Path | None = None,
    timeout_s: float = KERNEL_SECONDS,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[KernelReport, ...]:
    """Every tiling of every resolved kernel, in order. keep: folder that gets PTX, cubin, SASS and object of each.

    on_progress(done, total) counts those that need a process. CutegenError: there is no compiler or no disassembler.
    """
    with temporary_folder() as root:
        packages = {resolved.name: render_package(resolved) for resolved in kernels}
        tasks = [
            _Task(resolved, tiling, _key(packages[resolved.name].files, root, resolved, tiling))
            for resolved in kernels
            for tiling in resolved.built
        ]
        outcomes = dict(enumerate(_from_cache(task, keep) for task in tasks))
        missing = [i for i, outcome in outcomes.items() if outcome is None]
        if missing:
            _require_toolchain()
            for name in {tasks[i].resolved.name for i in missing}:
                write_package(packages[name], root / "generated")
            on_progress(0, len(missing))

            def done(position: int, outcome: Outcome) -> None:
                outcomes[missing[position]] = outcome
                on_progress(sum(outcomes[i] is not None for i in missing), len(missing))

            jobs = [tasks[i].job(root, keep) for i in missing]
            run_jobs(jobs, min(workers or default_workers(), len(jobs)), timeout_s, done)
            unread = {i: (tasks[i].key, outcome) for i in missing if (outcome := outcomes[i]) and outcome.unread}
            outcomes.update(zip(unread, read_outcomes(KernelCache(default_root()), list(unread.values()))))
    return tuple(_report(task, outcomes[i] or Outcome(error="not built")) for i, task in enumerate(tasks))


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
        keep_artefacts(entry, keep / task.resolved.name / task.tiling.name)
    return Outcome(facts, cached=True, seconds=entry.facts["seconds"])


def _require_toolchain() -> None:
    if dsl_version() is None:
        raise CutegenError("compiling needs nvidia-cutlass-dsl, which is not installed", COMPILER_REMEDY, exit_code=2)
    require_nvdisasm()


def _report(task: _Task, outcome: Outcome) -> KernelReport:
    resolved, tiling = task.resolved, task.tiling
    plan: CodePlan = load_family(resolved.family).plan_code(resolved, tiling)
    checks = check_contract(plan, outcome.facts) if outcome.facts else ()
    return KernelReport(resolved.name, tiling.name, resolved.arch, task.key, plan, outcome, checks)
