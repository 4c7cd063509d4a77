"""Commands that run kernels: check, and run, which goes the whole way as far as this machine can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cutegen.cli import console
from cutegen.cli.execute import OnCpu, check_target, cpu_options, execute_target, given_on_cpu
from cutegen.cli.targets import shapes_option, suite_option, targets_argument
from cutegen.defaults import CASE_SECONDS
from cutegen.diagnostics import CutegenError
from cutegen.runtime.temporary import temporary_folder

if TYPE_CHECKING:
    from cutegen.machine.check import CpuReport
    from cutegen.run.check import CheckReport
    from cutegen.run.sanitizer import SanitizerReport
    from cutegen.run.targets import Target
    from cutegen.runtime.accuracy import Tolerance

    Report = CheckReport | CpuReport | SanitizerReport | CutegenError


@click.command()
@targets_argument
@shapes_option
@suite_option("Instead of all else, check")
@click.option("--timeout", type=console.FiniteRange(0, 86_400, min_open=True), default=CASE_SECONDS, show_default=True,
              metavar="SECONDS", help="A case that takes longer has hung.")  # fmt: skip
@click.option(
    "--rtol",
    type=console.FiniteRange(0, 1_000_000),
    metavar="R",
    help="Of a Python file: allow errors up to R |reference| + A, instead of what follows from dtypes.",
)
@click.option(
    "--atol",
    type=console.FiniteRange(0, 1e30),
    metavar="A",
    help="See --rtol; each is 0 where only the other is given.",
)
@click.option(
    "--sanitize",
    metavar="TOOLS",
    help="Run small cases under tools of compute-sanitizer: memcheck, racecheck, synccheck, initcheck, or all.",
)
@click.option(
    "--shrink",
    "to_shrink",
    is_flag=True,
    help="Of a failure: find the least extents that fail, the k block that is wrong first, and the knobs it needs.",
)
@cpu_options
@console.json_option
def check(
    targets: list[Path],
    shapes: tuple[str, ...],
    suite: str,
    timeout: float,
    rtol: float | None,
    atol: float | None,
    sanitize: str | None,
    to_shrink: bool,
    as_json: bool,
    **on_cpu: Any,
) -> int:
    """Prove kernels on problems made to break them: edge shapes, guard bands, odd strides, streams, graphs, repeats.

    Works on specs, on generated packages, and on any Python file with kernel_fn, reference_fn and get_inputs. With
    --on cpu no GPU is needed: the compiled code is executed on the CPU, in several orders of events. With --sanitize
    small cases run under NVIDIA's tools instead. Exit code 1: a case failed, or a tool found something; 2: not run, the
    reason is printed.
    """
    if shapes and suite:
        raise CutegenError("--shape and --suite exclude each other", "give one of them", exit_code=2)
    allowed = _given_tolerance(targets, rtol, atol)
    how = given_on_cpu(targets, **on_cpu)
    tools = _given_tools(targets, sanitize, bool(shapes or suite or how or to_shrink))
    with temporary_folder() as scratch:
        reports: list[Report] = [
            _sanitize(target, tools)
            if tools
            else _check(target, scratch / str(i), shapes, suite, timeout, allowed, how, to_shrink)
            for i, path in enumerate(targets)
            for target in _open(path, scratch / str(i), on_cpu=how is not None)
        ]
    done = [r for r in reports if not isinstance(r, CutegenError)]
    if as_json:
        console.print_json({
            "ok": len(done) == len(reports) and all(r.ok for r in done),
            "findings": [f for r in reports if isinstance(r, CutegenError) for f in console.findings(r)],
            "checks": [r.to_json() for r in done],
        })  # fmt: skip
    else:
        for report in reports:
            _say_check(report)
        if not (to_shrink or tools) and any(not r.ok and not r.not_run for r in done):
            console.note("--shrink finds the least extents that fail, and which knobs the fault needs")
    return max(r.exit_code for r in reports)


def _given_tools(targets: Sequence[Path], sanitize: str | None, others: bool) -> tuple[str, ...]:
    """The tools of compute-sanitizer, none where it is not asked for. CutegenError (exit 2): it does not go with the
    other options, or a target is a Python file, whose tilings nobody knows."""
    from cutegen.run.sanitizer import read_tools

    if sanitize is None:
        return ()
    if others:
        said = "--sanitize runs cases of its own on a GPU: leave out --shape, --suite, --shrink and --on cpu"
        raise CutegenError(said, "call check twice", exit_code=2)
    if files := [path for path in targets if path.suffix == ".py"]:
        said = f"{files[0]}: --sanitize is for specs and generated packages"
        raise CutegenError(said, "run compute-sanitizer on a script of your own", exit_code=2)
    return read_tools(sanitize)


def _open(given: Path, scratch: Path, *, on_cpu: bool) -> Sequence[Target | CutegenError]:
    """What to check of it: every architecture on the CPU, else those that this machine can run."""
    from cutegen.run.targets import open_runnable, open_targets

    try:
        return (open_targets if on_cpu else open_runnable)(given, scratch)
    except CutegenError as error:
        return [error]


def _sanitize(target: Target | CutegenError, tools: Sequence[str]) -> SanitizerReport | CutegenError:
    from cutegen.cli.progress import show_bar
    from cutegen.run import sanitizer

    if isinstance(target, CutegenError):
        return target
    try:
        obstacle = target.obstacle()
        if not obstacle and not sanitizer.find_sanitizer():
            obstacle = "no compute-sanitizer on the PATH: it is part of the CUDA toolkit"
        if obstacle:
            return sanitizer.SanitizerReport(target.name, target.given, not_run=obstacle)
        done = []
        with show_bar(f"checking {target.name}") as bar:
            for index, tool in enumerate(tools):
                bar.progress(index, len(tools))
                bar.name([tool])
                done.append(sanitizer.sanitize(tool, target.path, target.name))
        return sanitizer.SanitizerReport(target.name, target.given, tuple(done))
    except CutegenError as error:
        return error


def _given_tolerance(targets: Sequence[Path], rtol: float | None, atol: float | None) -> Tolerance | None:
    """CutegenError (exit 2): a target is not a Python file, so its tolerance follows from its spec."""
    from cutegen.runtime.accuracy import Tolerance

    if rtol is None and atol is None:
        return None
    if derived := [path for path in targets if path.suffix != ".py"]:
        said = f"{derived[0]}: --rtol and --atol are for Python files"
        remedy = "leave them out: the tolerance of a generated kernel follows from its dtypes, k and epilogue"
        raise CutegenError(said, remedy, exit_code=2)
    return Tolerance(rtol or 0.0, 0.0, atol or 0.0)


def _check(
    target: Target | CutegenError,
    scratch: Path,
    shapes: Sequence[str],
    suite: str,
    timeout: float,
    allowed: Tolerance | None,
    on_cpu: OnCpu | None,
    to_shrink: bool,
) -> CheckReport | CpuReport | CutegenError:
    from cutegen.cli.failure import shrink_report
    from cutegen.cli.role_waits import name_hangs
    from cutegen.run.check import CheckReport

    if isinstance(target, CutegenError):
        return target
    try:
        if not on_cpu and (obstacle := target.obstacle()):
            return CheckReport(target.name, target.given, not_run=obstacle)
        report: CheckReport | CpuReport
        if on_cpu:
            report = execute_target(target, on_cpu, shapes, timeout, allowed, suite=suite)
        else:
            report = name_hangs(check_target(target, shapes, timeout, allowed, suite), target, scratch)
    except CutegenError as error:
        return error
    try:
        return shrink_report(report, target, scratch, timeout, allowed) if to_shrink else report
    except CutegenError as error:  # what failed is known, and stays
        click.echo(f"{target.name}: not shrunk: {error.message}", err=True)
        return report


def _say_check(report: Report) -> None:
    if isinstance(report, CutegenError):
        console.note(report.report())
        return
    word = "" if report.not_run else f"{console.verdict(report.ok)}: "
    console.say(f"{report.name}: {word}{report.summary()}")
    if report.results:
        console.say(console.table(report.header(), report.rows()))
    for text in (*report.tolerances(), *report.findings()):
        console.say(text)


@dataclass
class _Steps:
    """The steps of one spec, each with its result in words. exit_code: the worst so far. notes: of decisions."""

    spec: Path
    as_json: bool
    exit_code: int = 0
    steps: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, step: str, text: str, *, code: int | None = 0, details: Any = None) -> None:
        """code None: the step could not be done here, which is no failure."""
        self.exit_code = max(self.exit_code, code or 0)
        self.steps[step] = {"ok": None if code is None else not code, "result": text, "details": details}
        if not self.as_json:
            word = console.verdict(not code, "ok" if code == 0 else "-" if code is None else "failed")
            console.say(f"  {step:<9} {word}  {text}")

    def note(self, notes: Sequence[str]) -> None:
        self.notes += notes
        for text in () if self.as_json else notes:
            console.note(f"{self.spec}: {text}")

    def fail(self, step: str, error: CutegenError) -> None:
        self.add(step, error.message.splitlines()[0], code=error.exit_code, details=console.findings(error))
        if not self.as_json:
            console.note(error.report())


@click.command()
@console.specs_argument
@console.output_option
@console.json_option
def run(specs: list[Path], output: Path, as_json: bool) -> int:
    """Validate, render and build each spec; check and bench it if a matching GPU is present.

    Without one the kernel is executed on the CPU, in several orders of events, with races looked for; where that needs
    what is not installed, the result is "compiled, not run", with the reason, and exit code 0.
    """
    done = []
    owners: dict[str, Path] = {}
    for spec in specs:
        steps = _Steps(spec, as_json)
        if not as_json:
            console.say(str(spec))
        _run_steps(steps, output, owners)
        done.append(steps)
    if as_json:
        console.print_json(
            [{"spec": str(s.spec), "ok": not s.exit_code, "steps": s.steps, "notes": s.notes} for s in done]
        )
    return max(s.exit_code for s in done)


def _run_steps(steps: _Steps, output: Path, owners: dict[str, Path]) -> None:
    """Step by step, until one fails. output: the folder of packages. owners: the specs so far, by name."""
    from cutegen.render import render_package, write_package
    from cutegen.resolve import resolve_archs, save_lock
    from cutegen.run.targets import open_runnable
    from cutegen.runtime.gpu import probe_gpu

    step = "validate"
    try:
        found = resolve_archs(steps.spec)
        kernels = [resolution.resolved for resolution in found]
        name = kernels[0].name
        console.claim_name(owners, name, steps.spec)
        for resolution in found:
            steps.note(resolution.notes)
        origins = [d.origin for resolved in kernels for d in resolved.decisions]
        archs = " and ".join(resolved.arch for resolved in kernels)
        held, auto = origins.count("lock"), origins.count("auto")
        steps.add(step, f"{name} for {archs}; {held} decisions from the lock, {auto} made now")
        step = "render"
        for resolution in found:
            save_lock(resolution, steps.spec)
        written = write_package(render_package(*kernels), output)
        steps.add(step, f"{output / name}: {console.written_files(written)}")
        step = "build"
        if not _build(steps, kernels):
            return
        status = [probe_gpu(resolved.arch) for resolved in kernels]
        if not any(s.ok for s in status):
            _execute(steps, "; ".join(s.reason for s in status))
            return
        step = "check"
        with temporary_folder() as scratch:
            target = open_runnable(steps.spec, scratch)[0]
            report = check_target(target)
            steps.add(step, report.summary(), code=report.exit_code, details=report.to_json())
            if not report.ok:
                if not steps.as_json:
                    _say_check(report)
                return
            step = "bench"
            _bench(steps, target)
    except CutegenError as error:
        steps.fail(step, error)


def _execute(steps: _Steps, reason: str) -> None:
    """What can be proved without a GPU. reason: why there is none."""
    from cutegen.build.cpu import lacking_for_cpu
    from cutegen.run.targets import open_targets

    if lacking := lacking_for_cpu():
        told = f"compiled, not run: {reason}; to execute it on the CPU: {'; '.join(lacking)}"
        steps.add("check", told, code=None)
        return
    with temporary_folder() as scratch:
        targets = open_targets(steps.spec, scratch)
        reports = [execute_target(target, OnCpu(), quiet=steps.as_json) for target in targets]
    for target, report in zip(targets, reports):
        step = f"check {target.arch}" if len(targets) > 1 else "check"
        if report.not_run:
            steps.add(step, f"compiled, not run: {reason}; on the CPU: {report.not_run}", code=None)
            continue
        said = f"compiled, {report.summary()}; not run on a GPU: {reason}"
        steps.add(step, said, code=report.exit_code, details=report.to_json())
        if not report.ok and not steps.as_json:
            _say_check(report)


def _build(steps: _Steps, kernels: Sequence[Any]) -> bool:
    from cutegen.build.kernels import build_kernels
    from cutegen.cli.build import exit_code
    from cutegen.cli.progress import show_bar

    with show_bar("compiling") as bar:
        reports = build_kernels(kernels, sample=True, on_progress=bar.progress, on_current=bar.name)
    ok = all(r.ok for r in reports)
    checks = [c for r in reports for c in r.checks]
    kept = sum(c.ok is not False for c in checks)
    seconds, cached = sum(r.outcome.seconds for r in reports), sum(r.outcome.cached for r in reports)
    errors = "".join(f"; {r.tiling}: {r.outcome.error}" for r in reports if r.outcome.error)
    broken = "".join(f"; {c.id}: planned {c.planned}, found {c.found}" for c in checks if c.ok is False)
    text = f"{', '.join(r.tiling for r in reports)}: {kept} of {len(checks)} contract checks hold, {seconds:.1f} s"
    steps.add("build", text + " (cached)" * (cached == len(reports)) + errors + broken, code=exit_code(reports),
              details=[r.to_json() for r in reports])  # fmt: skip
    if not steps.as_json:
        for check in (c for c in checks if c.ok is False):
            console.note(f"{check.id}: {check.meaning}")
    return ok


def _bench(steps: _Steps, target: Target) -> None:
    from cutegen.cli.bench import bench_targets, name_suite, repeat
    from cutegen.cli.report import say_result
    from cutegen.report.result import parse_result
    from cutegen.run.bench import Settings

    settings = name_suite(Settings(baselines=target.baselines or ("torch",)), [target], ())
    report = bench_targets([target], (), settings)
    command = repeat([steps.spec], (), settings)
    result = parse_result(report.to_json(command))
    where = f"problems of {settings.suite}"
    speeds = [
        f"geomean {s.geomean.low:.3f} to {s.geomean.high:.3f} of {library} over {s.problems} {where}"
        for by_library in result.summaries.values()
        for library, s in by_library.items()
        if settings.suite
    ]
    for problem in () if settings.suite else result.problems:
        kernel = problem.candidates[0]
        if kernel.speed:
            shape = "x".join(map(str, problem.shape.values()))
            speeds.append(f"{shape} {kernel.speed.low:.3f} to {kernel.speed.high:.3f} of {problem.against}")
    steps.add("bench", "; ".join(speeds), code=int(not report.ok), details=report.to_json(command))
    if not steps.as_json:
        say_result(result)
