"""What a command line names: specs, which are rendered to a scratch folder, generated packages, and Python files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutegen.diagnostics import CutegenError
from cutegen.run.shapes import Shape
from cutegen.run.subject import load_subject
from cutegen.runtime.gpu import probe_gpu


@dataclass(frozen=True, slots=True)
class Target:
    """given: as named. path: the package folder or Python file that runs. arch: what it needs; "" for a plain file.

    check_shapes, bench_shapes, baselines: from the spec.
    """

    given: Path
    path: Path
    name: str
    arch: str
    check_shapes: tuple[Shape, ...] = ()
    bench_shapes: tuple[Shape, ...] = ()
    baselines: tuple[str, ...] = ()

    def obstacle(self) -> str:
        """Why this machine cannot run it; "" when it can. A plain file is let try: it may need no GPU."""
        return probe_gpu(self.arch).reason if self.arch else ""


def open_target(given: Path, scratch: Path) -> Target:
    """CutegenError: it is nothing that runs, or its spec does not resolve. Renders specs to `scratch`, which lives as
    long as the target."""
    if given.suffix == ".py" and given.is_file():
        return Target(given, given, given.stem, "")
    if (given / "plan.py").is_file():
        plan = load_subject(given).plan
        if plan is None:
            remedy = f"check its spec; a standalone package checks itself: python -m {given.name} --check"
            raise CutegenError(f"{given}/plan.py has no PLAN of this cutegen", remedy, exit_code=2)
        return Target(given, given, plan.name, plan.arch)
    from cutegen.render import render_package, write_package
    from cutegen.resolve import resolve_file

    resolution = resolve_file(given)
    package = render_package(resolution.resolved)
    write_package(package, scratch)
    spec = resolution.spec
    return Target(
        given,
        scratch / package.name,
        package.name,
        resolution.resolved.arch,
        tuple(spec.check.shapes),
        (*spec.bench.shapes, *_suite(given, spec.bench.suite)),
        tuple(spec.bench.baselines),
    )


def _suite(spec: Path, name: str | None) -> Sequence[Shape]:
    """The shapes of specs/suites/NAME.yaml beside the spec: a map `shapes`, a list of {dim: extent}."""
    if not name:
        return ()
    from cutegen.spec import load_document

    path = spec.parent / "suites" / f"{name}.yaml"
    if not path.is_file():
        raise CutegenError(f"{spec}: bench.suite: {path} does not exist", "name a file in suites/", exit_code=1)
    data = load_document(path).data
    shapes: Any = data.get("shapes") if isinstance(data, dict) else None
    if not isinstance(shapes, list) or not all(
        isinstance(s, dict) and s and all(isinstance(n, int) and n > 0 for n in s.values()) for s in shapes
    ):
        raise CutegenError(
            f"{path}: needs a list `shapes` of maps from dims to extents", "shapes: [{m: 4096, n: 4096}]"
        )
    return tuple(shapes)
