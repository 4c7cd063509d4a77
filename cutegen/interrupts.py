"""Ctrl-C, wherever it lands: libraries wrap it in exceptions of their own, and Python drops it in destructors.

Imports nothing that takes time: until `cutegen.__main__.start` runs, an interrupt ends in a traceback.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

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


def ignore_interrupts() -> None:
    """From here on, as the process is about to end."""
    import signal  # late: it takes time

    signal.signal(signal.SIGINT, signal.SIG_IGN)


class CountDropped:
    """A context, in which interrupts that Python would report and forget are counted instead. count: those that landed
    where it cannot raise them, as in a destructor. came: whether there was any, which compiled code may have turned
    into an exception of its own."""

    count, came = 0, False

    def __enter__(self) -> CountDropped:
        import signal  # late, as above
        import threading

        self.before, self.handler = sys.unraisablehook, signal.getsignal(signal.SIGINT)
        sys.unraisablehook = self._take
        if self.handler is signal.default_int_handler and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        import signal

        sys.unraisablehook = self.before
        if signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: object) -> None:
        self.came = True
        raise KeyboardInterrupt

    def _take(self, unraisable: sys.UnraisableHookArgs) -> None:
        if is_interrupt(unraisable.exc_value):
            self.count += 1
        else:
            self.before(unraisable)
