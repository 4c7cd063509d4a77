"""Commands that are killed anywhere: no torn file, nothing of theirs left, and the next run is right."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_results import problem, result
from gemm_specs import ALONE

import cutegen.cli
import cutegen.cli.commands  # here once, and not in each process that is killed
from cutegen.__main__ import start

ROOT = Path(__file__).parents[2]
SMALL = "tiling: {tile: [64, 64, 64]}\npipeline: {stages: %d}\n"
Files = dict[str, bytes]


@dataclass
class Case:
    """A command. prepare: what lies in its folder before; arguments; patched: it runs with a scripted GPU. before,
    after: the files of its folder, before and after a run that nobody kills; seconds: such a run."""

    prepare: Callable[[Path], None]
    arguments: tuple[str, ...]
    patched: bool = False
    before: Files = field(default_factory=dict)
    after: Files = field(default_factory=dict)
    seconds: float = 0.0


def _spec(folder: Path, stages: int = 3) -> None:
    (folder / "plain.yaml").write_text(ALONE + SMALL % stages)


def _open_spec(folder: Path) -> None:
    (folder / "plain.yaml").write_text(ALONE)


def _rendered(*options: str) -> Callable[[Path], None]:
    """A package of another number of stages, which the command renders anew."""

    def prepare(folder: Path) -> None:
        _spec(folder, 2)
        _run(folder, ("render", *options, "plain.yaml"))
        _spec(folder, 3)

    return prepare


def _locked(folder: Path) -> None:
    _open_spec(folder)
    _run(folder, ("lock", "plain.yaml"))


def _locked_and_changed(folder: Path) -> None:
    _locked(folder)
    _spec(folder)


def _measured(folder: Path) -> None:
    (folder / "result.json").write_text(json.dumps(result(problem(10.0), problem(20.0, m=32))))
    (folder / "page.html").write_text("an older page")


COMMANDS = {
    "render": Case(_rendered(), ("render", "plain.yaml")),
    "standalone": Case(_rendered("--standalone"), ("render", "--standalone", "plain.yaml")),
    "lock": Case(_locked_and_changed, ("lock", "plain.yaml")),
    "pin": Case(_locked, ("pin", "plain.yaml")),
    "new": Case(lambda folder: None, ("new", "gemm", "fresh")),
    "report": Case(
        _measured, ("report", "result.json", "--html", "page.html", "--svg", "chart.svg", "-o", "kept.json")
    ),
    "build": Case(_spec, ("build", "plain.yaml")),
    "tune": Case(_locked, ("tune", "plain.yaml", "--shape", "m=64,n=4096,k=4096", "--budget", "20s"), patched=True),
}


def attack(count: int, seed: int, names: tuple[str, ...] = ()) -> Iterator[str]:
    """A line for each kill after which something was torn or left, or the next run was not right. names: commands, by
    default all, which take turns."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        cases = {name: COMMANDS[name] for name in names or COMMANDS}
        for kind, case in cases.items():
            _learn(case, Path(name) / kind)
        for number in range(count):
            kind = list(cases)[number % len(cases)]
            folder = Path(name) / f"{kind}_{number}"
            for fault in _kill(cases[kind], folder, draw):
                yield f"{number}: {kind}: {fault}"
            shutil.rmtree(folder)


def _learn(case: Case, folder: Path) -> None:
    folder.mkdir()
    case.prepare(folder)
    case.before = _read(folder)
    started = time.monotonic()
    code, said = _run(folder, case.arguments, case.patched)
    case.seconds = time.monotonic() - started
    assert code == 0, said
    case.after = _read(folder)
    shutil.rmtree(folder)


def _kill(case: Case, folder: Path, draw: random.Random) -> Iterator[str]:
    folder.mkdir()
    for path, data in case.before.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    # Now and then with the start of Python, which is interrupted in its own way, and all imports.
    fresh = draw.random() < 0.1 and not case.patched
    process = _spawn(folder, case.arguments) if fresh else _fork(folder, case.arguments, case.patched)
    time.sleep(draw.uniform(0.0, 1.1) * (case.seconds + (0.5 if fresh else 0.0)))
    sent = draw.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT))
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, sent)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    said = _said(folder, None)
    python_alone = fresh and sent == signal.SIGINT and "KeyboardInterrupt" in said and str(ROOT) not in said
    if code not in (0, 130, -sent) and not python_alone:
        yield f"after {sent.name} exit {code}: {_said(folder)}"
    for path, data in _read(folder).items():
        known = {files[path] for files in (case.before, case.after) if path in files}
        if Path(path).name.startswith("."):
            os.utime(folder / path, (0, 0))  # a temporary file, which the next run takes away once it is an hour old
            continue
        if data not in known and not (case.patched and path.endswith(".lock.yaml")):
            yield f"{path} is neither what it was nor what it was to be ({len(data)} bytes)"
    again = case.arguments
    if again[0] == "new" and (folder / "specs/fresh.yaml").exists():
        again = ("list",)  # it refuses what is there
    code, said = _run(folder, again, case.patched)
    if code:
        yield f"then exit {code}: {said}"
    found = _read(folder)
    wrong = [path for path in case.after.keys() | found.keys() if found.get(path) != case.after.get(path)]
    if case.patched:  # times differ
        code, said = _run(folder, ("lock", "--check", "plain.yaml"))
        wrong = [path for path in wrong if path not in case.after] + ([said] if code else [])
    if again[0] == "list":
        wrong = [path for path in wrong if path.endswith("fresh.yaml")]
    if wrong:
        yield f"then wrong, missing or left: {', '.join(sorted(wrong))}"


def _read(folder: Path) -> Files:
    """All files but those of the cache and what commands said."""
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        str(name): path.read_bytes()
        for name, path in paths.items()
        if name.parts[0] not in ("cache", "said", "log") and "__pycache__" not in name.parts
    }


def _run(folder: Path, arguments: tuple[str, ...], patched: bool = False) -> tuple[int, str]:
    code = os.waitstatus_to_exitcode(os.waitpid(_fork(folder, arguments, patched), 0)[1])
    return code, _said(folder)


def _said(folder: Path, most: int | None = 500) -> str:
    """The end of what a command said; nothing, where it was killed ahead of all."""
    said = folder / "said"
    text = said.read_text(errors="replace") if said.exists() else ""
    return text[-most:] if most else text


def _fork(folder: Path, arguments: tuple[str, ...], patched: bool) -> int:
    """The process of a command, forked from this one, which has imported all of it."""
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    process = os.fork()
    if process:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return process
    code = 70
    try:
        output = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        os.environ["CUTEGEN_CACHE_DIR"] = str(folder / "cache")
        sys.argv = ["cutegen", *arguments]
        if patched:
            _script_gpu(folder)
        cutegen.cli.main = _interruptible(cutegen.cli.main)
        try:
            code = start()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        sys.stdout.flush()
    finally:
        os._exit(code or 0)


def _interruptible(main: Callable[..., int]) -> Callable[..., int]:
    """An interrupt that comes while this file prepares a process waits for the command."""

    def run(*arguments: Any) -> int:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return main(*arguments)

    return run


def _script_gpu(folder: Path) -> None:
    import pytest
    from tune_setup import script_measuring

    script_measuring(folder, pytest.MonkeyPatch())()


def _spawn(folder: Path, arguments: tuple[str, ...]) -> int:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "CUTEGEN_CACHE_DIR": str(folder / "cache")}
    with (folder / "said").open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "cutegen", *arguments], cwd=folder, env=environment, stdout=said, stderr=said
        ).pid
