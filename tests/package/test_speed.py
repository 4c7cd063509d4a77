"""How long rendering takes. Figures are printed (`pytest -rP`); bounds leave room for slow machines.

Processor time is held against the bounds, because other work on the machine is no fault of ours.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from spec_variety import varied_spec

ROOT = Path(__file__).parents[2]
COLD_SECONDS, MANY_SECONDS = 0.6, 8.0  # on an idle machine of 2026: 0.25 and 1.5
RENDER = "import sys; from cutegen.cli import main; raise SystemExit(main(['render', *sys.argv[1:]]))"
MANY = """\
import sys, time
from spec_variety import varied_spec
start = time.process_time()
from cutegen.render import render_package
from cutegen.resolve import resolve_document
from cutegen.spec import load_text
for number in range(200):
    package = render_package(resolve_document(load_text(varied_spec(number), f"kernel_{number}"), None).resolved)
    assert len(package.files) == 4
print(time.process_time() - start)
"""


def test_cold_render(tmp_path: Path) -> None:
    spec = ROOT / "specs" / "gemm_bf16_sm90a.yaml"
    command = [sys.executable, "-c", RENDER, str(spec), "--locked", "-o"]
    wall, processor = [], []
    for number in range(11):
        before, start = sum(os.times()[2:4]), time.perf_counter()
        subprocess.run([*command, str(tmp_path / f"out{number}")], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        wall.append(time.perf_counter() - start)
        processor.append(sum(os.times()[2:4]) - before)
    cold = statistics.median(processor[1:])
    print(f"cold render: {statistics.median(wall[1:]):.3f} s, of them {cold:.3f} s processor time (median of 10)")
    assert (tmp_path / "out0" / "gemm_bf16_sm90a" / "kernel.py").is_file()
    assert cold < COLD_SECONDS


def test_many_specs_in_one_process() -> None:
    assert len({varied_spec(number) for number in range(200)}) == 200
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    run = subprocess.run(
        [sys.executable, "-c", MANY], check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    print(f"200 specs: {float(run.stdout):.2f} s processor time")
    assert float(run.stdout) < MANY_SECONDS
