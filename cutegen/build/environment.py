"""Kernels of specs built under other versions of the DSL, in an environment of Python that is made for it and thrown
away."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutegen.build.contract import Check
from cutegen.build.facts import Facts, require_nvdisasm
from cutegen.build.kernels import KernelReport, build_kernels
from cutegen.build.worker import Outcome
from cutegen.diagnostics import CutegenError, cut
from cutegen.families.registry import load_family
from cutegen.resolve import Resolution, resolve_archs
from cutegen.runtime.sources import TVM_FFI_REQUIREMENT, distribution_versions

PACKAGE = "nvidia-cutlass-dsl"
MARK = "\ncutegen kernels: "  # what is printed before the answer is the compiler's
INSTALL_SECONDS, BUILD_SECONDS = 1800.0, 4 * 3600.0
MOST_LINES = 4  # of pip's errors
# A name, an extra with a CUDA flavour, and one version: nothing that is an option, a path or an address.
_REQUIREMENT = re.compile(rf"({PACKAGE})(\[[a-z0-9,]+\])?==([0-9][0-9A-Za-z.+!]*)")
_OWN = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Requirement:
    """nvidia-cutlass-dsl of one version. text: for pip. name: in reports, 4.8.1 or 4.8.1[cu13]."""

    text: str
    version: str
    name: str


def read_requirement(text: str) -> Requirement:
    """`nvidia-cutlass-dsl==4.8.1`, also with `[cu13]`, or the version alone. CutegenError (exit 2): none of these."""
    found = _REQUIREMENT.fullmatch(text) or _REQUIREMENT.fullmatch(f"{PACKAGE}=={text}")
    if found is None:
        raise CutegenError(
            f"{cut(text)!r} is not one version of {PACKAGE}", f"write {PACKAGE}==4.8.1, or with [cu13]", exit_code=2
        )
    return Requirement(found[0], found[3], found[3] + (found[2] or ""))


def installed_version() -> str:
    """Of the DSL that runs here. CutegenError (exit 2): there is none."""
    version = distribution_versions().get(PACKAGE.replace("-", "_"))
    if version is None:
        raise CutegenError(f"{PACKAGE} is not installed", f"name both versions, or pip install {PACKAGE}", exit_code=2)
    return version


def make_environment(requirement: Requirement, folder: Path) -> Path:
    """An environment with the DSL and what cutegen's own modules import, in the versions that run here; its python.
    CutegenError (exit 2): the index does not serve it, or not for this Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [
        sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet",
        "--no-input", requirement.text, TVM_FFI_REQUIREMENT, *_own_requirements(),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        said = f"{requirement.text} was not installed within {INSTALL_SECONDS:g} s"
        raise CutegenError(said, "try again, or set up a nearer index with pip's --index-url", exit_code=2) from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith(("ERROR", "error"))]
        raise CutegenError(
            f"{requirement.text} cannot be installed:",
            "name a version that the index has for this Python (`pip index versions nvidia-cutlass-dsl`); pip's own "
            "settings, such as PIP_INDEX_URL, say which index",
            exit_code=2,
            details=(lines or done.stderr.splitlines())[:MOST_LINES],
        )
    return python


def _own_requirements() -> list[str]:
    """What cutegen needs at run time, in the versions that are here."""
    try:
        needed = importlib.metadata.distribution("cutegen").requires or []
    except importlib.metadata.PackageNotFoundError:
        raise CutegenError(
            "cutegen is not installed, so what it needs is unknown", "pip install -e .", exit_code=2
        ) from None
    pinned = []
    for text in needed:
        name = _OWN.match(text)
        if "extra ==" in text or name is None:
            continue
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # of another Python, by its marker
            pinned.append(f"{name[0]}=={importlib.metadata.version(name[0])}")
    return pinned


def build_in(
    python: Path, resolutions: Mapping[Path, Sequence[Resolution]], every: bool, workers: int | None
) -> dict[Path, list[list[KernelReport]]]:
    """The reports of the kernels of each spec, for each of its architectures, built by that Python with this cutegen.
    every: all tilings, and not one of each module. CutegenError: it cannot."""
    request = {"specs": [str(path) for path in resolutions], "every": every, "workers": workers}
    root = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {root!r}); from cutegen.build.environment import main; main()"
    tools = os.path.dirname(require_nvdisasm())
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"}
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        environment.pop(name, None)
    try:
        done = subprocess.run(
            [str(python), "-c", code], input=json.dumps(request), capture_output=True, text=True, env=environment,
            timeout=BUILD_SECONDS,
        )  # fmt: skip
        held = json.loads(done.stdout.rpartition(MARK)[2])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CutegenError(f"{python}: {error}", "try with fewer specs", exit_code=2) from None
    except ValueError:
        details = done.stderr.splitlines()[-MOST_LINES:]
        raise CutegenError(
            f"{python} built nothing:", "try the same with `build`", exit_code=2, details=details
        ) from None
    if "error" in held:
        raise CutegenError(held["error"], "try the same with `build`", exit_code=2)
    return {
        path: [
            [_read_report(resolution.resolved, each) for each in built]
            for resolution, built in zip(own, held["kernels"][str(path)])
        ]
        for path, own in resolutions.items()
    }


def _read_report(resolved: Any, held: Mapping[str, Any]) -> KernelReport:
    tiling = next(t for t in resolved.built if t.name == held["tiling"])
    facts = Facts.from_json(held["facts"]) if held["facts"] else None
    checks = tuple(Check(**check) for check in held["checks"])
    plan = load_family(resolved.family).plan_code(resolved, tiling)
    outcome = Outcome(facts, error=held["error"], seconds=held["seconds"])
    return KernelReport(resolved.name, tiling.name, resolved.arch, held["key"], plan, outcome, checks)


def main() -> None:
    """In that environment: builds what stdin asks for, and prints what came out behind MARK."""
    request = json.loads(sys.stdin.read())
    answer: dict[str, Any] = {"kernels": {}}
    try:
        for path in request["specs"]:
            answer["kernels"][path] = [
                [
                    _describe(r)
                    for r in build_kernels([of.resolved], sample=not request["every"], workers=request["workers"])
                ]
                for of in resolve_archs(Path(path))
            ]
    except CutegenError as error:
        answer = {"error": str(error)}
    print(MARK + json.dumps(answer))


def _describe(report: KernelReport) -> dict[str, Any]:
    facts = report.outcome.facts
    return {
        "tiling": report.tiling,
        "key": report.key,
        "error": report.outcome.error,
        "seconds": report.outcome.seconds,
        "checks": [asdict(check) for check in report.checks],
        "facts": facts.to_json() if facts else None,
    }
