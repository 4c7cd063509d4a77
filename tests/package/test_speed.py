"""How long rendering takes. Figures are printed (`pytest -rP`).

Processor time is held against the bounds, because other work on the machine is no fault of ours; and in units of what
the libraries take to be imported there and then, because a slow machine is none either.
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
# Imports of the libraries. Measured: 2.6 alone and 3.7 next to other work, of a spec with seven modules; and 35.
COLD, MANY = 4.5, 45.0
LIBRARIES = "import click, jinja2, ruamel.yaml; from pydantic import BaseModel"
RENDER = "import sys; from cutegen.cli import main; raise SystemExit(main(['render', *sys.argv[1:]]))"
MANY_SPECS = """\
from spec_variety import varied_spec
from cutegen.render import render_package
from cutegen.resolve import resolve_document
from cutegen.spec import load_text
for number in range(200):
    package = render_package(resolve_document(load_text(varied_spec(number), f"kernel_{number}"), None).resolved)
    assert len(package.files) == 4
"""


def processor_seconds(*command: str, **environment: str) -> float:
    before = sum(os.times()[2:4])
    run = [sys.executable, "-c", *command]
    subprocess.run(run, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    return sum(os.times()[2:4]) - before


def test_cold_render(tmp_path: Path) -> None:
    spec = ROOT / "specs" / "gemm_bf16_sm90a.yaml"
    wall, cold, libraries = [], [], []
    for number in range(7):
        start = time.perf_counter()
        command = [RENDER, str(spec), "--locked", "-o", str(tmp_path / f"out{number}")]
        cold.append(processor_seconds(*command, CUTEGEN_CACHE_DIR=str(tmp_path / "cache")))
        wall.append(time.perf_counter() - start)
        libraries.append(processor_seconds(LIBRARIES))
    # The first one compiles Python's modules and Jinja's templates.
    seconds, unit = statistics.median(cold[1:]), statistics.median(libraries[1:])
    print(f"cold render: {statistics.median(wall[1:]):.3f} s, of them {seconds:.3f} s processor time (median of 6)")
    print(f"imports of the libraries: {unit:.3f} s")
    assert (tmp_path / "out0" / "gemm_bf16_sm90a" / "kernel.py").is_file()
    assert seconds < COLD * unit


def test_many_specs_in_one_process() -> None:
    assert len({varied_spec(number) for number in range(200)}) == 200
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parents[1])])
    unit = statistics.median(processor_seconds(LIBRARIES) for _ in range(5))
    seconds = processor_seconds(MANY_SPECS, PYTHONPATH=path)
    print(f"200 specs: {seconds:.2f} s processor time; imports of the libraries: {unit:.3f} s")
    assert seconds < MANY * unit
