"""A backend of the tuner whose candidates do what a script says, in the process that real ones are measured in."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cutegen.run.shapes import Shape
from cutegen.run.subject import load_subject
from cutegen.tune.measuring_process import Opened, Setup, Station

FACTORY = "scripted_backend:ScriptedBackend"


@dataclass(frozen=True)
class Script:
    """seconds: per launch, by name, or, where `rows` has the name, for so many rows of m. does: (operation, name) ->
    "crash", "exit", "hang", "raise", "fault" (a raise after which only a new process helps), "kill" or "wrong". noise:
    relative, of a fixed sequence. log: gets a line an operation."""

    log: Path
    seconds: dict[str, float] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    does: dict[tuple[str, str], str] = field(default_factory=dict)
    noise: float = 0.002
    baseline: str = "cuBLAS"
    others: int = 0
    device: str = "Scripted GPU"


class ScriptedBackend:
    def __init__(self, script: Script) -> None:
        self.script, self.works, self.calls = script, True, count()
        self.problem: Shape = {}

    def setup(self) -> Setup:
        self.note("start")
        return Setup(self.script.device, self.script.others)

    def open(self, problem: Shape, default: str, keep: bool) -> Opened:
        self.problem = problem
        self.note("open " + ",".join(f"{d}={n}" for d, n in problem.items()))
        if "open" in self.script.does.values():
            raise RuntimeError("no memory")
        return Opened(
            self.script.baseline, "the product", "" if self.script.baseline else "not installed", 10**9, 10**6
        )

    def admit(self, name: str) -> str:
        return self.act("admit", name)

    def sample(self, name: str, seconds: float) -> float:
        self.act("sample", name)
        # From -1 to 1, without a pattern in the rounds.
        noise = ((next(self.calls) * 7919) % 101 - 50) / 50
        tiles = -(-self.problem["m"] // self.script.rows[name]) if name in self.script.rows else 1
        return self.script.seconds[name] * tiles * (1 + self.script.noise * noise)

    def recheck(self, name: str) -> str:
        return self.act("recheck", name)

    def others(self) -> int:
        if ("others", "") in self.script.does:
            self.act("others", "")
        return self.script.others

    def usable(self) -> bool:
        return self.works

    def act(self, operation: str, name: str) -> str:
        self.note(f"{operation} {name}")
        deed = self.script.does.get((operation, name), "")
        if deed == "crash":
            os.abort()
        if deed == "exit":
            print("CUDA error: an illegal memory access was encountered", flush=True)
            os._exit(3)
        if deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if deed == "hang":
            time.sleep(600)
        if deed in ("raise", "fault"):
            self.works = deed == "raise"
            raise RuntimeError(f"{deed} of {name}")
        return "3 of 100 elements are wrong" if deed == "wrong" else ""

    def note(self, text: str) -> None:
        with open(self.script.log, "a", encoding="utf-8") as stream:
            stream.write(text + "\n")


class ScriptedMeasuring:
    """Candidates of a package whose times are a function of their tilings. built: tilings by instance, as compiled.

    breaks: (tiling) -> why it does not compile, or ""; "killed", "starved": its compiler was. factor: of the
    time, by name. rows: of m that the time is of, by tiling; None: of all there are.
    """

    def __init__(
        self,
        log: Path,
        seconds: Callable[[Any], float],
        device: str = "Scripted GPU",
        software: str = "driver 1.0",
        **script: Any,
    ) -> None:
        self.log, self.seconds, self.device, self.software, self.script = log, seconds, device, software, script
        self.breaks: Callable[[Any], str] = lambda tiling: ""
        self.factor: Callable[[str], float] = lambda name: 1.0
        self.rows: Callable[[Any], int | None] = lambda tiling: None
        self.built: list[str] = []

    def identify(self, arch: str) -> tuple[str, str]:
        return self.device, self.software

    def station(self, package: Path) -> Station:
        return Station(FACTORY, (self.make_script(package),)) if package.exists() else LateStation(self, package)

    def make_script(self, package: Path) -> Script:
        plan = load_subject(package).plan
        assert plan
        seconds = {name: self.seconds(tiling) * self.factor(name) for name, tiling in plan.tilings.items()}
        rows = {name: count for name, tiling in plan.tilings.items() if (count := self.rows(tiling))}
        return Script(self.log, {"cuBLAS": 9e-6, **seconds}, rows, **{"device": self.device, **self.script})

    def build(self, kernels: Sequence[Any], *, workers: int | None = None, on_progress: Any = None) -> Any:
        """In place of build_kernels."""
        (resolved,) = kernels
        self.built = [t.name for t in resolved.tilings]
        on_progress(len(self.built), len(self.built))
        for t in resolved.tilings:
            yield self.report(t)

    def report(self, tiling: Any) -> Any:
        """What building one gives."""
        reason = self.breaks(tiling.numbers)
        outcome = SimpleNamespace(error=reason, killed=reason == "killed", starved=reason == "starved")
        return SimpleNamespace(ok=not reason, tiling=tiling.name, checks=(), outcome=outcome)

    def stream(self, workers: int, on_built: Callable[[Any], None]) -> ScriptedStream:
        """In place of KernelStream."""
        self.built = []
        return ScriptedStream(self, on_built)


class LateStation(Station):
    """Of a package that is not there yet."""

    def __init__(self, measuring: ScriptedMeasuring, package: Path) -> None:
        super().__init__(FACTORY, ())
        self.measuring, self.package = measuring, package

    def begin(self) -> None:
        if self.package.exists():
            self.arguments = (self.measuring.make_script(self.package),)
            super().begin()


class ScriptedStream:
    """Builds one kernel whenever it is asked for news."""

    def __init__(self, measuring: ScriptedMeasuring, on_built: Callable[[Any], None]) -> None:
        self.measuring, self.on_built = measuring, on_built
        self.order: list[str] = []
        self.tilings: dict[str, Any] = {}

    @property
    def working(self) -> bool:
        return bool(self.order)

    def prepare(self) -> None: ...

    def open(self, resolved: Any, rendered: Any, root: Path) -> None:
        self.tilings = {t.name: t for t in resolved.tilings}

    def request(self, names: Sequence[str]) -> None:
        self.order = [n for n in dict.fromkeys(names) if n in self.tilings]

    def poll(self) -> None:
        if self.order:
            tiling = self.tilings.pop(self.order.pop(0))
            self.measuring.built.append(tiling.name)
            self.on_built(self.measuring.report(tiling))

    def wait(self, seconds: float) -> None:
        self.poll()

    def end(self) -> None: ...
