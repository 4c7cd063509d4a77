"""Progress of long work on a terminal, and silence elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def show_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function (done, total) that draws a bar on stderr until the block ends; it does nothing off a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with _bar() as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextlib.contextmanager
def show_stages() -> Iterator[Callable[[str, int, int], None]]:
    """A function (what, done, total) that draws one bar after the other, a new one for each `what`."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    with _bar() as progress:
        current: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in current:
                for task in current.values():
                    progress.remove_task(task)
                current.clear()
                current[what] = progress.add_task(what, total=None)
            progress.update(current[what], completed=done, total=total or None)

        yield show


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
