"""A child process that answers messages on a pipe: what it prints, when it is overdue, and how it died, in words.

A plain child process and not multiprocessing's, because those import the caller's main module again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

LOG_TAIL = 2000  # characters of output that are kept
ENDING_S = 5.0  # seconds from the end of a child's pipe to its own
STDERR = 2  # its descriptor: sys.stderr may be something else, or nothing


class Child:
    """One process that runs `main(handle)` of a module, `handle` being its end of the pipe.

    shown: what it prints goes to our stderr, and not to the log that `tail` reads; never to our stdout, where only
    results belong.
    """

    def __init__(self, module: str, *, shown: bool = False, settings: Mapping[str, str] | None = None) -> None:
        """settings: variables of its environment besides ours, for libraries that read them when they are loaded."""
        self.connection, theirs = multiprocessing.Pipe()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        output = STDERR if shown else self.log
        code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main({theirs.fileno()})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(settings or {})},
            start_new_session=True,  # Ctrl-C reaches the parent only, and it ends its children
        )
        theirs.close()
        self.deadline = 0.0
        self.log_start = 0
        self.lingered = False

    def send(self, message: object, timeout_s: float) -> None:
        """Hands over a message whose answer is due within `timeout_s` seconds."""
        self.deadline = time.monotonic() + timeout_s
        self.log_start = os.fstat(self.log.fileno()).st_size
        with contextlib.suppress(OSError):  # a child that is gone shows when it is asked for its answer
            self.connection.send(message)

    def receive(self) -> Any:
        """The next answer, waited for without end. EOFError: the process died."""
        try:
            return self.connection.recv()
        except OSError as error:
            raise EOFError from error

    def wait(self) -> bool:
        """Whether an answer, or the end of the process, comes before the deadline."""
        return bool(self.connection.poll(max(0.0, self.deadline - time.monotonic())))

    def died(self) -> str:
        """How the process ended: `SIGABRT`, or `exit code 3`. One that closed its pipe and lingers is killed."""
        try:
            code = self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.lingered = True
            self.process.kill()
            return "it closed its pipe and did not end"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def was_killed(self) -> bool:
        """Whether a process that ended was ended from outside: by the system, mostly, for want of memory."""
        return not self.lingered and self.process.wait() == -signal.SIGKILL

    def tail(self) -> str:
        """The end of what was printed since the last message; "" where that is shown."""
        self.log.seek(self.log_start)
        return self.log.read().decode(errors="replace")[-LOG_TAIL:].strip()

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()
        self.log.close()
