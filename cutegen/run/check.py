"""`cutegen check`: proves a kernel on problems made to break it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutegen.defaults import CASE_SECONDS
from cutegen.run.attempts import ACCEPTABLE, Fault
from cutegen.run.case_list import Case
from cutegen.run.cases import CaseResult
from cutegen.run.output_check import OutputError
from cutegen.run.row import Row
from cutegen.run.shapes import Shape, shape_text
from cutegen.run.shrink import Shrunk
from cutegen.run.worker import OnCase, run_cases
from cutegen.runtime.accuracy import Tolerance

# Without a GPU: torch without CUDA says "Torch not compiled with CUDA enabled"; with CUDA but no driver, "Found no
# NVIDIA driver on your system"; with a driver, "No CUDA GPUs are available"; Triton, "0 active drivers ([])".
NO_GPU = re.compile(r"CUDA|NVIDIA driver|active drivers")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Every case and its result. not_run: why nothing was run, "" when something was. allowed: the tolerance, where one
    was given instead of that which follows from dtypes and problem."""

    name: str
    path: Path
    digest: str = ""
    environment: dict[str, Any] | None = None
    results: tuple[CaseResult, ...] = ()
    not_run: str = ""
    allowed: Tolerance | None = None
    shrunk: Shrunk | None = None

    @property
    def ok(self) -> bool:
        return not self.not_run and all(r.status in ACCEPTABLE for r in self.results)

    @property
    def exit_code(self) -> int:
        """0: every case passed; 1: one did not; 2: not run."""
        return 2 if self.not_run else int(not self.ok)

    def failures(self) -> Iterator[tuple[Case, Fault]]:
        """The cases that fail, and how."""
        for r in self.results:
            if r.status not in ACCEPTABLE:
                yield r.case, Fault(r.status, r.detail)

    def summary(self) -> str:
        """One line: how many cases, and the largest error relative to what is allowed."""
        if self.not_run:
            return f"not run: {self.not_run}"
        counts = Counter(r.status for r in self.results)
        text = f"{counts['pass']} of {len(self.results)} cases pass"
        others = ", ".join(f"{n} {status}" for status, n in counts.items() if status != "pass")
        shares = [e.max_error / e.allowed for r in self.results for e in r.errors if e.allowed]
        worst = f"; largest error {max(shares):.0%} of the tolerance" if shares else ""
        return text + (f" ({others})" if others else "") + worst

    def header(self) -> tuple[str, ...]:
        return ("case", "mode", "shape", "tiling", "result", "max error", "allowed", "mean error", "wrong")

    def rows(self) -> Iterator[tuple[str, ...]]:
        for r in self.results:
            shape = shape_text(r.case.shape)
            cells = ("", "", "", "")
            if r.errors:
                e = max(r.errors, key=lambda e: e.mismatches or e.max_error / (e.allowed or 1))
                cells = (f"{e.max_error:.2e}", f"{e.allowed:.2e}", f"{e.mean_error:.2e}", str(e.mismatches))
            yield (r.case.name, r.case.mode, shape, r.case.tiling or "", r.status, *cells)

    def findings(self) -> Iterator[str]:
        """One line for each fault, and for each reason why a case did not run."""
        seen: set[str] = set()
        for r in self.results:
            for text in r.detail:
                if r.status != "skipped" or text not in seen:
                    yield f"{r.case.name}, {r.case.mode}: {r.status}: {text}"
                seen.add(text)
        yield from self.shrunk.lines() if self.shrunk else ()

    def tolerances(self) -> tuple[str, ...]:
        """The tolerance of each output: the largest, which is that of the longest sums."""
        largest: dict[str, OutputError] = {}
        for e in (e for r in self.results for e in r.errors):
            if e.name not in largest or _terms(e) > _terms(largest[e.name]):
                largest[e.name] = e
        origin = ", as given" if self.allowed else ""
        return tuple(f"{e.name}: |error| <= {e.tolerance}{origin}" for e in largest.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": str(self.path),
            "digest": self.digest,
            "ok": self.ok,
            "not_run": self.not_run or None,
            "summary": self.summary(),
            "given_tolerance": asdict(self.allowed) if self.allowed else None,
            "environment": self.environment,
            "cases": [asdict(r) for r in self.results],
            "shrunk": self.shrunk.to_json() if self.shrunk else None,
        }


def check_kernel(
    path: Path,
    shapes: Sequence[Shape] = (),
    timeout: float = CASE_SECONDS,
    on_case: OnCase | None = None,
    given: Path | None = None,
    allowed: Tolerance | None = None,
    suite: Sequence[Row] = (),
) -> CheckReport:
    """Checks the generated package or Python file at `path`, in another process.

    shapes: problems to add to the edge shapes. suite: problems to check instead. timeout: seconds per case, after
    which it counts as hung. given: the path that the report names, where it is another one. allowed: the tolerance of
    every output, instead of the one that follows from dtypes and problem.
    CutegenError: it cannot be loaded or compiled.
    """
    setup, results = run_cases(path, shapes, timeout, on_case, allowed, suite)
    if setup["environment"]["gpu"] is None and all(map(_lacks_gpu, results)):
        # Nothing ran for lack of a GPU: that is the reason, not the kernel.
        return CheckReport(setup["name"], given or path, not_run=f"no CUDA device; {results[0].detail[0]}")
    environment = setup["environment"]
    return CheckReport(setup["name"], given or path, setup["digest"], environment, tuple(results), allowed=allowed)


def _lacks_gpu(result: CaseResult) -> bool:
    return any(NO_GPU.search(text) for text in result.detail)


def _terms(error: OutputError) -> tuple[float, float]:
    return error.tolerance.scaled, error.tolerance.absolute
