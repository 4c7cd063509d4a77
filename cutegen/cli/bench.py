"""The command bench, and what `run` has of it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from cutegen.arch import default_device
from cutegen.arch.devices import UNRATED
from cutegen.cli import console
from cutegen.cli.options import refuse_idle
from cutegen.cli.report import (
    COMPARING,
    RESULT_FILE,
    Compared,
    all_option,
    compare_option,
    compare_results,
    html_option,
    margin_option,
    say_result,
    svg_option,
    write_pictures,
)
from cutegen.cli.targets import shapes_option, suite_option, targets_argument
from cutegen.defaults import AGAIN_ROUNDS, LEAST_ROUNDS, MOST_ROUNDS, PATIENCE_SECONDS, ROUNDS, SLICE_MS, Behind
from cutegen.diagnostics import CutegenError
from cutegen.files import write_output
from cutegen.runtime.temporary import temporary_folder

if TYPE_CHECKING:
    from cutegen.report.result import Result
    from cutegen.run.bench import BenchReport, Settings
    from cutegen.run.subject import Subject
    from cutegen.run.targets import Target


@click.command()
@targets_argument
@shapes_option
@click.option("--rounds", type=click.IntRange(LEAST_ROUNDS, MOST_ROUNDS), default=ROUNDS, show_default=True,
              metavar="N", help="Rounds over all candidates.")  # fmt: skip
@click.option("--slice", "slice_ms", type=console.FiniteRange(1, 10_000), default=SLICE_MS, show_default=True,
              metavar="MS", help="Time each candidate gets in a round.")  # fmt: skip
@click.option("--baseline", "baselines", multiple=True, metavar="NAME",
              help="Compare with this baseline (torch, nvmath, quack ...; repeatable); the first one always runs; "
              "`none`: targets only.")  # fmt: skip
@click.option("--against", default="", metavar="NAME",
              help="What speeds are relative to; by default the first baseline, or target.")  # fmt: skip
@click.option("--patience", type=console.FiniteRange(1, 86_400), default=PATIENCE_SECONDS, show_default=True,
              metavar="SECONDS", help="Leave out baselines that take longer to compile, tune and launch.")  # fmt: skip
@suite_option("Measure")
@click.option("--behind", type=click.Choice(get_args(Behind)), default="nothing", show_default=True,
              help="What precedes each launch: nothing (launches back to back, on tensors that left L2); itself, on "
              "the same tensors; or, timed with it, a plain kernel, which copies the first input and lets nothing "
              "start early.")  # fmt: skip
@click.option("--floor", type=console.FiniteRange(0, 100), metavar="SPEED",
              help="Measure a problem again where the lower end of a kernel's speed is under this; the second time "
              "counts, and both are kept.")  # fmt: skip
@click.option("--again", type=click.IntRange(LEAST_ROUNDS, MOST_ROUNDS), default=AGAIN_ROUNDS, show_default=True,
              metavar="N", help="Rounds of the second time.")  # fmt: skip
@click.option("--sms", type=click.IntRange(1), metavar="N", help="Run the kernels on at most N SMs; baselines use all.")
@click.option("--lock-clocks", "lock_mhz", type=click.IntRange(1, 10_000), metavar="MHZ",
              help="Lock the SM clock meanwhile, where the driver lets this user; it is given back.")  # fmt: skip
@click.option("-o", "--output", type=RESULT_FILE, metavar="FILE", help="Write the result, all samples in it, as JSON.")
@html_option
@svg_option
@compare_option
@margin_option
@all_option
@console.json_option
def bench(
    targets: list[Path],
    shapes: tuple[str, ...],
    rounds: int,
    slice_ms: float,
    baselines: tuple[str, ...],
    against: str,
    patience: float,
    suite: str,
    behind: Behind,
    floor: float | None,
    again: int,
    sms: int | None,
    lock_mhz: int | None,
    output: Path | None,
    html: Path | None,
    svg: Path | None,
    old: Path | None,
    margin: float,
    show_equal: bool,
    as_json: bool,
) -> int:
    """Benchmark kernels against other libraries, interleaved in one process.

    Several targets with the same dims are measured against each other. Exit code 1: a kernel's result was wrong after
    timing, or it is slower than in OLD.json, or not all of that was measured; 2: not run, the reason is printed.
    """
    from cutegen.report.result import load_result, parse_result
    from cutegen.report.stored import pack
    from cutegen.run.bench import Settings
    from cutegen.run.targets import open_runnable

    if shapes and suite:
        raise CutegenError("--shape and --suite exclude each other", "give one of them", exit_code=2)
    if floor is None:
        refuse_idle("without --floor", "again")
    if not old:
        refuse_idle("without --compare", *COMPARING)
    console.keep_apart({"-o": output, "--html": html, "--svg": svg}, [*targets, old])
    before = load_result(old) if old else None
    settings = Settings(
        rounds,
        slice_ms / 1e3,
        baselines,
        against,
        suite,
        sms,
        patience,
        behind=behind,
        floor=floor,
        again=again,
        lock_mhz=lock_mhz,
    )
    if suite:
        from cutegen.run.suite import load_suite, suite_folder

        for path in targets:
            load_suite(suite, suite_folder(path))
    with temporary_folder() as scratch:
        opened = [t for i, path in enumerate(targets) for t in open_runnable(path, scratch / str(i))]
        settings = name_baselines(name_suite(settings, opened, shapes), opened)
        command = repeat(targets, shapes, settings)
        report = bench_targets(opened, shapes, settings, lambda so_far: _keep(so_far, command, output))
    data = report.to_json(command)
    result = parse_result(data)
    code = int(not report.ok)
    comparison = compare_results(before, result, margin, show_equal) if before else None
    try:
        if output:
            write_output(output, pack(data))
        write_pictures(result, html, svg)
    finally:  # a result is on the screen even when it cannot be written
        _say_measured(data, result, comparison, as_json)
    return max(code, comparison[0]) if comparison else code


def _say_measured(data: dict[str, Any], result: Result, comparison: Compared | None, as_json: bool) -> None:
    if as_json:
        console.print_json(data | ({"comparison": comparison[1]} if comparison else {}))
    else:
        say_result(result)
        for text in comparison[2] if comparison else ():
            console.say(text)


def _keep(report: BenchReport, command: str, output: Path | None) -> None:
    """What was measured so far, so that a run that is stopped leaves it."""
    if output:
        from cutegen.report.stored import pack

        with suppress(OSError):  # told at the end
            write_output(output, pack(report.to_json(command)))


def bench_targets(
    targets: Sequence[Target],
    shapes: Sequence[str],
    settings: Settings,
    on_problem: Callable[[BenchReport], None] = lambda report: None,
) -> BenchReport:
    """CutegenError (exit 2): a name is unknown, a shape is no problem of a target, or this machine cannot measure them;
    the machine comes last. What files and baselines print goes to stderr."""
    from cutegen.run.bench import measure
    from cutegen.run.candidates import check_names
    from cutegen.run.clocks import locked_clocks
    from cutegen.run.device import CudaDevice
    from cutegen.run.environment import describe_environment
    from cutegen.run.shapes import parse_shape
    from cutegen.run.subject import load_subject
    from cutegen.runtime.gpu import probe_gpu

    # Generated packages import without a GPU; a Python file may not.
    known = {t.path: load_subject(t.path) for t in targets if t.arch}
    if settings.sms and (files := [t.name for t in targets if not t.arch]):
        remedy = "measure specs and generated packages with it"
        raise CutegenError(f"--sms: {files[0]} is a Python file, which takes no SM budget", remedy, exit_code=2)
    _limit_sms(known.values(), settings.sms)
    for subject in known.values():
        for text in shapes:
            parse_shape(text, subject)
    targets = _fit_suite(targets, known, settings.suite)
    if len(known) == len({t.path for t in targets}):
        check_names(list(known.values()), settings.baselines, settings.against)
    refuse_unrated({t.arch for t in targets})
    status = probe_gpu(next((t.arch for t in targets if t.arch), "sm_90a"))
    if not status.ok:
        raise CutegenError(f"not run: {status.reason}", exit_code=2)
    with redirect_stdout(sys.stderr), _status_line() as on_progress:
        known |= {t.path: load_subject(t.path) for t in targets if not t.arch}
        check_names(list(known.values()), settings.baselines, settings.against)
        subjects = [(known[t.path], t.measured_rows(known[t.path], settings.suite)) for t in targets]
        device, environment = CudaDevice(), describe_environment()
        with locked_clocks(environment["gpu"]["uuid"], settings.lock_mhz):
            return measure(subjects, shapes, device, environment, settings, on_progress, on_problem)


def refuse_unrated(archs: Iterable[str]) -> None:
    """CutegenError (exit 2): there is a kernel of an architecture of which no device was measured: its clocks and rates
    are those that times are compared with."""
    for arch in sorted(filter(None, archs)):
        device = default_device(arch)
        if device and not device.rates:
            raise CutegenError(f"not run: kernels of {arch} are not measured yet", UNRATED, exit_code=2)


def _limit_sms(subjects: Iterable[Subject], sms: int | None) -> None:
    """CutegenError (exit 2): a kernel cannot run on so few."""
    for plan in (s.plan for s in subjects if s.plan and sms):
        least = min(map(plan.least_sms, plan.tilings))  # what they cannot run is not chosen
        if sms is not None and sms < least:
            remedy = f"use at least {least}"
            raise CutegenError(
                f"--sms {sms}: the smallest cluster of {plan.name} has {least} CTAs", remedy, exit_code=2
            )
        plan.sms = sms


def _fit_suite(targets: Sequence[Target], known: Mapping[Path, Subject], suite: str) -> list[Target]:
    """Less the targets that the suite is not for, which are named; SpecError: it is for none of them."""
    fitting, error = [], None
    for t in targets:
        try:
            if t.path in known:
                t.measured_rows(known[t.path], suite)
            fitting.append(t)
        except CutegenError as refusal:
            error = error or refusal
            if len(targets) > 1:
                console.note(f"{t.name} is left out: {refusal.message.splitlines()[0]}")
    if error and not fitting:
        raise error
    return fitting


def name_suite(settings: Settings, targets: Sequence[Target], shapes: Sequence[str]) -> Settings:
    """With the suite that a spec names, when neither another nor shapes were asked for."""
    named = next((t.suite.name for t in targets if t.suite), "")
    return settings if settings.suite or shapes else replace(settings, suite=named)


def name_baselines(settings: Settings, targets: Sequence[Target]) -> Settings:
    """With the baselines that the specs name, when none were asked for; with all, where one of the targets names none.
    Plain Python files have none."""
    lists = [t.baselines for t in targets if t.arch]
    named = tuple(dict.fromkeys(name for names in lists for name in names)) if all(lists) else ()
    return settings if settings.baselines else replace(settings, baselines=named)


def repeat(targets: Sequence[Path], shapes: Sequence[str], settings: Any) -> str:
    """The command that measures the same again."""
    words = ["cutegen", "bench", *map(str, targets)]
    for option, values in (("--shape", shapes), ("--baseline", settings.baselines)):
        words += [word for value in values for word in (option, value)]
    words += ["--against", settings.against] if settings.against else []
    words += ["--patience", f"{settings.patience:g}"] if settings.patience != PATIENCE_SECONDS else []
    words += ["--suite", settings.suite] if settings.suite else []
    words += ["--behind", settings.behind] if settings.behind != "nothing" else []
    if settings.floor is not None:
        words += ["--floor", f"{settings.floor:g}"]
        words += ["--again", str(settings.again)] if settings.again != AGAIN_ROUNDS else []
    words += ["--sms", str(settings.sms)] if settings.sms else []
    words += ["--lock-clocks", str(settings.lock_mhz)] if settings.lock_mhz else []
    return shlex.join([*words, "--rounds", str(settings.rounds), "--slice", f"{settings.slice_seconds * 1e3:g}"])


@contextmanager
def _status_line() -> Iterator[Callable[[str], None]]:
    """One changing line on a terminal's stderr, nothing elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update
