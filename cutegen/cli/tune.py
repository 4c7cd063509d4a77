"""`cutegen tune`: which kernels run which problems fastest, into the lock."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cutegen.cli import console
from cutegen.cli.durations import read_duration
from cutegen.cli.options import refuse_idle
from cutegen.cli.targets import shapes_option, suite_option
from cutegen.defaults import FEW_CANDIDATES, MAX_CANDIDATES
from cutegen.diagnostics import CutegenError
from cutegen.interrupts import EXIT_CODE
from cutegen.runtime.temporary import temporary_folder

if TYPE_CHECKING:
    from cutegen.run.shapes import Shape
    from cutegen.run.subject import Subject
    from cutegen.tune.pool import Pool
    from cutegen.tune.report import TuneReport
    from cutegen.tune.session import Measuring, Session

LEFT_OUT_SHOWN = 3  # problems that do not fit, where none does


@click.command()
@console.spec_argument
@shapes_option
@suite_option("Tune")
@click.option("--budget", metavar="TIME",
              callback=lambda ctx, parameter, value: (
                  None if value is None else read_duration("--budget", value, "90s, 5m or 1h30m")),
              help="For the whole tune, such as 90s or 5m: all problems briefly, then where gain is "
              "likely.")  # fmt: skip
@click.option("--candidates", type=click.IntRange(1, 10_000), metavar="N",
              help="The most to try on a problem in addition to winners of its neighbours, in the order of "
              f"the cost model and spread over kinds; {MAX_CANDIDATES}, with --between {FEW_CANDIDATES}.")  # fmt: skip
@click.option("--confirm", is_flag=True, help="Measure the winners of the lock again, and nothing else.")
@click.option("--between", is_flag=True,
              help="Measure between the problems that the lock has answers for, and divide their ranges where another "
              "kernel is faster.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Measure again what the timing store knows.")
@click.option("--unordered-sums", is_flag=True,
              help="Try kernels as well whose bits may differ from run to run.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="List the candidates, and what is pruned and why; needs no GPU.")
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N",
              help="Compile processes; by default one a CPU, with --budget one less.")  # fmt: skip
@console.json_option
def tune(
    spec: Path,
    shapes: tuple[str, ...],
    suite: str,
    budget: float | None,
    candidates: int | None,
    confirm: bool,
    between: bool,
    fresh: bool,
    unordered_sums: bool,
    dry_run: bool,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Measure candidates on the current GPU, and write what beats the default beyond the noise into the lock.

    Problems are the shapes or the suite, else those of the spec: `instances` and `m`, or `bench`. What is measured is
    kept: a tune that was stopped goes on where it was. Ctrl-C leaves what was proved by then. `cutegen render` then
    dispatches to the winners.

    Exit code 1: the lock was not written, or measurements were too noisy; 2: not run, the reason is printed.
    """
    begun = time.monotonic()  # a budget is for all that follows
    from cutegen.runtime.cache import default_root
    from cutegen.tune.session import Options, Session
    from cutegen.tune.store import TimingStore, store_path

    if confirm and between:
        raise CutegenError("--confirm and --between exclude each other", "give one after the other", exit_code=2)
    known = "--confirm" if confirm else "--between" if between else ""  # problems are those of the lock
    if known and (suite or dry_run):
        raise CutegenError(f"{known} goes without --suite and --dry-run", "name shapes, or none", exit_code=2)
    if confirm:
        refuse_idle("with --confirm", "candidates", "unordered_sums")
    if dry_run:
        refuse_idle("with --dry-run", "budget", "fresh", "jobs")
    problems, left_out = ([], []) if known and not shapes else find_problems(spec, shapes, suite)
    most = candidates or (FEW_CANDIDATES if between else MAX_CANDIDATES)
    options = Options(budget or float("inf"), most, jobs, confirm, between, fresh, unordered_sums, dry_run, begun=begun)
    measuring = _Unmeasured() if dry_run else make_measuring()
    store = TimingStore(None if dry_run else store_path(default_root()))
    try:
        with _progress() as on_progress:
            session = Session(spec, measuring, store, options, on_progress)
            session.report.notes += left_out
            if dry_run:
                return _list_candidates(session, problems, most, as_json)
            if between:
                report = session.divide(_answered(session, problems), find_step(spec, session.space.along))
            else:
                report = session.run(_winning(session, problems) if confirm else problems)
    finally:
        store.close()
    command = _repeat(spec, shapes, suite, candidates, unordered_sums, jobs, budget, known)
    if as_json:
        console.print_json(report.to_json(command))
    else:
        _say(report, command)
    return EXIT_CODE if report.interrupted else console.worst(report.faults, int(not report.ok))


def make_measuring() -> Measuring:
    from cutegen.tune.gpu import GpuMeasuring

    return GpuMeasuring()


class _Unmeasured:
    """No device: candidates are listed, nothing is timed."""

    def identify(self, arch: str) -> tuple[str, str]:
        return "", ""

    def station(self, package: Path) -> Any:
        raise AssertionError("nothing is measured")


def find_problems(spec: Path, shapes: Sequence[str], suite: str) -> tuple[list[Shape], list[str]]:
    """What to tune, and notes about rows of a suite that are not for this kernel. CutegenError: there is nothing, or a
    shape or suite is wrong."""
    from cutegen.run.row import refuse
    from cutegen.run.shapes import complete, parse_shape
    from cutegen.run.subject import load_subject
    from cutegen.run.targets import open_target
    from cutegen.spec import load_document, parse_spec

    if shapes and suite:
        raise CutegenError("--shape and --suite exclude each other", "give one of them", exit_code=2)
    with temporary_folder() as scratch:
        target = open_target(spec, scratch)
        subject = load_subject(target.path)
        if shapes:
            return _once([parse_shape(text, subject) for text in shapes]), []
        listed = [] if suite else parse_spec(load_document(spec)).listed_shapes(subject.roles.m)
        if listed:
            return _once([_complete_listed(spec, subject, shape) for shape in listed]), []
        rows = target.measured_rows(subject, suite)
        reasons = [refuse(subject, row) for row in rows]
        fitting = [complete(subject, row.shape, row.title) for row, reason in zip(rows, reasons) if not reason]
        left_out = [f"left out: {row.title}: {reason}" for row, reason in zip(rows, reasons) if reason]
        if not fitting:
            said, more = (
                [f"{spec}: there is no problem to tune", *left_out[:LEFT_OUT_SHOWN]],
                len(left_out) - LEFT_OUT_SHOWN,
            )
            remedy = f"name one with {_shape_option(subject)}, or several with --suite NAME"
            raise CutegenError("; ".join([*said, *([f"and {more} more"] if more > 0 else [])]), remedy, exit_code=2)
        return _once(fitting), left_out


def _complete_listed(spec: Path, subject: Subject, shape: Shape) -> Shape:
    """A problem of `instances` and `m`. CutegenError (exit 2): it is none of the subject, or dims are left open."""
    from cutegen.run.shapes import complete, missing_dims

    if missing := missing_dims(subject, shape):
        asked = ["`m: [1, 64, ..]`"] * (subject.roles.m in missing)
        if others := [f"{d}: .." for d in missing if d != subject.roles.m]:
            asked.append(f"`{', '.join(others)}` in each of `instances`")
        said = f"{spec}: `instances` and `m` give no {' and no '.join(f'`{d}`' for d in missing)}"
        remedy = f"write {' and '.join(asked)}, or name a problem with {_shape_option(subject)}"
        raise CutegenError(said, remedy, exit_code=2)
    return complete(subject, shape, f"instances of {spec}")


def _shape_option(subject: Subject) -> str:
    """How a problem is named on the command line."""
    return "--shape " + ",".join(f"{d}=.." for d, extent in subject.dims.items() if not isinstance(extent, int))


def _once(shapes: Sequence[Shape]) -> list[Shape]:
    return [dict(shape) for i, shape in enumerate(shapes) if shape not in shapes[:i]]


def _winning(session: Session, asked: Sequence[Shape]) -> list[Shape]:
    """The problems of winners, of those asked for. CutegenError (exit 2): there is none."""
    found = [p for p in session.winning_problems if not asked or p in asked]
    if not found:
        where = "for these shapes" if asked else f"for {session.device}"
        raise CutegenError(f"the lock has no winner {where}", "tune first, without --confirm", exit_code=2)
    return found


def _answered(session: Session, asked: Sequence[Shape]) -> Sequence[Shape]:
    """The problems asked for. CutegenError (exit 2): the lock has an answer for none, or for one of them none."""
    from cutegen.run.shapes import shape_text

    answered = [w.problem for w in session.answers]
    if not answered:
        raise CutegenError(f"the lock has no answer for {session.device}", "tune first, without --between", exit_code=2)
    for problem in asked:
        if problem not in answered:
            remedy = "tune it first, without --between, or name another problem of the lock"
            raise CutegenError(f"the lock has no answer for {shape_text(problem)}", remedy, exit_code=2)
    return asked


def find_step(spec: Path, dim: str) -> int:
    """What extents of a dim of the spec's kernel are multiples of."""
    from cutegen.run.subject import load_subject
    from cutegen.run.targets import open_target

    with temporary_folder() as scratch:
        return load_subject(open_target(spec, scratch).path).steps[dim]


def _repeat(
    spec: Path, shapes: Sequence[str], suite: str, candidates: int | None, unordered_sums: bool, jobs: int | None,
    budget: float | None, known: str,
) -> str:  # fmt: skip
    """The command that does the same again; without --fresh, as it has measured by then."""
    words = ["cutegen", "tune", str(spec)]
    words += [word for shape in shapes for word in ("--shape", shape)]
    words += ["--suite", suite] if suite else []
    words += ["--candidates", str(candidates)] if candidates else []
    words += ["--budget", f"{budget:.0f}s"] if budget else []
    words += [known] if known else []
    words += ["--unordered-sums"] * unordered_sums
    return shlex.join(words + (["--jobs", str(jobs)] if jobs else []))


def _progress() -> Any:
    from cutegen.cli.progress import show_stages

    return show_stages()


def _say(report: TuneReport, command: str) -> None:
    from cutegen.resolve.lock import lock_path
    from cutegen.run.shapes import shape_text
    from cutegen.tune.report import HEADER

    for problem in report.problems:
        console.say(f"\n{shape_text(problem.problem)}: {problem.verdict()}")
        rows = list(problem.rows())
        if rows:
            console.say(console.table(HEADER, rows))
        for text in problem.remarks():
            console.say(text)
    console.say(f"\n{report.device}; {report.toolchain}; {report.seconds:.1f} s")
    for text in report.remarks():
        console.say(f"note: {text}")
    for fault in report.faults:
        console.note(fault.report())
    if report.failed:
        console.note(f"error: {report.failed}")
        console.note(f"  = help: {command}")
        return
    done = "written: run `cutegen render` for a package that dispatches by it" if report.written else "unchanged"
    console.say(f"{lock_path(report.spec)}: {done}")


def _list_candidates(session: Session, problems: Sequence[Shape], limit: int, as_json: bool) -> int:
    pools = [(problem, session.pool(problem, limit)) for problem in problems]
    if as_json:
        console.print_json([_pool_json(problem, pool) for problem, pool in pools])
        return 0
    from cutegen.run.shapes import shape_text
    from cutegen.tune.report import describe_knobs

    for problem, pool in pools:
        console.say(f"{shape_text(problem)}: {_count(pool)}")
        rows = [
            (number, describe_knobs(session.differences(problem, proposal.knobs)), proposal.why)
            for number, proposal in enumerate(pool.tried, 1)
        ]
        if rows:
            console.say(console.table(("rank", "differs from the default by", "because"), rows))
        for pruned in pool.pruned:
            console.say(console.paragraph(f"pruned {pruned.count} by `{pruned.rule}`, such as: {pruned.reason}"))
    for note in session.report.notes:
        console.say(f"note: {note}")
    return 0


def _count(pool: Pool) -> str:
    behind = f"{pool.left_out} more rank{'s' * (pool.left_out == 1)} behind {'it' if len(pool.tried) == 1 else 'them'}"
    return f"{len(pool.tried)} candidate{'s' * (len(pool.tried) != 1)}, {behind}"


def _pool_json(problem: Shape, pool: Pool) -> dict[str, Any]:
    return {
        "problem": problem,
        "candidates": [{"knobs": dict(p.knobs), "why": p.why} for p in pool.tried],
        "left_out": pool.left_out,
        "pruned": [{"rule": p.rule, "count": p.count, "reason": p.reason} for p in pool.pruned],
    }
