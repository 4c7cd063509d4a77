"""Commands around the compiler: build proves the code of kernels, doctor says what this machine can do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cutegen.cli import console
from cutegen.cli.annotations import annotation
from cutegen.defaults import KERNEL_SECONDS
from cutegen.diagnostics import CutegenError
from cutegen.runtime.sources import LINE_INFO

if TYPE_CHECKING:
    from cutegen.build.kernels import KernelReport
    from cutegen.resolve import Resolution


@contextmanager
def _with_lines(wanted: bool) -> Iterator[None]:
    """Kernels that are compiled inside have lines of the source, and cache keys of their own."""
    before = os.environ.get(LINE_INFO)
    if wanted:
        os.environ[LINE_INFO] = "1"
    try:
        yield
    finally:
        if wanted:
            os.environ.pop(LINE_INFO)
            os.environ |= {LINE_INFO: before} if before is not None else {}


@click.command()
@console.specs_argument
@click.option("--all", "everything", is_flag=True,
              help="Every tiling, not one of each module: the others differ from it in numbers alone.")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="Compile processes; by default one a CPU.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Put PTX, cubin, SASS, object and compiler remarks of each kernel under DIR.")  # fmt: skip
@click.option("--lineinfo", is_flag=True, help="With --keep: lines of the source in PTX and cubin.")
@click.option("--timeout", "timeout_s", type=console.FiniteRange(0, 86_400, min_open=True), metavar="SECONDS",
              default=KERNEL_SECONDS, show_default=True, help="Give up on one kernel after this long.")  # fmt: skip
@console.format_option
def build(
    specs: list[Path],
    everything: bool,
    jobs: int | None,
    keep: Path | None,
    lineinfo: bool,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Compile the kernels of specs and compare the code with the plan. Needs no GPU.

    What was compiled before is read from the cache. Exit code 1: a kernel does not compile, or its code is not what was
    planned, as with spills, ignored register limits, serialised MMAs, missing TMA or barriers; 2: one was not compiled
    for want of disk or memory.
    """
    from cutegen.build.kernels import build_kernels
    from cutegen.cli.progress import show_bar
    from cutegen.resolve import resolve_archs

    if lineinfo and not keep:
        raise CutegenError("--lineinfo is for files that are kept", "add --keep DIR", exit_code=2)
    start = time.perf_counter()
    owners: dict[str, Path] = {}

    def resolve(path: Path) -> tuple[Resolution, ...]:
        found = resolve_archs(path)
        console.claim_name(owners, found[0].resolved.name, path)
        return found

    results = {path: console.attempt(resolve, path) for path in specs}
    errors = {path: result for path, result in results.items() if isinstance(result, CutegenError)}
    kernels = [r.resolved for found in results.values() if not isinstance(found, CutegenError) for r in found]
    with show_bar("compiling") as bar, _with_lines(lineinfo):
        reports = build_kernels(
            kernels,
            sample=not everything,
            workers=jobs,
            keep=keep,
            timeout_s=timeout_s,
            on_progress=bar.progress,
            on_current=bar.name,
        )
    for path, result in results.items():
        if isinstance(result, CutegenError):
            console.report(result, path, end="\n")
        else:
            for text in (text for resolution in result for text in resolution.notes):
                console.note(f"{path}: {text}")
    left = sum(len(k.built) for k in kernels) - len(reports)
    report_builds(reports, as_json, time.perf_counter() - start, errors, left)
    console.mark(annotation(_fault(report), owners[report.spec]) for report in reports if not report.ok)
    return console.worst(errors.values(), exit_code(reports))


def exit_code(reports: Sequence[KernelReport]) -> int:
    """0: all are as planned; 1: one is not; 2: of one nothing is known, for want of disk, memory or a compiler process
    that lives."""
    return max((2 if r.outcome.unknown else int(not r.ok) for r in reports), default=0)


def _fault(report: KernelReport) -> str:
    """What is wrong with the code of a kernel, a line each."""
    broken = [f"{c.id}: planned {c.planned}, found {c.found}: {c.meaning}" for c in report.checks if c.ok is False]
    if not broken:
        return f"{report.tiling} does not compile: {report.outcome.error}"
    return "\n".join([f"{report.tiling}: the code is not what was planned", *broken])


def report_builds(
    reports: Sequence[KernelReport], as_json: bool, seconds: float, errors: dict[Path, CutegenError], left: int = 0
) -> None:
    """The reports on stdout: JSON, or a row per kernel and the whole comparison where it is one kernel or it failed.
    left: tilings that were not built."""
    from cutegen.runtime.gpu import probe_gpu
    from cutegen.runtime.sources import distribution_versions

    gpu = probe_gpu(reports[0].arch) if reports else probe_gpu()
    ran = "compiled; `cutegen check` runs them" if gpu.ok else f"compiled, not run: {gpu.reasons[0]}"
    if as_json:
        console.print_json(
            {
                "ok": not errors and all(r.ok for r in reports),
                "ran": ran,
                "toolchain": dict(distribution_versions()),
                "seconds": round(seconds, 3),
                "findings": [found for error in errors.values() for found in console.findings(error)],
                "kernels": [r.to_json() for r in reports],
            }
        )
        return
    if not reports:
        return
    console.say(console.table(HEADER, map(_row, reports)))
    for report in reports:
        if len(reports) == 1 or not report.ok:
            console.say(f"\n{_details(report)}")
    for text in dict.fromkeys(text for r in reports for text in r.outcome.warnings):
        console.note(f"warning: {text}")
    held, cached = sum(r.ok for r in reports), sum(r.outcome.cached for r in reports)
    count = f"{len(reports)} kernel{'s' * (len(reports) != 1)}"
    console.note(f"\n{count} in {seconds:.1f} s ({cached} from the cache), {held} as planned; {ran}")
    if left:
        console.note(f"{left} more tilings of these modules are not built: --all builds them")


HEADER = ("kernel", "tiling", "contract", "registers", "stack B", "smem B", "MMA", "TMA in/out", "SASS", "compiled in")


def _row(report: KernelReport) -> tuple[object, ...]:
    facts, outcome = report.outcome.facts, report.outcome
    if facts is None:
        word = "not built" if outcome.unknown else ""
        return report.shown, report.tiling, console.verdict(False, word), *[""] * (len(HEADER) - 3)
    mma = sum(n for op, n in facts.opcodes.items() if op.startswith(tuple(m.opcode for m in report.plan.mma)))
    return (
        report.shown,
        report.tiling,
        console.verdict(report.ok),
        "/".join(map(str, facts.set_registers)) or facts.registers,
        facts.stack_bytes,
        report.plan.smem_bytes,
        mma,
        f"{facts.count('UTMALDG')}/{facts.count('UTMASTG')}",
        facts.instructions,
        f"{outcome.seconds:.1f} s{' (cached)' * outcome.cached}",
    )


def _details(report: KernelReport) -> str:
    """Plan and outcome of one kernel, check by check, and what the failed ones mean."""
    title = f"{report.shown} {report.tiling}"
    if report.outcome.facts is None:
        log = report.outcome.log.splitlines()[-12:]
        said = "was not compiled" if report.outcome.unknown else "does not compile"
        return "\n  ".join([f"{title} {said}: {report.outcome.error}", *log])
    words = {True: console.verdict(True), False: console.verdict(False), None: "-"}
    rows = [(check.id, check.planned, check.found, words[check.ok]) for check in report.checks]
    rows.append(("smem", f"{report.plan.smem_bytes} B", "asserted by the kernel when traced", words[True]))
    lines = [console.table((title, "planned", "found", ""), rows)]
    lines += [f"  {check.id}: {check.meaning}" for check in report.checks if check.ok is False]
    return "\n".join(lines)


@click.command()
@click.argument("specs", nargs=-1, metavar="[SPEC]...", type=click.Path(path_type=Path))
@click.option("--upgrade", metavar="REQUIREMENT",
              help="Build SPEC... under nvidia-cutlass-dsl==VERSION as well, and report what changes.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="With --upgrade: every tiling, not one of each module.")
@click.option("--markdown", is_flag=True, help="With --upgrade: print Markdown.")
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="With --upgrade: compile processes.")
@console.json_option
def doctor(
    specs: tuple[Path, ...],
    upgrade: str | None,
    everything: bool,
    markdown: bool,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Report which steps this machine can run, and what the others need.

    With --upgrade it builds specs under another version of the DSL, in an environment that is thrown away: per kernel
    registers, stack, spills, instructions, the build contract, and whether the SASS is identical. Exit code 1: one
    does not build there, breaks its contract, or needs more registers or local memory; 2: the version cannot be had.
    """
    from cutegen.build.doctor import examine

    if upgrade:
        from cutegen.cli.difference import say_upgrade
        from cutegen.cli.upgrade import compare_versions
        from cutegen.config import find_config

        named = [*specs] or [*find_config(Path.cwd()).existing_specs()]
        if not named:
            raise CutegenError("--upgrade: of which specs?", "name specs or a folder", exit_code=2)
        title, found = compare_versions(console.spec_files(named), "", upgrade, everything, jobs)
        return say_upgrade(title, found, markdown, as_json)
    if specs or everything or markdown or jobs:
        raise CutegenError("specs and these options are for --upgrade", "add --upgrade REQUIREMENT", exit_code=2)
    items, verdicts = examine()
    if as_json:
        console.print_json({"facts": [asdict(i) for i in items], "commands": [asdict(v) for v in verdicts]})
        return 0
    console.say(
        console.table(("", "", ""), [(i.name, i.value, i.remedy if i.ok is False else "") for i in items]).lstrip()
    )
    console.say()
    console.say(
        console.table(
            ("command", "works", "because"),
            [(v.command, console.verdict(v.ok, "yes" if v.ok else "no"), v.why) for v in verdicts],
        )
    )
    return 0
