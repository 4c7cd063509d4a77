"""A command in this process, in a checkout of its own: what it says, and what is wrong with what it says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from cutegen.cli import main
from cutegen.distributions import NO_OPS
from cutegen.roots import ROOTS

SECRET = "hunter2"  # what lies outside of a checkout, and never shows
MOST_S = 20
_STYLE = re.compile(r"\x1b\[(?:0|1|4|3[0-7])m")


@contextlib.contextmanager
def inside(checkout: Path) -> Iterator[None]:
    """The checkout as working directory, its own cache, and no settings of whoever runs this."""
    before, variables = Path.cwd(), {**os.environ}
    os.environ["CUTEGEN_CACHE_DIR"] = str(checkout.parent / "cache")
    for name in (ROOTS, NO_OPS, "CUTEGEN_TRACEBACK"):
        os.environ.pop(name, None)
    os.chdir(checkout)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(variables)


def call(arguments: list[str]) -> tuple[int, str]:
    """Exit code and output of a command; 124 where it takes too long."""
    output = io.StringIO()

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_S)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main(arguments)
    except TimeoutError:
        code = 124
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return code, output.getvalue()


def fault(code: int, output: str, arguments: list[str]) -> str:
    """What is wrong with the end of a command, or ""."""
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if "internal error" in output or "Traceback" in output:
        return "an internal error"
    if SECRET in output:
        return "shows what lies outside of the checkout"
    shown = _STYLE.sub("", output)
    strange = [c for c in shown if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    if strange:
        return f"prints {strange[0]!r}"
    if "github" not in arguments and any(line.lstrip().startswith(("::", "##[")) for line in shown.splitlines()):
        return "prints a command for a workflow"
    return ""
