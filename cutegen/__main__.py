"""`cutegen`, and `python -m cutegen`."""

import os
import sys

from cutegen.interrupts import EXIT_CODE, ignore_interrupts, is_interrupt


def start() -> int:
    """Runs the command of this process. An interrupt while the command line is imported is one, too, and one that
    comes when all is done changes nothing. A stream that takes no more text ends it without a word."""
    try:
        from cutegen.cli import main

        code = main()
        ignore_interrupts()
        return code
    except BaseException as error:
        if is_interrupt(error):
            ignore_interrupts()
            _say_interrupted()
            return EXIT_CODE
        if isinstance(error, OSError) and not _wants_traceback():
            _drop_unwritten()
            return 1 if isinstance(error, BrokenPipeError) else 2
        raise


def _wants_traceback() -> bool:
    from cutegen.defaults import TRACEBACK

    return os.environ.get(TRACEBACK) == "1"


def _say_interrupted() -> None:
    try:
        if sys.stderr is not None:
            os.write(sys.stderr.fileno(), b"interrupted\n")
    except OSError:
        _drop_unwritten()


def _drop_unwritten() -> None:
    """Text that no stream took: Python would try once more at its end, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    raise SystemExit(start())
