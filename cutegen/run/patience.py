"""How long a baseline may take to get ready: other libraries compile and tune at their first call."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# A library that catches whatever is raised in it hears from the clock again after as long.
AGAIN = 5.0


class TimeUp(BaseException):
    """A baseline was not ready in time. No Exception: a library that tries several ways would go on to the next."""


class Patience:
    """The seconds that each baseline may spend on one problem, and those that were left out for it.

    late: what was not ready in time, with the reason; it is not tried on further problems.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.late = seconds, dict[str, str]()
        self._spent: dict[str, float] = {}

    def begin_problem(self) -> None:
        self._spent.clear()

    @contextmanager
    def spend(self, name: str) -> Iterator[None]:
        """Raises TimeUp in the block, or at its end, once `name` has spent its time, and remembers that.

        Python code and waits for other processes are interrupted; a call into compiled code comes to its end first. So
        does everything outside of the main thread.
        """
        begin = time.monotonic()
        try:
            with _alarm(self.seconds - self._spent.get(name, 0.0)):
                yield
        except Exception as error:  # cleaning up after an interruption may fail in its own way
            if self._count(name, begin):
                raise TimeUp(self.late[name]) from error
            raise
        except TimeUp:
            self._count(name, begin)
            raise TimeUp(self.late[name]) from None
        if self._count(name, begin):
            raise TimeUp(self.late[name])

    def _count(self, name: str, begin: float) -> bool:
        """Whether the time of `name` is over, what it took since `begin` included."""
        self._spent[name] = self._spent.get(name, 0.0) + time.monotonic() - begin
        if over := self._spent[name] >= self.seconds:
            self.late[name] = f"not ready within {self.seconds:g} s (--patience)"
        return over


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raises TimeUp in the block after that time, where the main thread runs it."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
