"""`python -m tests.sanitizer -o results.json [--jobs 8] [NAME ...]`: shipped kernels under NVIDIA's compute-sanitizer.

Of each package one tiling of each kernel module runs under each tool on a few small problems, and its results are
compared with the reference. Needs a GPU, compute-sanitizer and, for sanitizer_patterns.cu, nvcc. The
result holds what each tool said, by kernel and instruction.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cutegen.build.cubin import read_cubin
from cutegen.runtime.cache import default_root

ROOT = Path(__file__).parents[1]
# Kernels of cutegen alone, but for initcheck, which has to see who writes what they read.
OURS = ("--kernel-name", "kernel_substring=_sm90a_")
TOOLS = {
    "memcheck": OURS,
    "racecheck": (*OURS, "--racecheck-report", "analysis"),
    "synccheck": OURS,
    "initcheck": (),
}
PRODUCTS = ("below a tile", "ragged", "around the ring")
ATTENTION = ("edges of blocks", "most rows", "requests in parts, most heads", "pages of a pool of layers")
JOB_SECONDS = 240
PATTERNS = Path(__file__).with_name("sanitizer_patterns.cu")
STARTS = ("Invalid", "Uninitialized", "Barrier error", "Error: ", "Warning: ", "Program hit", "Missing", "Out-of-")
HEADLINE = re.compile(rf"^========= ((?:{'|'.join(STARTS)}).*)")
PLACE = re.compile(r"^=========.*? at (\w[^()+]*)[^+]*\+(0x[0-9a-f]+)")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY: (.*)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sanitizer", description=__doc__)
    parser.add_argument("names", nargs="*", help="packages of generated/ (default: all)")
    parser.add_argument("-o", "--output", type=Path, help="what it holds already is not run again")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="default: all four")
    parser.add_argument("--jobs", type=int, default=8, help="processes at once (default 8)")
    parser.add_argument("--run", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--few", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--skip", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        for line in run_package(options.run, options.few, options.skip.split(",")):
            print(json.dumps(line), flush=True)
        return 0
    names = options.names or sorted(path.parent.name for path in (ROOT / "generated").glob("*/plan.py"))
    found: list[dict[str, Any]] = []
    work = [(tool, name) for name in names for tool in options.tool or TOOLS]
    if options.output and options.output.exists():
        found += [row for row in json.loads(options.output.read_text())["packages"] if not row["ended"]]
    held = {(row["tool"], row["package"]) for row in found}
    gpu = gpu_name()
    result = {"sanitizer": version(), "patterns": {"gpu": gpu, **run_patterns()}, "packages": found}
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(sanitize, tool, name) for tool, name in work if (tool, name) not in held]
        for job in as_completed(jobs):
            row = {"gpu": gpu, **job.result()}
            found.append(row)
            print(f"{row['tool']:9} {row['package']:50} {row['cases']:2} cases, {row['wrong']} wrong: {row['summary']}")
            if options.output:  # each time, so that a run that is stopped leaves what it has
                options.output.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row["wrong"] or row["ended"] or row["said"] for row in found))


def run_package(name: str, few: bool, skip: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A line ahead of each case, and one after it: launched once on fresh memory, and how many elements of each output
    are wrong.

    few: the first of the problems, as initcheck takes a hundred times as long. skip: tilings that do not run."""
    from cutegen.run.case_list import list_cases
    from cutegen.run.judge import judge, reference_outputs
    from cutegen.run.subject import load_subject

    subject = load_subject(ROOT / "generated" / name)
    plan = subject.plan
    assert plan
    modules = getattr(import_module(type(plan).__module__), "MODULES", {})
    first: dict[str, str] = {}
    for key in plan.tilings:
        first.setdefault(modules.get(key, key), key)
    wanted = ATTENTION if plan.family == "mla_decode" else PRODUCTS
    cases = [case for case in list_cases(subject) if case.mode == "numerics" and case.tiling in first.values()]
    present = {case.name for case in cases}
    wanted = tuple(name for name in wanted if name in present)[: 1 if few else None]
    for case in cases:
        if case.name not in wanted or case.tiling in skip:
            continue
        yield {"kernel": case.tiling}
        inputs = subject.inputs(case.shape, case.draw)
        outputs = plan.allocate_outputs(*inputs)
        for output in outputs:  # initcheck does not see what TMA stores, and would name all who read it
            output.fill_(0)
        scratch = plan.allocate_scratch(*inputs, key=case.tiling)
        expected = reference_outputs(subject, inputs)  # before the launch, which may write to an input
        plan.make_launch(case.tiling)(*inputs, *outputs, *scratch)
        wrong = [
            judge(i, output, reference, inputs, subject, dict(case.shape))[1].mismatches
            for i, (output, reference) in enumerate(zip(plan.order_results(inputs, outputs), expected))
        ]
        yield {"kernel": case.tiling, "case": case.name, "shape": dict(case.shape), "wrong": wrong}


def sanitize(tool: str, name: str) -> dict[str, Any]:
    """What the tool says of a package. It ends a kernel in which it finds an error, and the process with it: what is
    left runs in another."""
    begun: list[str] = []
    cases: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    ended, summaries = "", []
    while True:
        lines, log, ended = run_under(tool, name, begun)
        if begun and not lines:  # all have run, so nothing was launched
            ended = ""
            break
        found, summary = read_log(log)
        said += found
        summaries.append(summary)
        cases += [line for line in lines if "wrong" in line]
        started = [line["kernel"] for line in lines if line["kernel"] not in begun]
        begun += dict.fromkeys(started)
        if not (ended and started and found):
            break
    return {
        "tool": tool,
        "package": name,
        "kernels": begun,
        "cases": len(cases),
        "wrong": sum(1 for case in cases if any(case["wrong"])),
        "ended": ended,
        "summary": "; ".join(filter(None, (*summaries, ended))),
        "said": said,
    }


def run_under(tool: str, name: str, skip: Sequence[str]) -> tuple[list[dict[str, Any]], str, str]:
    """The lines of run_package in a process of its own under the tool, the tool's log, and how the process failed."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = ["compute-sanitizer", "--tool", tool, *TOOLS[tool], "--print-limit", "200", "--log-file", str(log)]
        command += [sys.executable, "-m", "tests.sanitizer", "--run", name, "--skip", ",".join(skip)]
        command += ["--few"] if tool == "initcheck" else []
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        ended = ""
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=JOB_SECONDS
            )
            out = done.stdout
            if done.returncode:
                last = next(iter(done.stderr.strip().splitlines()[-1:]), "")
                ended = f"exit {done.returncode}: {last}"
        except subprocess.TimeoutExpired as error:
            out = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
            ended = f"stopped after {JOB_SECONDS} s"
        text = log.read_text(errors="replace") if log.exists() else ""
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], text, ended


def read_log(text: str) -> tuple[list[dict[str, Any]], str]:
    """What the tool said, each with the kernels and instructions (bytes from the kernel's first) that it named, and how
    often; and its summary."""
    counts: Counter[tuple[str, str]] = Counter()
    what, places, summary = "", [], ""
    for line in (*text.splitlines(), "========= ERROR SUMMARY:"):
        headline, place, total = HEADLINE.match(line), PLACE.match(line), SUMMARY.match(line)
        if (headline or total) and what:
            counts[(what, " and ".join(places))] += 1
            what, places = "", []
        if headline:
            what = headline[1].split(" at ")[0]
        if place and what:
            places.append(name_instruction(place[1].strip(), int(place[2], 16)))
        elif total and total[1]:
            summary = total[1]
    return [{"what": w, "at": p, "times": n} for (w, p), n in counts.most_common()], summary


def name_instruction(kernel: str, offset: int) -> str:
    """`kernel+0xb0`, and the instruction there where the kernel is one of the cache."""
    return f"{kernel}+{offset:#x} {instructions(kernel).get(offset, '')}".strip()


@cache
def instructions(kernel: str) -> dict[int, str]:
    """The SASS of a kernel of the cache by offset; {}: it is none, or there is no nvdisasm."""
    root = default_root()
    for path in root.glob("kernels/*/kernel.cubin") if root and shutil.which("nvdisasm") else ():
        if any(found.name == kernel for found in read_cubin(path.read_bytes())):
            text = subprocess.run(["nvdisasm", str(path)], capture_output=True, text=True).stdout
            return {int(at, 16): sass for at, sass in INSTRUCTION.findall(text)}
    return {}


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
                found[name][tool] = {"summary": summary, "said": said}
    return found


def gpu_name() -> str:
    import torch

    return torch.cuda.get_device_name()


def version() -> str:
    lines = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True).stdout.splitlines()
    return next((line for line in lines if "ersion" in line), "unknown")


if __name__ == "__main__":
    raise SystemExit(main())
