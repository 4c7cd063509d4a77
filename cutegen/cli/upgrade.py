"""`doctor --upgrade` and `diff nvidia-cutlass-dsl==A..B`: what another version of the DSL makes of specs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cutegen.build.between_specs import Difference, compare_builds
from cutegen.build.environment import (
    PACKAGE,
    Requirement,
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
    wanted = [read_requirement(text) if text else None for text in (old, new)]
    names = [one.version if one else installed_version() for one in wanted]
    resolutions = {path: resolve_archs(path) for path in specs}
    sides: list[Built] = []
    with show_bar("building") as bar:
        for one, name in zip(wanted, names):
            bar.name([f"with {PACKAGE} {name}"])
            sides.append(_build_under(one, resolutions, every, jobs))
    before, after = sides
    found = [
        compare_builds(resolution, before[path][i], after[path][i])
        for path, own in resolutions.items()
        for i, resolution in enumerate(own)
    ]
    return f"{PACKAGE} {names[0]} -> {names[1]}", found


def _build_under(
    requirement: Requirement | None, resolutions: dict[Path, tuple[Resolution, ...]], every: bool, jobs: int | None
) -> Built:
    if requirement is None or requirement.text == f"{PACKAGE}=={installed_version()}":
        return {
            path: [list(build_kernels([r.resolved], sample=not every, workers=jobs)) for r in own]
            for path, own in resolutions.items()
        }
    with temporary_folder() as folder:
        return build_in(make_environment(requirement, folder), resolutions, every, jobs)
