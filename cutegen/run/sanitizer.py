"""`cutegen check --sanitize`: kernels under NVIDIA's compute-sanitizer, and what it says, by kernel and instruction."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cutegen.build.cubin import read_cubin
from cutegen.build.facts import disassemble, find_nvdisasm
from cutegen.diagnostics import CutegenError
from cutegen.run.nvidia_tools import find_program
from cutegen.runtime.cache import default_root
from cutegen.runtime.compile import CUBIN
from cutegen.runtime.temporary import temporary_folder

# What each tool gets besides the name of the kernels to look at. initcheck gets no name: it has to see who writes what
# they read.
TOOLS = {
    "memcheck": ("--report-api-errors", "no"),  # libraries ask drivers for functions that those may lack
    "racecheck": ("--racecheck-report", "analysis"),
    "synccheck": (),
    "initcheck": (),
}
JOB_SECONDS = 600  # of one process under a tool
# Problems of each tiling, spread over those that `check` runs; initcheck looks at every kernel, and takes longer.
MOST_CASES = {"initcheck": 1}
CASES = 4
MOST_FLOPS = 1e9  # of a problem: a tool takes a hundred times as long
STARTS = ("Invalid", "Uninitialized", "Barrier error", "Error: ", "Warning: ", "Program hit", "Missing", "Out-of-")
HEADLINE = re.compile(rf"^========= ((?:{'|'.join(STARTS)}).*)")
PLACE = re.compile(r"^=========.*? at (\w[^()+]*)[^+]*\+(0x[0-9a-f]+)")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY: (.*)")


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool said. at: the kernels and instructions that it named. times: how often."""

    what: str
    at: str
    times: int


@dataclass(frozen=True, slots=True)
class ToolReport:
    """One tool. kernels: tilings that ran. cases, wrong: how many, and how many had a wrong result. ended: why the
    process ended early, "" where it did not."""

    tool: str
    kernels: tuple[str, ...]
    cases: int
    wrong: int
    said: tuple[Said, ...]
    summary: str
    ended: str

    @property
    def ok(self) -> bool:
        return bool(self.cases) and not (self.wrong or self.said or self.ended)


@dataclass(frozen=True, slots=True)
class SanitizerReport:
    """All tools on one target. not_run: why nothing was run, "" when something was."""

    name: str
    path: Path
    tools: tuple[ToolReport, ...] = ()
    not_run: str = ""

    @property
    def ok(self) -> bool:
        return not self.not_run and all(t.ok for t in self.tools)

    @property
    def exit_code(self) -> int:
        """0: no tool found anything; 1: one did; 2: not run."""
        return 2 if self.not_run else int(not self.ok)

    @property
    def results(self) -> tuple[ToolReport, ...]:
        return self.tools

    def summary(self) -> str:
        if self.not_run:
            return f"not run: {self.not_run}"
        quiet = sum(t.ok for t in self.tools)
        return f"{quiet} of {len(self.tools)} tools of compute-sanitizer find nothing"

    def header(self) -> tuple[str, ...]:
        return ("tool", "kernels", "cases", "wrong", "found", "summary")

    def rows(self) -> Iterator[tuple[str, ...]]:
        for t in self.tools:
            found = sum(s.times for s in t.said)
            yield (t.tool, str(len(t.kernels)), str(t.cases), str(t.wrong), str(found), t.summary)

    def findings(self) -> Iterator[str]:
        for t in self.tools:
            for s in t.said:
                where = f"\n  at {s.at}".replace(" and ", "\n  and ") if s.at else ""
                yield f"{t.tool}: {s.what}, {s.times} time{'s' * (s.times != 1)}{where}"
            if t.ended:
                yield f"{t.tool}: the process ended: {t.ended}"
            elif not t.cases:
                yield f"{t.tool}: no case ran"

    def tolerances(self) -> tuple[str, ...]:
        return ()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": str(self.path),
            "ok": self.ok,
            "not_run": self.not_run or None,
            "summary": self.summary(),
            "tools": [{"ok": t.ok, **asdict(t)} for t in self.tools],
        }


def read_tools(text: str) -> tuple[str, ...]:
    """Names of tools, as `memcheck,racecheck`; `all` stands for each. CutegenError (exit 2): there is no such tool."""
    named = [name.strip() for name in text.split(",") if name.strip()]
    if named == ["all"]:
        return tuple(TOOLS)
    if unknown := [name for name in named if name not in TOOLS] or ([text] if not named else []):
        said = f"--sanitize: {unknown[0]!r} is not a tool of compute-sanitizer"
        raise CutegenError(said, f"name some of {', '.join(TOOLS)}, or all", exit_code=2)
    return tuple(dict.fromkeys(named))


def find_sanitizer() -> str:
    """The program; "" where there is none."""
    return find_program("compute-sanitizer")


def sanitize(tool: str, path: Path, name: str) -> ToolReport:
    """What a tool says of the generated package at `path`, whose kernels have names that begin with `name`. It ends a
    kernel in which it finds an error, and the process with it: what is left runs in another."""
    begun: list[str] = []
    cases: list[dict[str, Any]] = []
    said: list[Said] = []
    ended, summaries = "", []
    while True:
        lines, log, ended = _run_under(tool, path, name, begun)
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
    wrong = sum(1 for case in cases if any(case["wrong"]))
    summary = "; ".join(filter(None, summaries))
    return ToolReport(tool, tuple(begun), len(cases), wrong, tuple(said), summary, ended)


def _run_under(tool: str, path: Path, name: str, skip: Sequence[str]) -> tuple[list[dict[str, Any]], str, str]:
    """The lines of `run_package` in a process of its own under the tool, the tool's log, and how the process failed."""
    with temporary_folder() as folder:
        log = folder / "log"
        command = [find_sanitizer() or "compute-sanitizer", "--tool", tool, *TOOLS[tool]]
        if tool != "initcheck":
            command += ["--kernel-name", f"kernel_substring={name}"]
        command += ["--print-limit", "200", "--log-file", str(log), sys.executable, "-m", __name__, str(path)]
        command += [str(MOST_CASES.get(tool, CASES)), *skip]
        # Each tensor is an allocation of its own, so that an access beyond one is seen.
        environment = dict(os.environ, PYTORCH_NO_CUDA_MEMORY_CACHING="1", PYTHONPATH=os.pathsep.join(sys.path))
        ended = ""
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, errors="replace", timeout=JOB_SECONDS
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


def run_package(path: Path, most: int, skip: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A line before each case, and one after it: launched once on fresh memory, and how many elements of each output
    are wrong. Of each kernel module one tiling runs, on at most so many small problems. skip: tilings that do not."""
    from cutegen.run.case_list import list_cases
    from cutegen.run.output_check import judge, reference_outputs
    from cutegen.run.subject import load_subject

    subject = load_subject(path)
    plan = subject.plan
    assert plan
    modules = getattr(import_module(type(plan).__module__), "MODULES", {})
    first: dict[str, str] = {}
    for key in plan.tilings:
        first.setdefault(modules.get(key, key), key)
    listed = [case for case in list_cases(subject) if case.mode == "numerics" and case.tiling in first.values()]
    for tiling in first.values():
        cases = [case for case in listed if case.tiling == tiling and tiling not in skip]
        for case in pick_spread(cases, most):
            yield {"kernel": tiling}
            inputs = subject.inputs(case.shape, case.draw)
            if plan.count_work(plan.problem_dims(*inputs), inputs)[0] > MOST_FLOPS:
                continue
            outputs = plan.allocate_outputs(*inputs)
            for output in outputs:  # initcheck does not see what TMA stores, and would name all who read it
                output.fill_(0)
            scratch = plan.allocate_scratch(*inputs, key=tiling)
            expected = reference_outputs(subject, inputs)  # before the launch, which may write to an input
            plan.make_launch(tiling)(*plan.omit(tiling, inputs), *outputs, *scratch)
            wrong = [
                judge(i, output, reference, inputs, subject, dict(case.shape))[1].mismatches
                for i, (output, reference) in enumerate(zip(plan.order_results(inputs, outputs), expected))
            ]
            yield {"kernel": tiling, "case": case.name, "shape": dict(case.shape), "wrong": wrong}


def pick_spread(values: Sequence[Any], most: int) -> list[Any]:
    """At most so many, from the first on, at equal distances."""
    step = max(1, -(-len(values) // most))
    return list(values[::step])


def read_log(text: str) -> tuple[list[Said], str]:
    """What a tool said, each with the kernels and instructions (bytes from the kernel's first) that it named, and how
    often; and its summary."""
    counts: Counter[tuple[str, str]] = Counter()
    places: list[str] = []
    what, summary = "", ""
    for line in (*text.splitlines(), "========= ERROR SUMMARY: "):  # a process that died has left none
        headline, place, total = HEADLINE.match(line), PLACE.match(line), SUMMARY.match(line)
        if (headline or total) and what:
            counts[(what, " and ".join(places))] += 1
            what, places = "", []
        if headline:
            what = headline[1].split(" at ")[0]
        if place and what:
            places.append(_name_instruction(place[1].strip(), int(place[2], 16)))
        elif total and total[1]:
            summary = total[1]
    return [Said(w, p, n) for (w, p), n in counts.most_common()], summary


def _name_instruction(kernel: str, offset: int) -> str:
    """`kernel+0xb0`, and the instruction there where the kernel is one of the cache."""
    return f"{kernel}+{offset:#x} {_instructions(kernel).get(offset, '')}".strip()


@cache
def _instructions(kernel: str) -> dict[int, str]:
    """The SASS of a kernel of the cache by offset; {}: it is none, or there is no nvdisasm."""
    root = default_root()
    for path in root.glob(f"kernels/*/{CUBIN}") if root and find_nvdisasm() else ():
        data = path.read_bytes()
        try:
            if any(found.name == kernel for found in read_cubin(data)):
                return {int(at, 16): sass for at, sass in INSTRUCTION.findall(disassemble(data))}
        except ValueError:  # half written, or damaged
            continue
    return {}


if __name__ == "__main__":
    for row in run_package(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]):
        print(json.dumps(row), flush=True)
