"""The command report, which shows and compares results that were kept, and what `bench` shows of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from cutegen.cli import console
from cutegen.cli.options import refuse_idle
from cutegen.diagnostics import CutegenError
from cutegen.files import write_output

if TYPE_CHECKING:
    from cutegen.report.result import Result

Compared: TypeAlias = "tuple[int, dict[str, Any], list[str]]"
RESULT_FILE = click.Path(path_type=Path, dir_okay=False)
html_option = click.option("--html", type=RESULT_FILE, metavar="FILE", help="Write a self-contained HTML report.")
svg_option = click.option("--svg", type=RESULT_FILE, metavar="FILE", help="Write the chart.")
compare_option = click.option(
    "--compare",
    "old",
    type=RESULT_FILE,
    metavar="OLD.json",
    help="Exit code 1: a kernel is slower than in this result, beyond noise, or what it has was not measured.",
)
margin_option = click.option(
    "--margin",
    type=console.FiniteRange(0, 100),
    default=1,
    show_default=True,
    metavar="PERCENT",
    help="How much slower still counts as equal in --compare.",
)
all_option = click.option("--all", "show_equal", is_flag=True, help="In --compare, show equal rows as well.")
COMPARING = ("margin", "show_equal")  # what is for --compare alone


@click.command("report")
@click.argument("files", type=RESULT_FILE, metavar="RESULT.json...", nargs=-1, required=True)
@html_option
@svg_option
@compare_option
@margin_option
@all_option
@click.option("--model", "specs", multiple=True, type=click.Path(path_type=Path), metavar="SPEC",
              help="Score the cost model: its picks against the fastest measured, by bench or tune.")  # fmt: skip
@click.option("--markdown", is_flag=True, help="Print tables for a page: of one result or of several together.")
@click.option("--by", metavar="DIM,..", help="Of --markdown: a row for each extent of these dims; `name`: of a suite.")
@click.option("--full", is_flag=True, help="Of --markdown: a row for every problem instead of a summary.")
@click.option(
    "--below",
    type=console.FiniteRange(0, 100),
    metavar="SPEED",
    help="Of --markdown: every problem on which a speed is below this.",
)
@click.option("--together", is_flag=True, help="Of --markdown: all kernels in one summary, as if they were one.")
@click.option("--kernel", "kernels", multiple=True, metavar="NAME", help="Of --markdown: only this one.")
@click.option("--against", "libraries", multiple=True, metavar="NAME", help="Of --markdown: relative to this only.")
@click.option(
    "-o", "--output", type=RESULT_FILE, metavar="FILE", help="Write the result as `bench -o` does, for keeping."
)
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
        from cutegen.cli.tables import draw_tables

        _refuse_together("--markdown", asked)
        refuse_idle("with --markdown", *COMPARING)
        console.say(draw_tables(files, by, full, below, together, kernels, libraries).rstrip())
        return 0
    refuse_idle("without --markdown", "by", "full", "below", "together", "kernels", "libraries")
    if len(files) > 1:
        raise CutegenError("several results are shown together by --markdown only", "name one, or add it", exit_code=2)
    file = files[0]
    if specs:
        _refuse_together("--model", {name: asked[name] for name in ("--compare", "--html", "--svg", "-o")})
        refuse_idle("with --model", *COMPARING)
        _score(file, specs, as_json)
        return 0
    if not old:
        refuse_idle("without --compare", *COMPARING)
    console.keep_apart({"--html": html, "--svg": svg, "-o": output}, [file, old])
    result = load_result(file)
    comparison = compare_results(load_result(old), result, margin, show_equal) if old else None
    write_pictures(result, html, svg)
    if output:
        write_output(output, pack(load_data(file)))
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


def compare_results(old: Result, new: Result, margin: float, show_equal: bool) -> Compared:
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

    owners: dict[str, Path] = {}
    for path in specs:
        console.claim_name(owners, path.stem, path)
    kernels = {path.stem: resolve_file(console.spec_file(path)) for path in specs}
    problems = score.load_timed(file)
    timed = {k.kernel for p in problems for k in p.kernels}
    if others := [path for path in specs if path.stem not in timed]:
        known = f"it has {', '.join(sorted(timed))}" if timed else "name a result with kernels of a spec"
        raise CutegenError(f"{file} has no kernel of {others[0]}", known, exit_code=2)

    def estimate(kernel: str, instance: score.Instance, shape: Mapping[str, int]) -> float | None:
        resolution = kernels.get(kernel)
        if resolution is None:
            return None
        found: float | None = load_family(resolution.spec.kernel).estimate(resolution.resolved, instance, shape)
        return found

    found = score.score_model(problems, estimate)
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
                write_output(path, render(result))


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
