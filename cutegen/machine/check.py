"""`cutegen check --on cpu`: executes compiled kernels in several orders of events, and judges results as on a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutegen.build.cpu import lacking_for_cpu
from cutegen.machine.case_list import CpuCase
from cutegen.machine.forms import describe
from cutegen.machine.worker import (
    MANY,
    CpuOutcome,
    CpuRequest,
    CpuSetup,
    KernelCode,
    OnOrder,
    OnSetup,
    OrderResult,
    execute,
)
from cutegen.run.attempts import ACCEPTABLE, Fault
from cutegen.run.case_list import Case
from cutegen.run.output_check import OutputError
from cutegen.run.shapes import shape_text
from cutegen.run.shrink import Shrunk
from cutegen.run.warp_timeline import WarpRow
from cutegen.runtime.accuracy import Tolerance

WHERE = "cpu"


@dataclass(frozen=True, slots=True)
class CpuReport:
    """Every case in every order. not_run: why nothing was executed, "" when something was. code: of each kernel, what
    was executed. strict, allowed: as in CpuRequest. timeline: of the first case, if it was asked for."""

    name: str
    path: Path
    digest: str = ""
    environment: dict[str, Any] | None = None
    orders: int = 0
    strict: bool = True
    cases: tuple[CpuCase, ...] = ()
    results: tuple[tuple[OrderResult, ...], ...] = ()
    code: tuple[KernelCode, ...] = ()
    not_run: str = ""
    allowed: Tolerance | None = None
    timeline: tuple[WarpRow, ...] = ()
    shrunk: Shrunk | None = None

    @property
    def ok(self) -> bool:
        return not self.not_run and all(r.status in ACCEPTABLE for r in self._all())

    @property
    def exit_code(self) -> int:
        """0: every case passed in every order; 1: one did not; 2: nothing was executed."""
        return 2 if self.not_run else int(not self.ok)

    def _all(self) -> Iterator[OrderResult]:
        for results in self.results:
            yield from results

    def _errors(self) -> Iterator[OutputError]:
        for result in self._all():
            yield from result.errors

    def failures(self) -> Iterator[tuple[Case, Fault]]:
        """The cases that fail, and how they do in the first such order."""
        for case, results in zip(self.cases, self.results):
            if fault := next((Fault(r.status, r.detail) for r in results if r.status not in ACCEPTABLE), None):
                yield case.case, fault

    def summary(self) -> str:
        """One line: where, in how many orders, what came out, and how much of the code was executed."""
        if self.not_run:
            return f"not run: {self.not_run}"
        counts = Counter(r.status for r in self._all())
        passed = sum(all(r.status in ACCEPTABLE for r in results) for results in self.results)
        races = f"{counts['race']} races" if counts["race"] else "no race"
        others = "".join(f", {n} {s}" for s, n in counts.items() if s not in ("pass", "race"))
        shares = [e.max_error / e.allowed for e in self._errors() if e.allowed]
        worst = f"; largest error {max(shares):.0%} of the tolerance" if shares else ""
        text = f"executed on the CPU: {self.orders} orders, {races}{others}; {passed} of {len(self.cases)} cases pass"
        return f"{text}{worst}{self._coverage()}"

    def _coverage(self) -> str:
        total = sum(code.instructions for code in self.code)
        missed = sum(len(code.unreached) for code in self.code)
        return f"; {(total - missed) / total:.0%} of the code executed" if total else ""

    def header(self) -> tuple[str, ...]:
        return ("case", "mode", "shape", "SMs", "tiling", "orders", "result", "max error", "allowed", "seconds")

    def rows(self) -> Iterator[tuple[str, ...]]:
        for case, results in zip(self.cases, self.results):
            good = sum(r.status in ACCEPTABLE for r in results)
            worst = next((r.status for r in results if r.status not in ACCEPTABLE), results[0].status)
            errors = [e for r in results for e in r.errors]
            cells = ("", "")
            if errors:
                e = max(errors, key=lambda e: e.mismatches or e.max_error / (e.allowed or 1))
                cells = (f"{e.max_error:.2e}", f"{e.allowed:.2e}")
            inner, seconds = case.case, sum(r.seconds for r in results)
            said = (shape_text(inner.shape), str(case.sms), inner.tiling or "", f"{good} of {len(results)}", worst)
            yield (inner.name, inner.mode, *said, *cells, f"{seconds:.1f}")

    def findings(self) -> Iterator[str]:
        """Each fault once, with the first order in which it came up, each reason why a case was not executed, and each
        form of an instruction that is not calibrated."""
        seen: set[str] = set()
        for case, results in zip(self.cases, self.results):
            for result in results:
                for text in result.detail:
                    if text not in seen:
                        where = f"{case.case.name}, {case.case.mode}, {case.sms} SMs, order {result.order}"
                        yield f"{where}: {result.status}: {text}"
                    seen.add(text)
        for form in sorted({form for code in self.code for form in code.uncalibrated}):
            yield describe(form)
        yield from self.shrunk.lines() if self.shrunk else ()

    def tolerances(self) -> tuple[str, ...]:
        """The tolerance of each output: the largest, which is that of the longest sums."""
        largest: dict[str, OutputError] = {}
        for e in self._errors():
            if e.name not in largest or e.tolerance.scaled > largest[e.name].tolerance.scaled:
                largest[e.name] = e
        origin = ", as given" if self.allowed else ""
        return tuple(f"{e.name}: |error| <= {e.tolerance}{origin}" for e in largest.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": str(self.path),
            "where": WHERE,
            "digest": self.digest,
            "ok": self.ok,
            "not_run": self.not_run or None,
            "summary": self.summary(),
            "orders": self.orders,
            "strict": self.strict,
            "given_tolerance": asdict(self.allowed) if self.allowed else None,
            "environment": self.environment,
            "cases": [
                {**asdict(case), "results": [asdict(r) for r in results]}
                for case, results in zip(self.cases, self.results)
            ],
            "code": [asdict(code) for code in self.code],
            "shrunk": self.shrunk.to_json() if self.shrunk else None,
        }


def check_on_cpu(
    request: CpuRequest,
    given: Path | None = None,
    on_setup: OnSetup | None = None,
    on_order: OnOrder | None = None,
) -> CpuReport:
    """Executes the generated package or Python file that the request names, in another process.

    given: the path that the report names, where it is another one. on_setup: told when it is compiled. CutegenError:
    it cannot be loaded or compiled.
    """
    path = given or request.path
    if lacking := lacking_for_cpu():
        return CpuReport(request.path.stem, path, not_run="; ".join(lacking))
    outcome = execute(request, on_setup, on_order)
    setup = outcome.setup
    if setup.lacking:
        return CpuReport(setup.name, path, setup.digest, not_run=_name_unknown(setup.lacking))
    if all(r.status == "skipped" for results in outcome.results for r in results):
        told = dict.fromkeys(text for results in outcome.results for r in results for text in r.detail)
        return CpuReport(setup.name, path, setup.digest, not_run="; ".join(told) or "there is no case")
    return _report(request, path, outcome)


def _report(request: CpuRequest, path: Path, outcome: CpuOutcome) -> CpuReport:
    setup = outcome.setup
    return CpuReport(
        name=setup.name,
        path=path,
        digest=setup.digest,
        environment=setup.environment,
        orders=request.orders,
        strict=request.strict,
        cases=setup.cases,
        results=tuple(map(tuple, outcome.results)),
        code=outcome.code,
        allowed=request.allowed,
        timeline=outcome.timeline,
    )


def _name_unknown(lacking: Sequence[str]) -> str:
    shown = "; ".join(text[:100] for text in lacking[:MANY])
    more = f" and {len(lacking) - MANY} more" if len(lacking) > MANY else ""
    return f"the kernel has instructions that are not simulated: {shown}{more}"


def expected_text(setup: CpuSetup, request: CpuRequest) -> str:
    """What executing is expected to take, in words; "" where it is not known."""
    known = [case.seconds for case in setup.cases if case.seconds is not None and case.seconds <= request.timeout]
    if not known:
        return ""
    return f"{len(setup.cases)} cases in {request.orders} orders each, about {sum(known) * request.orders:.0f} s"
