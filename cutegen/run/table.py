"""A bench report as people read it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from cutegen.run.bench import BenchReport, Measured, ProblemReport

HEADER = ("candidate", "what", "us", "TFLOP/s", "TB/s", "of floor", "speed", "host us", "MHz", "W", "result")


def row(m: Measured) -> tuple[str, ...]:
    """The cells under `HEADER`."""
    c, t = m.candidate, m.time
    assert t is not None
    speed = f"{m.speed.median:.3f} [{m.speed.low:.3f}, {m.speed.high:.3f}]" if m.speed else "1"
    words = {True: "right", False: "WRONG", None: "not compared"}
    return (
        c.name,
        c.tiling or c.does,
        f"{t.median * 1e6:.2f}",
        f"{c.flops / t.median / 1e12:.1f}" if c.flops else "",
        f"{c.moved / t.median / 1e12:.2f}" if c.moved else "",
        f"{m.share:.0%}" if m.share else "",
        speed,
        f"{m.host_seconds * 1e6:.1f}",
        f"{median(r.sm_mhz for r in m.readings):.0f}" if m.readings else "",
        f"{median(r.watts for r in m.readings):.0f}" if m.readings else "",
        words[m.right],
    )


def describe_problem(problem: ProblemReport) -> str:
    first = problem.measured[0].candidate
    work = f"{first.flops / 1e9:.4g} GFLOP, " if first.flops else ""
    shape = " ".join(f"{d}={n}" for d, n in problem.shape.items())
    return f"{shape}: {work}{(first.moved or 0) / 1e6:.4g} MB, {len(first.inputs)} sets of inputs in turn"


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
    if not any(m.readings for p in report.problems for m in p.measured):
        yield "clock and power: not available (NVML)"
    for note in report.notes:
        yield f"note: {note}"
