"""Commands that are killed anywhere: no torn file, and the next run is right."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gemm_specs import PLAIN

ROOT = Path(__file__).parents[2]
COMMANDS = (("render", "plain.yaml"), ("lock", "--upgrade", "plain.yaml"), ("render", "--standalone", "plain.yaml"))
LONGEST_S = 1.2  # a render takes half of it


def attack(count: int, seed: int) -> Iterator[str]:
    """A line for each kill after which something was torn, or the next run was not right."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(count):
            spec = PLAIN + f"pipeline: {{stages: {draw.choice((2, 3, 4))}}}\n"
            (folder / "plain.yaml").write_text(spec)
            command = draw.choice(COMMANDS)
            process = _start(folder, *command)
            time.sleep(draw.uniform(0.0, LONGEST_S))
            process.send_signal(draw.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT)))
            _, err = process.communicate(timeout=60)
            said = f"said {err}" if process.returncode not in (0, 130, -signal.SIGKILL, -signal.SIGINT) else ""
            again = _start(folder, *command)
            _, err = again.communicate(timeout=60)
            said = said or (f"then {command} failed: {err}" if again.returncode else "")
            check = _start(folder, *(("lock", "--check", "plain.yaml") if command[0] == "lock" else command))
            _, err = check.communicate(timeout=60)
            if said or check.returncode:
                yield f"{number}: {command}: {said or err}"


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUTEGEN_CACHE_DIR": str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", "cutegen", *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
