"""The command that shows where the time of one launch goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cutegen.cli import console
from cutegen.cli.bench import refuse_unrated
from cutegen.cli.options import refuse_idle
from cutegen.cli.targets import refuse_tiling, targets_argument
from cutegen.diagnostics import CutegenError
from cutegen.runtime.temporary import temporary_folder

if TYPE_CHECKING:
    from cutegen.run.profiling import Kernel, Profile

LEAST_SHARE = 0.01  # of all samples, for a row of the table of reasons
REPORT = ".ncu-rep"


@click.command()
@targets_argument
@click.option("--shape", metavar="DIM=EXTENT,..", default="", help="The problem; needed unless all dims are constant.")
@click.option("--tiling", default="", metavar="KEY", help="Launch this tiling; by default the one that the plan picks.")
@click.option("--mode", type=click.Choice(["ncu", "annotation"]), default="ncu", show_default=True,
              help="annotation: NVTX ranges and a duration, for Nsight Systems; needs no ncu.")  # fmt: skip
@click.option("--l2", type=click.Choice(["cold", "warm"]), default="cold", show_default=True,
              help="Whether ncu empties caches before each pass.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Keep the report of ncu, for its own programs.")  # fmt: skip
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Draw what each warp waits for, by a build with stamps, as .svg or .txt; needs no ncu.")  # fmt: skip
@click.option("--on", "where", type=click.Choice(["gpu", "cpu"]), default="gpu", show_default=True,
              help="With --trace: cpu executes the compiled kernel's PTX, whose clock counts steps.")  # fmt: skip
@console.json_option
def profile(
    targets: list[Path],
    shape: str,
    tiling: str,
    mode: str,
    l2: str,
    output: Path | None,
    trace: Path | None,
    where: str,
    as_json: bool,
) -> int:
    """Profile one launch with Nsight Compute: what is planned and what is measured, and what warps wait for.

    Works on specs and generated packages; two stand side by side, as before and after a change. Clocks are left alone,
    so a duration is that of one launch on a GPU that was idle: `bench` compares. Exit code 2: not run, the reason is
    printed.
    """
    from cutegen.run.profiling import find_obstacle

    if trace:
        from cutegen.cli.role_waits import trace_roles

        refuse_idle("with --trace", "mode", "l2", "output")
        return trace_roles(targets, shape, tiling, where, trace, as_json)
    refuse_idle("without --trace", "where")
    if mode == "annotation":
        refuse_idle("without --mode ncu", "l2", "output")
    if files := [path for path in targets if path.suffix == ".py"]:
        raise CutegenError(f"{files[0]}: profile is for specs and packages", "run ncu on your script", exit_code=2)
    if output and len(targets) > 1:
        raise CutegenError(f"-o keeps one report, and there are {len(targets)} targets", "name one", exit_code=2)
    if output and output.suffix != REPORT:
        raise CutegenError(f"-o {output}: ncu's programs open files named *{REPORT}", "name it so", exit_code=2)
    with temporary_folder() as folder:
        found = _profile(targets, shape, tiling, mode, l2, output, folder, find_obstacle() if mode == "ncu" else "")
    if as_json:
        console.print_json({"ok": True, "findings": [], "profiles": [p.to_json() for p in found]})
        return 0
    for p in found:
        console.say(_title(p, mode))
    console.say(console.table(*_compare(found)))
    for p in found:
        for kernel in p.kernels:
            if kernel.count_samples():
                console.say(f"\n{_samples_title(kernel)}")
                console.say(console.table(*_count_reasons(kernel)))
    if mode == "annotation":
        console.say("ranges in a timeline: nsys profile --trace=cuda,nvtx cutegen profile ... --mode annotation")
    return 0


def _profile(
    targets: Sequence[Path],
    shape: str,
    tiling: str,
    mode: str,
    l2: str,
    output: Path | None,
    folder: Path,
    lacking: str,
) -> list[Profile]:
    """What is wrong with one target is found before the first is launched; the machine comes last."""
    from cutegen.cli.progress import show_bar
    from cutegen.resolve import resolve_archs
    from cutegen.run.profiling import profile_launch
    from cutegen.run.shapes import complete, read_shape
    from cutegen.run.subject import load_subject
    from cutegen.run.targets import open_runnable

    opened = [t for i, path in enumerate(targets) for t in open_runnable(path, folder / str(i))]
    subjects = [load_subject(target.path) for target in opened]
    given = read_shape(shape) if shape else {}
    shapes = [complete(subject, given, "--shape") for subject in subjects]
    for subject in subjects:
        refuse_tiling(subject, tiling)
    refuse_unrated({target.arch for target in opened})
    if obstacle := next(filter(None, (target.obstacle() for target in opened)), "") or lacking:
        raise CutegenError(f"not run: {obstacle}", exit_code=2)
    found = []
    with show_bar("profiling") as bar:
        for i, (target, subject, extents) in enumerate(zip(opened, subjects, shapes)):
            bar.progress(i, len(opened))
            bar.name([target.name])
            found_for = () if target.path.is_relative_to(target.given) else resolve_archs(target.given)
            resolution = next((r for r in found_for if r.resolved.arch == target.arch), None)
            report = output.absolute() if output else folder / f"{i}{REPORT}"
            found.append(
                profile_launch(
                    subject, target.given, extents, tiling=tiling, mode=mode, l2=l2, report=report,
                    resolution=resolution,
                )
            )  # fmt: skip
    return found


def _title(p: Profile, mode: str) -> str:
    from cutegen.run.shapes import problem_title

    how = f"one launch, {p.l2} L2, clocks left alone" if mode == "ncu" else "the same inputs each time, warm L2"
    planned = f"; times planned for {p.planned_for}" if p.planned_for else ""
    return f"{problem_title(p.name, p.shape)}, {p.tiling} on {p.device}: {how}{planned}"


def _compare(found: Sequence[Profile]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: a quantity each, planned once for a launch, and measured for each of its kernels. With two
    launches of one kernel each, by how much the second differs."""
    from cutegen.run.profiling import QUANTITIES

    several = len({p.path for p in found}) > 1
    header, columns = ["", ""], []
    for p in found:
        of = f"{p.path.stem} " if several else ""
        header.append(f"{of}planned")
        columns.append(p.planned)
        for kernel in p.kernels:
            header.append(f"{of}measured" if len(p.kernels) == 1 else kernel.name)
            columns.append(kernel.measured)
    pair = [p.kernels[0].measured for p in found if len(p.kernels) == 1]
    compared = several and len(found) == len(pair) == 2
    rows = []
    for q in QUANTITIES:
        values = [column.get(q.name) for column in columns]
        if any(value is not None for value in values):
            row = [q.name, q.unit, *map(_number, values)]
            rows.append([*row, _change(*(m.get(q.name) for m in pair))] if compared else row)
    return header + ["change"] * compared, rows


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"


def _change(old: float | None, new: float | None) -> str:
    return "-" if not old or new is None else f"{100 * (new / old - 1):+.1f}%"


def _samples_title(kernel: Kernel) -> str:
    count = f"{sum(kernel.count_samples().values())} samples of warps of {kernel.name}, in percent"
    return f"{count}, by role" if all(kernel.samples) else f"{count} (the kernel as a whole: no line information)"


def _count_reasons(kernel: Kernel) -> tuple[list[str], list[list[str]]]:
    """Header and rows: states of warps, the most frequent first; rare ones are left out."""
    from cutegen.run.profiling import REASONS

    total = kernel.count_samples()
    count = sum(total.values())
    roles = [role for role in kernel.samples if role]

    def cells() -> Iterator[list[str]]:
        yield ["", "all states", "100.0", *(_share(sum(kernel.samples[r].values()), count) for r in roles)]
        for reason, n in total.most_common():
            if n >= LEAST_SHARE * count:
                shares = [_share(kernel.samples[r].get(reason, 0), count) for r in roles]
                yield [reason, REASONS.get(reason, ""), _share(n, count), *shares]

    return ["state", "in words", "all", *roles], list(cells())


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if part else "-"
