"""What a command line names: specs, which are rendered to a scratch folder, generated packages, and Python files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutegen.diagnostics import CutegenError
from cutegen.run.row import Row
from cutegen.run.shapes import Shape
from cutegen.run.subject import Subject, list_plans, load_subject, name_plan
from cutegen.run.suite import Suite, load_suite, spec_suite, suite_folder
from cutegen.runtime.by_arch import plan_module
from cutegen.runtime.gpu import probe_gpu
from cutegen.spec.several_archs import refuse_several

if TYPE_CHECKING:
    from cutegen.spec import SpecDocument


@dataclass(frozen=True, slots=True)
class Target:
    """given: as named. path: the package folder or Python file that runs. arch: what it needs; "" for a plain file.

    check_shapes, bench_shapes, suite, baselines: from the spec. suites: the folder where suites are looked for. ready:
    inputs that were written before the kernel in front could start; None: nobody says.
    """

    given: Path
    path: Path
    name: str
    arch: str
    check_shapes: tuple[Shape, ...] = ()
    bench_shapes: tuple[Shape, ...] = ()
    baselines: tuple[str, ...] = ()
    suite: Suite | None = None
    suites: Path = Path("specs/suites")
    ready: tuple[str, ...] | None = None

    def measured_rows(self, subject: Subject, suite: str = "") -> tuple[Row, ...]:
        """What the spec lists; or the suite of that name alone. SpecError: a suite is not for such a kernel."""
        chosen = load_suite(suite, self.suites) if suite else self.suite
        if chosen:
            chosen.check_dims(subject.dims, subject.name)
        own = () if suite else map(Row, self.bench_shapes)
        return (*own, *(chosen.rows() if chosen else ()))

    def obstacle(self) -> str:
        """Why this machine cannot run it; "" when it can. A plain file is let try: it may need no GPU."""
        return probe_gpu(self.arch).reason if self.arch else ""


def render_spec(spec: SpecDocument, data: Mapping[str, Any], folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The package of a spec with other data, without a lock, in a new folder, and what its kernel finds ready.
    CutegenError: it does not resolve."""
    from cutegen.render import render_package, write_package
    from cutegen.resolve import resolve_document
    from cutegen.spec.load import load_text

    text = json.dumps(data, ensure_ascii=False)  # which YAML reads as well
    resolved = resolve_document(load_text(text, spec.name, spec.path), None).resolved
    write_package(render_package(resolved), folder)
    return folder / resolved.name, tuple(getattr(resolved.problem, "ready", ()))


def open_target(given: Path, scratch: Path) -> Target:
    """As `open_targets`, of one architecture. CutegenError: there are several."""
    targets = open_targets(given, scratch)
    refuse_several(given, [target.arch for target in targets])
    return targets[0]


def open_targets(given: Path, scratch: Path) -> tuple[Target, ...]:
    """One for each architecture. CutegenError: it is nothing that runs, or its spec does not resolve. Renders specs to
    `scratch`, which lives as long as the targets."""
    if given.suffix == ".py" and given.is_file():
        return (Target(given, given, given.stem, ""),)
    if (given / "plan.py").is_file():
        return tuple(_open_plan(given, path) for path in list_plans(given))
    from cutegen.render import render_package, write_package
    from cutegen.resolve import resolve_archs

    found = resolve_archs(given)
    package = render_package(*(resolution.resolved for resolution in found))
    write_package(package, scratch)
    folder, spec = scratch / package.name, found[0].spec
    return tuple(
        Target(
            given,
            path,
            name_plan(package.name, resolution.resolved.arch, path),
            resolution.resolved.arch,
            tuple(spec.check.shapes),
            tuple(spec.bench.shapes),
            tuple(spec.bench.baselines),
            spec_suite(spec, resolution.document, suite_folder(given)),
            suite_folder(given),
            tuple(getattr(resolution.resolved.problem, "ready", ())),
        )
        for resolution in found
        for path in [folder / f"{plan_module(resolution.document.arch)}.py" if resolution.document.arch else folder]
    )


def open_runnable(given: Path, scratch: Path) -> tuple[Target, ...]:
    """Of `open_targets` those that this machine can run; all of them where it can run none."""
    targets = open_targets(given, scratch)
    return tuple(target for target in targets if not target.obstacle()) or targets


def _open_plan(given: Path, path: Path) -> Target:
    subject = load_subject(path)
    plan = subject.plan
    if plan is None:
        remedy = f"check its spec; a standalone package checks itself: python -m {given.name} --check"
        raise CutegenError(f"{given}/plan.py has no PLAN of this cutegen", remedy, exit_code=2)
    return Target(given, path, subject.name, plan.arch)
