"""Ctrl-C, wherever it lands: libraries wrap it in exceptions of their own, and Python drops it in destructors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

EXIT_CODE = 130  # 128 + SIGINT, as shells count


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an exception is an interrupt, or was raised because of one."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        found = pending.pop()
        if found is None or id(found) in seen:
            continue
        if isinstance(found, KeyboardInterrupt):
            return True
        seen.add(id(found))
        pending += [found.__cause__, found.__context__]
    return False


class Dropped:
    """count: interrupts that landed where Python cannot raise them, as in a destructor."""

    count = 0


@contextlib.contextmanager
def count_dropped() -> Iterator[Dropped]:
    """Interrupts that Python would report and forget are counted instead."""
    dropped, before = Dropped(), sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if is_interrupt(unraisable.exc_value):
            dropped.count += 1
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield dropped
    finally:
        sys.unraisablehook = before
