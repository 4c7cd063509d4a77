"""`cutegen`, and `python -m cutegen`."""

import os
import signal
import sys

from cutegen.interrupts import EXIT_CODE, is_interrupt


def start() -> int:
    """Runs the command of this process. An interrupt while the command line is imported is one, too, and one that
    comes when all is done changes nothing."""
    try:
        from cutegen.cli import main

        code = main()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return code
    except BaseException as error:
        if not is_interrupt(error):
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.stderr is not None:
            os.write(sys.stderr.fileno(), b"interrupted\n")
        return EXIT_CODE


if __name__ == "__main__":
    raise SystemExit(start())
