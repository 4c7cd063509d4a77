"""`check --shrink`: what is done with the first failure of a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cutegen.machine.check import CpuReport
from cutegen.machine.worker import CpuRequest, attempts_on_cpu
from cutegen.run.attempts import Attempts, attempts_on_gpu
from cutegen.run.check import CheckReport
from cutegen.run.shrink import Attempt, bisect_knobs, choose_case, shrink
from cutegen.run.subject import load_subject
from cutegen.run.targets import render_spec

if TYPE_CHECKING:
    from cutegen.run.targets import Target
    from cutegen.runtime.accuracy import Tolerance

Report: TypeAlias = CheckReport | CpuReport


def shrink_report(report: Report, target: Target, scratch: Path, timeout: float, allowed: Tolerance | None) -> Report:
    """The report with what one of its failures shrinks to, on the GPU or the CPU that it failed on; the same report
    where nothing failed. scratch: a folder for plainer kernels."""
    from cutegen.cli.progress import show_bar
    from cutegen.resolve import resolve_archs

    failing = list(report.failures())
    if not failing:
        return report
    case, fault = choose_case(failing)

    def open_package(path: Path, ready: tuple[str, ...] | None) -> Attempts:
        if isinstance(report, CpuReport):
            sms = next(found.sms for found in report.cases if found.case == case)
            request = CpuRequest(path, (), report.orders, timeout, report.strict, False, ready, allowed)
            return attempts_on_cpu(request, sms)
        return attempts_on_gpu(path, timeout, allowed)

    subject = replace(load_subject(target.path), allowed=allowed)
    with show_bar(f"shrinking {target.name}") as bar:
        bar.name([f"{case.name}, {case.mode}"])
        with open_package(target.path, target.ready) as attempt:
            shrunk = shrink(subject, case, fault, attempt)
        if target.path.is_relative_to(target.given):
            shrunk = replace(shrunk, without="they are tried where a spec is checked, and this is not one")
        else:
            found, numbers = resolve_archs(target.given), count()
            resolution = next(r for r in found if r.resolved.arch == target.arch)

            @contextmanager
            def open_spec(data: Mapping[str, Any]) -> Iterator[Attempt]:
                path, ready = render_spec(resolution.document, data, scratch / f"plainer{next(numbers)}")
                with open_package(path, ready) as attempt:
                    yield attempt

            shrunk = bisect_knobs(shrunk, subject, resolution, open_spec, lambda name: bar.name([name]))
    return replace(report, shrunk=shrunk)
