"""Where candidates are measured: what a backend does, the process that runs one, and the parent's end of it.

One message is one operation on one candidate, so whoever is in the message is to blame when the process dies or does
not answer. Then the process is replaced; the other candidates go on in the next one.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from cutegen.child import Child
from cutegen.diagnostics import CutegenError, describe_error
from cutegen.run.shapes import Shape
from cutegen.tune.store import FaultKind

# Imports, the device's context, inputs and their reference; a kernel from the disk cache and its check; a slice.
START_SECONDS, ADMIT_SECONDS, SAMPLE_SECONDS = 300.0, 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Setup:
    """The device as the driver names it, and how many other processes use it."""

    device: str
    others: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A problem that is ready. baseline: its name ("": there is none, for `reason`) and what it computes.

    flops, moved: floating-point operations and bytes of one launch; 0 where unknown. admitted: candidates that are
    ready already, where the problem was open before.
    """

    baseline: str
    does: str
    reason: str
    flops: int
    moved: int
    admitted: tuple[str, ...] = ()


class Backend(Protocol):
    """What runs in the measuring process. Constructed with the arguments that the parent gives.

    What it raises is the candidate's fault, and the next operation may follow.
    """

    def setup(self) -> Setup: ...

    def open(self, problem: Shape, default: str, keep: bool) -> Opened:
        """Makes inputs and binds the baseline, under the name that it returns. keep: problems that were opened before
        stay open as far as memory allows, and to open one of those again takes no time; else they are let go."""
        ...

    def admit(self, name: str) -> str:
        """Loads a candidate, checks its results and makes it ready to be timed; why its results are wrong, or ""."""
        ...

    def sample(self, name: str, seconds: float) -> float:
        """Seconds per launch, over about `seconds`."""
        ...

    def recheck(self, name: str) -> str:
        """As `admit`, of results that a timed launch leaves."""
        ...

    def others(self) -> int:
        """Other processes that use the device now."""
        ...

    def usable(self) -> bool:
        """False after a fault that only a new process mends."""
        ...


class CandidateFault(Exception):
    """What one candidate did. lost: the process is gone."""

    def __init__(self, kind: FaultKind, reason: str, lost: bool) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.lost = kind, reason, lost


class Station:
    """The measuring process, started when it is needed. factory: "module:class" of a Backend, with its arguments."""

    def __init__(self, factory: str, arguments: Sequence[Any]) -> None:
        self.factory, self.arguments = factory, tuple(arguments)
        self.setup: Setup | None = None
        self._child: Child | None = None
        self._starting = False  # asked to start, and not yet waited for

    @property
    def alive(self) -> bool:
        return self._child is not None and not self._starting

    def begin(self) -> None:
        """Starts the process, and does not wait for it; `start` does."""
        self._child, self._starting = Child("cutegen.tune.measuring_process"), True
        self._child.send(("setup", (self.factory, self.arguments)), START_SECONDS)

    def start(self) -> Setup:
        """CutegenError (exit 2): the backend does not start here."""
        if not self._starting:
            self.begin()
        self._starting = False
        try:
            self.setup = self._answer(START_SECONDS)
        except CandidateFault as fault:
            raise CutegenError(f"the measuring process does not start: {fault.reason}", exit_code=2) from None
        assert self.setup is not None
        return self.setup

    def open(self, problem: Shape, default: str, keep: bool = False) -> Opened:
        opened: Opened = self._ask(START_SECONDS, "open", problem, default, keep)
        return opened

    def admit(self, name: str) -> str:
        return str(self._ask(ADMIT_SECONDS, "admit", name))

    def sample(self, name: str, seconds: float) -> float:
        return float(self._ask(SAMPLE_SECONDS + seconds, "sample", name, seconds))

    def recheck(self, name: str) -> str:
        return str(self._ask(ADMIT_SECONDS, "recheck", name))

    def others(self) -> int:
        return int(self._ask(ADMIT_SECONDS, "others"))

    def end(self) -> None:
        if self._child:
            self._child.end()
        self._child, self._starting = None, False

    def _ask(self, timeout_s: float, operation: str, *arguments: Any) -> Any:
        """The answer. CandidateFault: it raised, or the process is gone."""
        assert self._child, "started"
        self._child.send((operation, arguments), timeout_s)
        return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> Any:
        assert self._child, "started"
        child = self._child
        try:
            if not child.wait():
                self.end()
                raise CandidateFault("hung", f"no answer within {timeout_s:g} s", lost=True)
            answer, fault, usable = child.receive()
        except EOFError:
            reason, log = child.died(), child.tail()
            kind: FaultKind = "killed" if child.was_killed() else "crashed"
            self.end()
            last = f": {log.splitlines()[-1]}" if log else ""
            raise CandidateFault(kind, f"the process ended ({reason}){last}", lost=True) from None
        except KeyboardInterrupt:
            self.end()
            raise
        if fault and not usable:
            self.end()
        if fault:
            raise CandidateFault("failed" if usable else "crashed", fault, lost=not usable)
        return answer


class Measuring(Protocol):
    """Where kernels are timed."""

    def identify(self, arch: str) -> tuple[str, str]:
        """(device, what software is around kernels). CutegenError (exit 2): kernels for the arch do not run here."""
        ...

    def station(self, package: Path) -> Station:
        """For the kernels of the generated package in a folder."""
        ...


def main(handle: int) -> None:
    """Serves operations on an inherited pipe until the other end closes it. Each answer: (result, fault, usable)."""
    warnings.simplefilter("ignore")
    connection = Connection(handle)
    backend: Any = None
    while True:
        try:
            operation, arguments = connection.recv()
        except EOFError:
            return
        try:
            if operation == "setup":
                module, _, name = arguments[0].partition(":")
                backend = getattr(importlib.import_module(module), name)(*arguments[1])
                arguments = ()
            connection.send((getattr(backend, operation)(*arguments), "", True))
        except Exception as error:
            connection.send((None, describe_error(error), backend is not None and backend.usable()))
