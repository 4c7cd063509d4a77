"""`check` of one target, on a GPU and on the CPU, and the options of the latter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cutegen.cli import console
from cutegen.defaults import CASE_SECONDS, ORDERS
from cutegen.diagnostics import CutegenError

if TYPE_CHECKING:
    from cutegen.machine.case_list import CpuCase
    from cutegen.machine.check import CpuReport
    from cutegen.machine.worker import CpuSetup
    from cutegen.run.case_list import Case
    from cutegen.run.check import CheckReport
    from cutegen.run.row import Row
    from cutegen.run.shapes import Shape
    from cutegen.run.targets import Target
    from cutegen.runtime.accuracy import Tolerance

_OPTIONS = (
    click.option("--on", "where", type=click.Choice(["gpu", "cpu"]), default="gpu", show_default=True,
                 help="Where: cpu executes the compiled kernel's PTX, races looked for."),
    click.option("--orders", type=click.IntRange(1, 10_000), metavar="N",
                 help=f"On the CPU: orders of events that each case runs in. [default: {ORDERS}]"),
    click.option("--strict/--no-strict", default=None,
                 help="On the CPU: a read of tensor memory lasts until its wait; by default not of files."),
    click.option("--all", "every", is_flag=True,
                 help="On the CPU: every tiling, and not one of each kernel module; of a suite every problem."),
    click.option("--timeline", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                 help="On the CPU: draw the first case's roles over its steps, as .svg or .txt."),
)  # fmt: skip


def cpu_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `given_on_cpu` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class OnCpu:
    """strict: None: as the target asks for. timeline: where to draw one."""

    orders: int = ORDERS
    strict: bool | None = None
    every: bool = False
    timeline: Path | None = None


def given_on_cpu(
    targets: Sequence[Path],
    where: str,
    orders: int | None,
    strict: bool | None,
    every: bool,
    timeline: Path | None,
) -> OnCpu | None:
    """None: on a GPU. CutegenError (exit 2): options that do not go together."""
    if where == "gpu":
        if orders is not None or strict is not None or every or timeline:
            said = "--orders, --strict, --all and --timeline are for --on cpu"
            raise CutegenError(said, "add --on cpu", exit_code=2)
        return None
    if timeline and (timeline.suffix not in (".svg", ".txt") or len(targets) > 1):
        raise CutegenError(f"--timeline {timeline}: it is drawn of one target", "name a .svg or a .txt", exit_code=2)
    return OnCpu(orders or ORDERS, strict, every, timeline)


def asked_problems(target: Target, shapes: Sequence[str], suite: str) -> tuple[list[Shape], tuple[Row, ...]]:
    """What `check` runs in addition to what breaks such kernels, the shapes of the command line or of the spec; or else
    the problems of a suite alone. Reports which of these are not for the kernel. CutegenError: none is, or a shape
    does not fit it."""
    from cutegen.run.row import fit_rows
    from cutegen.run.shapes import parse_shape
    from cutegen.run.subject import load_subject

    if not (shapes or suite):
        return list(target.check_shapes), ()
    subject = load_subject(target.path)
    if not suite:
        return [parse_shape(text, subject) for text in shapes], ()
    rows, notes = fit_rows(subject, target.measured_rows(subject, suite), suite)
    for text in notes:
        console.note(f"{target.name}: {text}")
    return [], rows


def check_target(
    target: Target,
    shapes: Sequence[str] = (),
    timeout: float = CASE_SECONDS,
    allowed: Tolerance | None = None,
    suite: str = "",
) -> CheckReport:
    from cutegen.cli.progress import show_bar
    from cutegen.run.check import check_kernel

    asked, rows = asked_problems(target, shapes, suite)
    with show_bar(f"checking {target.name}") as bar:

        def show(index: int, count: int, case: Case) -> None:
            bar.progress(index, count)
            bar.name([f"{case.name}, {case.mode}"])

        return check_kernel(target.path, asked, timeout, show, target.given, allowed, rows)


def execute_target(
    target: Target,
    on_cpu: OnCpu,
    shapes: Sequence[str] = (),
    timeout: float = CASE_SECONDS,
    allowed: Tolerance | None = None,
    quiet: bool = False,
    suite: str = "",
) -> CpuReport:
    """The check on the CPU. Reports first what it is expected to take, unless `quiet`."""
    from cutegen.build.cpu import lacking_for_cpu
    from cutegen.cli.progress import show_bar
    from cutegen.files import write_output
    from cutegen.machine.check import CpuReport, check_on_cpu, expected_text
    from cutegen.machine.timeline import STEPS
    from cutegen.machine.worker import CpuRequest
    from cutegen.run.shapes import shape_text
    from cutegen.run.warp_timeline import draw

    if lacking := lacking_for_cpu():
        return CpuReport(target.name, target.given, not_run="; ".join(lacking))
    asked, rows = asked_problems(target, shapes, suite)
    strict = bool(target.arch) if on_cpu.strict is None else on_cpu.strict
    request = CpuRequest(
        target.path,
        tuple(asked),
        on_cpu.orders,
        timeout,
        strict,
        on_cpu.every,
        target.ready,
        allowed,
        on_cpu.timeline is not None,
        rows,
    )
    with show_bar(f"executing {target.name}") as bar:

        def tell(setup: CpuSetup) -> None:
            if not quiet and (text := expected_text(setup, request)):
                console.note(f"{target.name}: {text}")

        def show(index: int, count: int, case: CpuCase) -> None:
            bar.progress(index, count)
            bar.name([f"{case.case.name}, {case.case.mode}, {case.sms} SMs"])

        report = check_on_cpu(request, target.given, tell, show)
    if on_cpu.timeline and report.timeline:
        case = report.cases[0].case
        title = f"{report.name}, {case.name}: {shape_text(case.shape)}"
        write_output(on_cpu.timeline, draw(report.timeline, title, on_cpu.timeline.suffix[1:], STEPS))
    return report
