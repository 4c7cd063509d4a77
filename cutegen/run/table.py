"""A bench report as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from cutegen.run.bench import BenchReport, Measured, ProblemReport
from cutegen.run.intervals import Interval

HEADER = ("candidate", "what", "us", "TFLOP/s", "TB/s", "of floor", "speed", "host us", "step us", "MHz", "W", "result")
RESULT = {True: "right", False: "WRONG", None: "not compared"}


def row(m: Measured) -> tuple[str, ...]:
    """The cells under `HEADER`."""
    c, t = m.candidate, m.time
    assert t is not None
    return (
        c.name,
        c.tiling or c.does,
        f"{t.median * 1e6:.2f}",
        f"{c.flops / t.median / 1e12:.1f}" if c.flops else "",
        f"{c.moved / t.median / 1e12:.2f}" if c.moved else "",
        f"{m.share:.0%}" if m.share else "",
        _speed(m.speed) if m.speed else "1",
        f"{m.host_seconds * 1e6:.1f}" if m.host_seconds else "",
        f"{m.step_seconds * 1e6:.1f}" if m.step_seconds else "",
        f"{median(r.sm_mhz for r in m.readings):.0f}" if m.readings else "",
        f"{median(r.watts for r in m.readings):.0f}" if m.readings else "",
        RESULT[m.right],
    )


def describe_problem(problem: ProblemReport) -> str:
    first = problem.measured[0].candidate
    work = f"{first.flops / 1e9:.4g} GFLOP, " if first.flops else ""
    shape = " ".join(f"{d}={n}" for d, n in problem.shape.items())
    return f"{shape}: {work}{(first.moved or 0) / 1e6:.4g} MB, {first.sets} sets of inputs in turn"


def _speed(value: Interval) -> str:
    return f"{value.median:.3f} [{value.low:.3f}, {value.high:.3f}]"


def suite_header(report: BenchReport) -> tuple[str, ...]:
    dims = next(iter(report.problems)).shape
    return (*dims, "candidate", "what", "us", "of floor", "speed", "step us", "result")


def suite_rows(report: BenchReport) -> Iterator[tuple[str, ...]]:
    """A line for each candidate of each problem."""
    for problem in report.problems:
        for m in problem.measured:
            assert m.time is not None
            yield (
                *map(str, problem.shape.values()),
                m.candidate.name,
                m.candidate.tiling or m.candidate.does,
                f"{m.time.median * 1e6:.2f}",
                f"{m.share:.0%}" if m.share else "",
                _speed(m.speed) if m.speed else "1",
                f"{m.step_seconds * 1e6:.1f}" if m.step_seconds else "",
                RESULT[m.right],
            )


def describe_skipped(report: BenchReport) -> Iterator[str]:
    """Each reason once, and on how many problems."""
    counts = Counter((name, reason) for p in report.problems for name, reason in p.skipped.items())
    for (name, reason), n in counts.items():
        yield f"skipped {name} on {n} of {len(report.problems)} problems: {reason}"


def describe_run(report: BenchReport) -> Iterator[str]:
    """How it was measured, in what the ratios are, and what to distrust."""
    rates, settings = report.rates, report.settings
    yield (
        f"floor, measured in this run: {rates.matmul / 1e12:.0f} TFLOP/s (cuBLAS {rates.dtype}, 8192 cubed), "
        f"{rates.copy / 1e12:.2f} TB/s copied, {rates.read / 1e12:.2f} TB/s read"
    )
    coverage = min((m.time.coverage for p in report.problems for m in p.measured if m.time), default=0.0)
    against = ", ".join(dict.fromkeys(p.against for p in report.problems))
    yield (
        f"speed: relative to {against}, median of {settings.rounds} interleaved rounds' ratios; in brackets, order "
        f"statistics that enclose the median with {coverage:.1%}"
    )
    for name, s in report.summaries().items():
        if s.problems > 1:
            yield (
                f"{name}: geomean {_speed(s.geomean)} over {s.problems} problems, from {s.least:.3f} to {s.most:.3f}, "
                f"{s.behind} below 1"
            )
    if any(m.step_seconds for p in report.problems for m in p.measured):
        yield "step us: once per step of a model beside the launches; where it is empty, scheduling is in the kernel"
    if not any(m.readings for p in report.problems for m in p.measured):
        yield "clock and power: not available (NVML)"
    for note in report.notes:
        yield f"note: {note}"
