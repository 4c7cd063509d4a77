"""`profile --trace`: what the warps of one launch wait for; and where those of a launch that hangs do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cutegen.cli import console
from cutegen.cli.targets import refuse_tiling
from cutegen.diagnostics import CutegenError
from cutegen.runtime.temporary import temporary_folder

if TYPE_CHECKING:
    from cutegen.model.kernel import KernelModel
    from cutegen.run.check import CheckReport
    from cutegen.run.targets import Target

FORMS = (".svg", ".txt")
PATIENCE_S = 10.0  # for a launch that is known to hang


def trace_roles(targets: Sequence[Path], shape: str, tiling: str, where: str, file: Path, as_json: bool) -> int:
    """Draws the trace of one target to a file, and prints what each role waits for."""
    from cutegen.build.cpu import lacking_for_cpu
    from cutegen.cli.progress import show_bar
    from cutegen.files import write_output
    from cutegen.machine.timeline import STEPS
    from cutegen.model.timeline import draw_timeline
    from cutegen.run.role_trace import RECORDS, TraceRequest, instrument, is_full, launch_stamped, make_rows, sum_waits
    from cutegen.run.shapes import complete, problem_title, read_shape
    from cutegen.run.subject import load_subject
    from cutegen.run.targets import open_runnable
    from cutegen.run.warp_timeline import CYCLES, draw
    from cutegen.runtime.stamps import FIRST

    if file.suffix not in FORMS or len(targets) > 1 or targets[0].suffix == ".py":
        said = f"--trace {file}: it is drawn of one spec or package"
        raise CutegenError(said, f"name one, and a file {' or '.join(FORMS)}", exit_code=2)
    with temporary_folder() as folder:
        target, *others = open_runnable(targets[0], folder / "plain")
        if others:
            raise CutegenError(f"{targets[0]} is for several architectures", "name a plan of its package", exit_code=2)
        subject = load_subject(target.path)
        extents = complete(subject, read_shape(shape) if shape else {}, "--shape")
        refuse_tiling(subject, tiling)
        obstacle = target.obstacle() if where == "gpu" else "; ".join(lacking_for_cpu())
        if obstacle:
            raise CutegenError(f"not run: {obstacle}", exit_code=2)
        path = instrument(target.path, folder / "stamped")
        with show_bar("tracing") as bar:
            bar.name([target.name])
            found = launch_stamped(TraceRequest(path, extents, tiling or None), where, folder / "cache")
    time = CYCLES if where == "gpu" else STEPS._replace(marks=False)
    model = _find_model(target, found.tiling)
    title = f"{problem_title(target.name, extents)}, {found.tiling} on {found.device}"
    planned = ["planned:", *draw_timeline(model)] if model and model.roles else []
    write_output(file, draw(make_rows(found, model), title, file.suffix[1:], time, planned))
    rows = sum_waits(found, model)
    if is_full(found):
        console.note(f"some warps wait more than {(RECORDS - FIRST) // 2} times, and later ones are left out")
    if as_json:
        names = ("role", "waits_for", "count", time.unit, "share")
        waits = [dict(zip(names, row)) for row in rows]
        facts = {"name": target.name, "shape": extents, "tiling": found.tiling, "device": found.device}
        console.print_json({"ok": True, "findings": [], **facts, "waits": waits})
        return 0
    console.say(f"{title}: {file}")
    header = ("role", "waits for", "waits", time.unit, "share of its time")
    console.say(console.table(header, [(a, b, n, t, f"{share:.1%}") for a, b, n, t, share in rows]))
    return 0


def _find_model(target: Target, tiling: str) -> KernelModel | None:
    """Of a spec's kernel; None for a package, which has none."""
    from cutegen.resolve import resolve_archs

    if target.path.is_relative_to(target.given):
        return None
    resolved = next(r.resolved for r in resolve_archs(target.given) if r.resolved.arch == target.arch)
    return next((t.model for t in resolved.tilings if t.name == tiling), None)


def name_hangs(report: CheckReport, target: Target, scratch: Path) -> CheckReport:
    """The report with the roles and barriers that the first case waits in that hung: it is launched once more, with
    stamps. The same report where none did, or where that tells nothing."""
    from cutegen.run.role_trace import TraceRequest, instrument, launch_stamped, name_hang

    at = next((i for i, r in enumerate(report.results) if r.status == "hang"), None)
    if at is None or not target.arch:
        return report
    hung = report.results[at]
    case = hung.case
    try:
        path = instrument(target.path, scratch / "stamped")
        request = TraceRequest(path, case.shape, case.tiling, case.draw, PATIENCE_S)
        found = launch_stamped(request, "gpu", scratch / "stamped-cache")
        lines = name_hang(found, _find_model(target, found.tiling))
    except CutegenError as error:
        console.note(f"{target.name}: where it hangs is not known: {error.message}")
        return report
    if found.ended or not lines:
        lines = ["a launch of the same problem with stamps ended: what hangs depends on time"]
    named = replace(hung, detail=(*hung.detail, *lines))
    return replace(report, results=(*report.results[:at], named, *report.results[at + 1 :]))
