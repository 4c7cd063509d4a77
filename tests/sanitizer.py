"""`python -m tests.sanitizer -o results.json [--jobs 8] [NAME ...]`: shipped kernels under NVIDIA's compute-sanitizer.

Of each package one tiling of each kernel module runs under each tool on a few small problems, and its results are
compared with the reference. Needs a GPU, compute-sanitizer and, for sanitizer_patterns.cu, nvcc. The
result holds what each tool said, by kernel and instruction.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cutegen.run.sanitizer import TOOLS, read_log, sanitize

ROOT = Path(__file__).parents[1]
PATTERNS = Path(__file__).with_name("sanitizer_patterns.cu")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sanitizer", description=__doc__)
    parser.add_argument("names", nargs="*", help="packages of generated/ (default: all)")
    parser.add_argument("-o", "--output", type=Path, help="what it holds already is not run again")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="default: all four")
    parser.add_argument("--jobs", type=int, default=8, help="processes at once (default 8)")
    options = parser.parse_args()
    names = options.names or sorted(path.parent.name for path in (ROOT / "generated").glob("*/plan.py"))
    found: list[dict[str, Any]] = []
    work = [(tool, name) for name in names for tool in options.tool or TOOLS]
    if options.output and options.output.exists():
        found += [row for row in json.loads(options.output.read_text())["packages"] if not row["ended"]]
    held = {(row["tool"], row["package"]) for row in found}
    gpu = gpu_name()
    result = {"sanitizer": version(), "patterns": {"gpu": gpu, **run_patterns()}, "packages": found}
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(sanitize_package, tool, name) for tool, name in work if (tool, name) not in held]
        for job in as_completed(jobs):
            row = {"gpu": gpu, **job.result()}
            found.append(row)
            print(f"{row['tool']:9} {row['package']:50} {row['cases']:2} cases, {row['wrong']} wrong: {row['summary']}")
            if options.output:  # each time, so that a run that is stopped leaves what it has
                options.output.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row["wrong"] or row["ended"] or row["said"] for row in found))


def sanitize_package(tool: str, name: str) -> dict[str, Any]:
    report = sanitize(tool, ROOT / "generated" / name, name)
    row = asdict(report)
    return {**row, "package": name, "summary": "; ".join(filter(None, (report.summary, report.ended)))}


def run_patterns() -> dict[str, Any]:
    """What synccheck and racecheck say of kernels that are right by the PTX ISA, by pattern and tool."""
    if not shutil.which("nvcc"):
        return {"not run": "no nvcc"}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "patterns")
        subprocess.run(["nvcc", "-arch=sm_90a", "-o", program, str(PATTERNS)], check=True, capture_output=True)
        for name in re.findall(r"__global__ void (\w+)", PATTERNS.read_text()):
            right = subprocess.run([program, name], timeout=60).returncode == 0
            found[name] = {"right without a tool": right}
            for tool in ("synccheck", "racecheck"):
                command = ["compute-sanitizer", "--tool", tool, "--print-limit", "200", program, name]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                said, summary = read_log(done.stdout)
                found[name][tool] = {"summary": summary, "said": [asdict(s) for s in said]}
    return found


def gpu_name() -> str:
    import torch

    return torch.cuda.get_device_name()


def version() -> str:
    lines = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True).stdout.splitlines()
    return next((line for line in lines if "ersion" in line), "unknown")


if __name__ == "__main__":
    raise SystemExit(main())
