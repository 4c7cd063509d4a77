"""Whether code takes too long, on any machine.

Seconds of processor time differ by a factor of four between machines and what else they run. So code that takes more
of them than it may is run again, and judged by the functions that it calls: as many on every machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENDLESS_S = 120  # of processor time; what takes longer is taken for endless
COUNT = """\
import cProfile, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({endless}, {endless}))
code, text, profile = compile(sys.argv[1], "code", "exec"), sys.stdin.read(), cProfile.Profile()
try:
    profile.runctx(code, {{"text": text}}, {{}})
except SystemExit:
    pass
print("", sum(entry.callcount for entry in profile.getstats()))
"""
RESOLVE = """\
from cutegen.diagnostics import CutegenError
from cutegen.render import render_package
from cutegen.resolve import resolve_document
from cutegen.spec import load_text
try:
    render_package(resolve_document(load_text(text, "large"), None).resolved)
except CutegenError:
    pass
"""


def calls(code: str, text: str) -> int | None:
    """How many functions the code calls in a process of its own, with the text as `text`; None if it never ends."""
    run = subprocess.run(
        [sys.executable, "-c", COUNT.format(endless=ENDLESS_S), code], input=text, cwd=ROOT,
        env={**os.environ, "CUTEGEN_CACHE": "0"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    return int(run.stdout.split()[-1]) if run.returncode == 0 else None


def too_long(seconds: float, bound: float, code: str, text: str, most: int) -> str:
    """What is said of code that took so many seconds of processor time, or "".

    Within `bound` seconds nothing is said, nor when it calls at most `most` functions.
    """
    if seconds <= bound:
        return ""
    found = calls(code, text)
    if found is not None and found <= most:
        return ""
    said = "never ends" if found is None else f"calls {found:,} functions, more than {most:,}"
    return f"takes {seconds:.1f} s of processor time and {said}"
