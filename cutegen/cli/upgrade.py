"""`doctor --upgrade` and `diff nvidia-cutlass-dsl==A..B`: what another version of the DSL makes of specs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from cutegen.build.between_specs import Difference, compare_builds
from cutegen.build.environment import (
    PACKAGE,
    build_in,
    installed_version,
    make_environment,
    read_requirement,
)
from cutegen.build.kernels import KernelReport, build_kernels
from cutegen.cli.progress import show_bar
from cutegen.resolve import Resolution, resolve_archs
from cutegen.runtime.temporary import temporary_folder

Built = dict[Path, list[list[KernelReport]]]


def compare_versions(
    specs: Sequence[Path], old: str, new: str, every: bool = False, jobs: int | None = None
) -> tuple[str, list[Difference]]:
    """What changes, in words (`nvidia-cutlass-dsl 4.7.1 -> 4.8.1`), and how: by spec and architecture. old, new: as
    `read_requirement` takes them, "" for the version that runs here. CutegenError: a version cannot be had, or nothing
    can be built."""
    asked = [read_requirement(text) if text else None for text in (old, new)]
    names = [one.name if one else installed_version() for one in asked]
    # Another version, or one with an extra, whose wheels need not be here.
    wanted = [one if one and one.text != f"{PACKAGE}=={installed_version()}" else None for one in asked]
    resolutions = {path: resolve_archs(path) for path in specs}
    sides, given = list[Built](), (resolutions, every, jobs)
    with ExitStack() as folders, show_bar("building") as bar:
        pythons = []
        for one in wanted:  # all of them first, as one that cannot be had is told before anything is built
            if one:
                bar.name([f"installing {one.text}"])
            pythons.append(make_environment(one, folders.enter_context(temporary_folder())) if one else None)
        for python, name in zip(pythons, names):
            bar.name([f"with {PACKAGE} {name}"])
            sides.append(build_in(python, *given) if python else _build_here(*given))
    before, after = sides
    found = [
        compare_builds(resolution, before[path][i], after[path][i])
        for path, own in resolutions.items()
        for i, resolution in enumerate(own)
    ]
    return f"{PACKAGE} {names[0]} -> {names[1]}", found


def _build_here(resolutions: dict[Path, tuple[Resolution, ...]], every: bool, jobs: int | None) -> Built:
    return {
        path: [list(build_kernels([r.resolved], sample=not every, workers=jobs)) for r in own]
        for path, own in resolutions.items()
    }
