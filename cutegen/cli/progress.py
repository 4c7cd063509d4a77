"""Progress of long work on a terminal, and silence elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cutegen.progress import listen

MOST_NAMES = 2  # of what is under way, next to a bar


class Bar:
    """One bar. `progress(done, total)` draws it; `name` says what is under way. Off a terminal nothing happens."""

    def __init__(self, what: str, drawn: Any = None) -> None:
        self.what, self.drawn = what, drawn
        self.task = drawn.add_task(what, total=None) if drawn else None

    def progress(self, done: int, total: int) -> None:
        if self.drawn:
            self.drawn.update(self.task, completed=done, total=total)

    def name(self, names: Sequence[str]) -> None:
        if self.drawn:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            self.drawn.update(self.task, description=f"{self.what} {', '.join(names[:MOST_NAMES])}{more}".rstrip())


@contextlib.contextmanager
def show_bar(what: str) -> Iterator[Bar]:
    """A bar on stderr until the block ends."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Bar(what)
        return
    with _bar() as progress:
        yield Bar(what, progress)


@contextlib.contextmanager
def show_stages() -> Iterator[Callable[[str, int, int], None]]:
    """A function (what, done, total) that draws one bar for all of the work; `what` says what is being done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    with _bar() as progress:
        task = progress.add_task("", total=None)
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total or None)


@contextlib.contextmanager
def show_line() -> Iterator[None]:
    """What work of seconds reports, on one line of stderr that is overwritten and gone at the end. A bar would take
    longer to import than most of it takes."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    erase, drawn = "\r\x1b[K", False

    def draw(what: str, done: int, total: int) -> None:
        nonlocal drawn
        drawn = done < total
        sys.stderr.write(f"{erase}{what} {done + 1} of {total}" if drawn else erase)
        sys.stderr.flush()

    try:
        with listen(draw):
            yield
    finally:
        if drawn:  # it was left in the middle
            sys.stderr.write(erase)


def _bar() -> Any:
    """Progress on stderr, with the time that has passed and an estimate of what is left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
