"""How far work that takes seconds has come, for whoever listens: the command line does, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Listener: TypeAlias = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Within the block, `listener(what, done, total)` is called as work goes on; done is total when it has ended."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_progress(what: str, done: int, total: int) -> None:
    """Tell the listener, if there is one."""
    if listener := _listener.get():
        listener(what, done, total)
