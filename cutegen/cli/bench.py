"""Commands about speed: bench, and report, which shows and compares results that were kept."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from cutegen.cli import console
from cutegen.cli.targets import shapes_option, suite_option, targets_argument
from cutegen.defaults import AGAIN_ROUNDS, LEAST_ROUNDS, PATIENCE_SECONDS, ROUNDS, SLICE_MS
from cutegen.diagnostics import CutegenError
from cutegen.files import write_text
from cutegen.runtime.temporary import temporary_folder

if TYPE_CHECKING:
    from cutegen.report.result import Result
    from cutegen.run.bench import BenchReport, Settings
    from cutegen.run.subject import Subject
    from cutegen.run.targets import Target

Compared: TypeAlias = "tuple[int, dict[str, Any], list[str]]"
_FILE = click.Path(path_type=Path, dir_okay=False)
_html = click.option("--html", type=_FILE, metavar="FILE", help="Write a self-contained HTML report.")
_svg = click.option("--svg", type=_FILE, metavar="FILE", help="Write the chart.")
_compare = click.option("--compare", "old", type=_FILE, metavar="OLD.json",
                        help="Exit code 1 when a kernel is slower than in this result, beyond noise, or what it has "
                        "was not measured.")  # fmt: skip


_margin = click.option("--margin", type=console.FiniteRange(0, 100), default=1.0, show_default=True, metavar="PERCENT",
                       help="How much slower still counts as equal in --compare.")  # fmt: skip


_all = click.option("--all", "show_equal", is_flag=True, help="In --compare, show equal rows as well.")


@click.command()
@targets_argument
@shapes_option
@click.option("--rounds", type=click.IntRange(LEAST_ROUNDS), default=ROUNDS, show_default=True,
              help="Rounds over all candidates.")  # fmt: skip
@click.option("--slice", "slice_ms", type=console.FiniteRange(1, 10_000), default=SLICE_MS, show_default=True,
              metavar="MS", help="Time each candidate gets in a round.")  # fmt: skip
@click.option("--baseline", "baselines", multiple=True, metavar="NAME",
              help="Only these and the first: torch, nvmath, quack ...; none: the targets alone.")  # fmt: skip
@click.option("--against", default="", metavar="NAME",
              help="What speeds are relative to; by default the first baseline, or target.")  # fmt: skip
@click.option("--patience", type=console.FiniteRange(1, 86_400), default=PATIENCE_SECONDS, show_default=True,
              metavar="SECONDS", help="Leave out baselines that take longer to compile, tune and launch.")  # fmt: skip
@suite_option("Measure")
@click.option("--behind", type=click.Choice(["nothing", "plain"]), default="nothing", show_default=True,
              help="What precedes each launch, timed with it: nothing (launches back to back), or a plain kernel, "
              "which copies the first input and lets nothing start early.")  # fmt: skip
@click.option("--floor", type=console.FiniteRange(0, 100), metavar="SPEED",
              help="Measure a problem again where the lower end of a kernel's speed is under this; the second time "
              "counts, and both are kept.")  # fmt: skip
@click.option("--again", type=click.IntRange(LEAST_ROUNDS), default=AGAIN_ROUNDS, show_default=True, metavar="ROUNDS",
              help="Rounds of the second time.")  # fmt: skip
@click.option("--sms", type=click.IntRange(1), metavar="N", help="Run the kernels on at most N SMs; baselines use all.")
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="Write the result, all samples in it, as JSON.")
@_html
@_svg
@_compare
@_margin
@_all
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
    behind: Literal["nothing", "plain"],
    floor: float | None,
    again: int,
    sms: int | None,
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
    from cutegen.run.targets import open_target

    if shapes and suite:
        raise CutegenError("--shape and --suite exclude each other", "give one of them", exit_code=2)
    console.keep_apart({"-o": output, "--html": html, "--svg": svg}, [*targets, old])
    before = load_result(old) if old else None
    settings = Settings(
        rounds, slice_ms / 1e3, baselines, against, suite, sms, patience, behind=behind, floor=floor, again=again
    )
    if suite:
        from cutegen.run.suite import load_suite, suite_folder

        for path in targets:
            load_suite(suite, suite_folder(path))
    with temporary_folder() as scratch:
        opened = [open_target(path, scratch / str(i)) for i, path in enumerate(targets)]
        settings = name_baselines(name_suite(settings, opened, shapes), opened)
        command = repeat(targets, shapes, settings)
        report = bench_targets(opened, shapes, settings, lambda so_far: _keep(so_far, command, output))
    data = report.to_json(command)
    result = parse_result(data)
    code = int(not report.ok)
    comparison = _compare_results(before, result, margin, show_equal) if before else None
    try:
        if output:
            write_text(output, pack(data))
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


@click.command("report")
@click.argument("files", type=_FILE, metavar="RESULT.json...", nargs=-1, required=True)
@_html
@_svg
@_compare
@_margin
@_all
@click.option("--model", "specs", multiple=True, type=click.Path(path_type=Path), metavar="SPEC",
              help="Score the cost model: its picks beside the fastest measured, by bench or tune.")  # fmt: skip
@click.option("--markdown", is_flag=True, help="Print tables for a page: of one result or of several together.")
@click.option("--by", metavar="DIM,..", help="Of --markdown: a row for each extent of these dims; `name`: of a suite.")
@click.option("--full", is_flag=True, help="Of --markdown: a row for every problem instead of a summary.")
@click.option(
    "--below", type=float, metavar="SPEED", help="Of --markdown: every problem on which a speed is below this."
)
@click.option("--together", is_flag=True, help="Of --markdown: all kernels in one summary, as if they were one.")
@click.option("--kernel", "kernels", multiple=True, metavar="NAME", help="Of --markdown: only this one.")
@click.option("--against", "libraries", multiple=True, metavar="NAME", help="Of --markdown: relative to this only.")
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="Write the result as `bench -o` does, for keeping.")
@console.json_option
def report_(
    files: tuple[Path, ...],
    html: Path | None,
    svg: Path | None,
    old: Path | None,
    margin: float,
    show_equal: bool,
    specs: tuple[Path, ...],
    markdown: bool,
    by: str | None,
    full: bool,
    below: float | None,
    together: bool,
    kernels: tuple[str, ...],
    libraries: tuple[str, ...],
    output: Path | None,
    as_json: bool,
) -> int:
    """Show a result that `bench -o` wrote: as a table, a page or a chart, or compared with an older one.

    Files are written before anything is printed. Exit code 1: a kernel is slower than in OLD.json, or not all of that
    was measured; 2: a file is not a result.
    """
    from cutegen.report.result import load_data, load_result
    from cutegen.report.stored import pack

    asked = {"--compare": old, "--html": html, "--svg": svg, "-o": output, "--json": as_json, "--model": specs}
    if markdown:
        from cutegen.cli.pages import draw_tables

        _refuse_together("--markdown", asked)
        console.say(draw_tables(files, by, full, below, together, kernels, libraries).rstrip())
        return 0
    if only := [name for name, value in (("--by", by), ("--full", full), ("--below", below is not None),
                                         ("--together", together), ("--kernel", kernels), ("--against", libraries))
               if value]:  # fmt: skip
        raise CutegenError(f"{only[0]} is an option of --markdown", "add --markdown", exit_code=2)
    if len(files) > 1:
        raise CutegenError("several results are shown together by --markdown only", "name one, or add it", exit_code=2)
    file = files[0]
    if specs:
        _refuse_together("--model", {name: asked[name] for name in ("--compare", "--html", "--svg", "-o")})
        _score(file, specs, as_json)
        return 0
    console.keep_apart({"--html": html, "--svg": svg, "-o": output}, [file, old])
    result = load_result(file)
    comparison = _compare_results(load_result(old), result, margin, show_equal) if old else None
    write_pictures(result, html, svg)
    if output:
        write_text(output, pack(load_data(file)))
    if as_json:
        summaries = {k: {r: s.model_dump() for r, s in by.items()} for k, by in result.summaries.items()}
        console.print_json({"summaries": summaries, "comparison": comparison[1] if comparison else None})
    elif not comparison:
        say_result(result)
    for text in comparison[2] if comparison and not as_json else ():
        console.say(text)
    return comparison[0] if comparison else 0


def _refuse_together(option: str, others: Mapping[str, object]) -> None:
    if found := [name for name, value in others.items() if value]:
        raise CutegenError(f"{option} and {found[0]} contradict each other", "run the command once for each", 2)


def _compare_results(old: Result, new: Result, margin: float, show_equal: bool) -> Compared:
    """Exit code, JSON and lines."""
    from cutegen.report.comparison import compare, comparison_header, comparison_rows, describe_comparison

    found = compare(old, new, margin / 100)
    rows = list(comparison_rows(found, show_equal))
    table = console.table(comparison_header(), rows) if rows else ""
    more = "; --all shows the equal ones" if len(rows) < len(found.rows) else ""
    return int(not found.ok), found.to_json(), [*filter(None, [table]), *describe_comparison(found, more)]


def _score(file: Path, specs: Sequence[Path], as_json: bool) -> None:
    from cutegen.families.registry import load_family
    from cutegen.report import score
    from cutegen.resolve import resolve_file

    kernels = {path.stem: resolve_file(console.spec_file(path)) for path in specs}

    def estimate(kernel: str, instance: score.Instance, shape: Mapping[str, int]) -> float | None:
        resolution = kernels.get(kernel)
        if resolution is None:
            return None
        found: float | None = load_family(resolution.spec.kernel).estimate(resolution.resolved, instance, shape)
        return found

    found = score.score_model(score.load_timed(file), estimate)
    if as_json:
        console.print_json(score.score_to_json(found))
        return
    if found.picks:
        console.say(console.table(score.score_header(), score.score_rows(found)))
    for text in score.describe_score(found):
        console.say(text)


def write_pictures(result: Result, html: Path | None, svg: Path | None) -> None:
    if html or svg:
        from cutegen.report.page import render_chart, render_page

        for path, render in ((svg, render_chart), (html, render_page)):
            if path:
                write_text(path, render(result))


def _keep(report: BenchReport, command: str, output: Path | None) -> None:
    """What was measured so far, so that a run that is stopped leaves it."""
    if output:
        from cutegen.report.stored import pack

        with suppress(OSError):  # told at the end
            write_text(output, pack(report.to_json(command)))


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
    status = probe_gpu(next((t.arch for t in targets if t.arch), "sm_90a"))
    if not status.ok:
        raise CutegenError(f"not run: {status.reason}", exit_code=2)
    with redirect_stdout(sys.stderr), _status_line() as on_progress:
        known |= {t.path: load_subject(t.path) for t in targets if not t.arch}
        check_names(list(known.values()), settings.baselines, settings.against)
        subjects = [(known[t.path], t.measured_rows(known[t.path], settings.suite)) for t in targets]
        return measure(subjects, shapes, CudaDevice(), describe_environment(), settings, on_progress, on_problem)


def _limit_sms(subjects: Iterable[Subject], sms: int | None) -> None:
    """CutegenError (exit 2): a kernel cannot run on so few."""
    for plan in (s.plan for s in subjects if s.plan and sms):
        least = max(map(plan.least_sms, plan.tilings))
        if sms is not None and sms < least:
            remedy = f"use at least {least}"
            raise CutegenError(f"--sms {sms}: a cluster of {plan.name} has {least} CTAs", remedy, exit_code=2)
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


def say_result(result: Result) -> None:
    from cutegen.report.table import (
        HEADER,
        describe_problem,
        describe_run,
        describe_skipped,
        row,
        suite_header,
        suite_rows,
    )

    if result.suite:
        console.say(console.table(suite_header(result), suite_rows(result)))
        for text in describe_skipped(result):
            console.say(text)
    for problem in () if result.suite else result.problems:
        console.say(f"\n{describe_problem(problem)}")
        console.say(console.table(HEADER, map(row, problem.candidates)))
        for name, reason in problem.skipped.items():
            console.say(f"skipped {name}: {reason}")
    for text in describe_run(result):
        console.say(text)
    console.say(f"again: {result.command}")
