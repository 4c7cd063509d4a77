"""A result as people read it in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from cutegen.report.result import CandidateResult, ProblemResult, Result
from cutegen.run.intervals import ratio_text

HEADER = ("candidate", "what", "us", "TFLOP/s", "TB/s", "of floor", "speed", "host us", "step us", "MHz", "W", "result")
RIGHT = {True: "right", False: "WRONG", None: "not compared"}


def row(c: CandidateResult) -> tuple[str, ...]:
    """The cells under `HEADER`."""
    return (
        c.name,
        c.tiling or c.does,
        *rates(c),
        ratio_text(c.speed) if c.speed else "1",
        f"{c.host_seconds * 1e6:.1f}" if c.host_seconds else "",
        f"{c.step_seconds * 1e6:.1f}" if c.step_seconds else "",
        clock(c),
        f"{median(c.watts):.0f}" if c.watts else "",
        RIGHT[c.right],
    )


def rates(c: CandidateResult) -> tuple[str, str, str, str]:
    """us, TFLOP/s, TB/s, share of the floor."""
    return (
        f"{c.seconds.median * 1e6:.2f}",
        f"{c.tflops:.1f}" if c.tflops else "",
        f"{c.terabytes_per_second:.2f}" if c.terabytes_per_second else "",
        f"{c.share_of_floor:.0%}" if c.share_of_floor else "",
    )


def clock(c: CandidateResult) -> str:
    """MHz of the SMs, in the median of the rounds."""
    return f"{median(c.sm_mhz):.0f}" if c.sm_mhz else ""


def describe_problem(problem: ProblemResult) -> str:
    first = problem.candidates[0]
    work = f"{first.flops / 1e9:.4g} GFLOP, " if first.flops else ""
    return f"{problem.title}: {work}{(first.bytes or 0) / 1e6:.4g} MB, {first.sets} sets of inputs in turn"


def suite_header(result: Result) -> tuple[str, ...]:
    """Dims, names where problems have any, figures, a column for each library, and step times where there are any."""
    names = ("problem",) if any(p.name for p in result.problems) else ()
    steps = ("step us",) if _has_steps(result) else ()
    figures = ("candidate", "what", "us", "TFLOP/s", "TB/s", "of floor")
    return (*names, *_dims(result), *figures, *(f"x {name}" for name in result.libraries()), *steps, "result")


def suite_rows(result: Result) -> Iterator[tuple[str, ...]]:
    """A line for each candidate of each problem."""
    named, steps = any(p.name for p in result.problems), _has_steps(result)
    for problem in result.problems:
        for c in problem.candidates:
            yield (
                *((problem.name,) if named else ()),
                *(str(problem.shape.get(dim, "")) for dim in _dims(result)),
                c.name,
                c.tiling or c.does,
                *rates(c),
                *(ratio_text(c.speeds[library]) if library in c.speeds else "" for library in result.libraries()),
                *((f"{c.step_seconds * 1e6:.1f}" if c.step_seconds else "",) if steps else ()),
                RIGHT[c.right],
            )


def _dims(result: Result) -> list[str]:
    return list(dict.fromkeys(dim for p in result.problems for dim in p.shape))


def _has_steps(result: Result) -> bool:
    return any(c.step_seconds for p in result.problems for c in p.candidates)


def describe_skipped(result: Result) -> Iterator[str]:
    """Each reason once, and on how many problems."""
    total = len(result.problems) + len(result.left_out)
    counts = Counter((name, reason) for p in result.problems for name, reason in p.skipped.items())
    for (name, reason), n in counts.items():
        yield f"skipped {name} on {n} of {total} problems: {reason}"
    left_out = Counter("; ".join(_reasons(x.reasons.items())) for x in result.left_out)
    for reasons, n in left_out.items():
        yield f"not measured, {n} of {total} problems: {reasons}"


def _reasons(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Each reason once, behind the kernels that it is about."""
    kernels: dict[str, list[str]] = {}
    for kernel, reason in reasons:
        kernels.setdefault(reason, []).extend([kernel] if kernel else [])
    return (f"{', '.join(names)}: {reason}" if names else reason for reason, names in kernels.items())


def describe_repeats(result: Result) -> Iterator[str]:
    """What was measured again because a speed reached under the floor, and what it had been."""
    repeated = [p for p in result.problems if p.first]
    if not repeated:
        return
    floor = f"{result.floor:g}" if result.floor is not None else "the floor"
    count = f"{len(repeated)} of {len(result.problems)} problems"
    yield f"measured again, because a lower end was under {floor}, and only the second time counts: {count}"
    for p in repeated:
        now = {c.name: c.speed for c in p.candidates}
        for c in p.first:
            if not c.baseline and c.speed and (speed := now.get(c.name)):
                first = f"{ratio_text(c.speed)} in {len(c.samples)} rounds"
                yield f"{p.title}, {c.name}: {first}, then {ratio_text(speed)} in {p.rounds}"


def describe_run(result: Result) -> Iterator[str]:
    """How it was measured, in what the ratios are, and what to distrust."""
    rates = result.rates
    yield (
        f"floor, measured in this run: {rates.matmul / 1e12:.0f} TFLOP/s (cuBLAS {rates.dtype}, 8192 cubed), "
        f"{rates.copy_ / 1e12:.2f} TB/s copied, {rates.read / 1e12:.2f} TB/s read"
    )
    coverage = min((c.seconds.coverage for p in result.problems for c in p.candidates), default=0.0)
    against = "the fastest baseline of each library"
    if not result.suite or not any(c.baseline for p in result.problems for c in p.candidates):
        against = ", ".join(dict.fromkeys(p.against for p in result.problems))
    if result.problems:
        yield (
            f"speed: relative to {against}, median of {result.rounds} interleaved rounds' ratios; in brackets, order "
            f"statistics that enclose the median with {coverage:.1%}"
        )
    if result.behind == "plain":
        yield (
            "each launch stood behind an ordinary kernel, a copy of its first input, which lets nothing start early; "
            "times and ratios are of both together"
        )
    if result.behind == "itself":
        yield "each launch stood behind another one on the same tensors, in L2: times are those of a chain"
    yield from describe_repeats(result)
    if result.sms:
        yield f"kernels ran on at most {result.sms} SMs; baselines used all"
    for kernel, by_reference in result.summaries.items():
        for reference, s in by_reference.items():
            if s.problems > 1:
                yield (
                    f"{kernel}: geomean {ratio_text(s.geomean)} of {reference} over {s.problems} problems, from "
                    f"{s.least:.3f} to {s.most:.3f}, {s.below_one} below 1"
                )
    if _has_steps(result):
        yield "step us: once per step of a model beside the launches; where it is empty, scheduling is in the kernel"
    if not any(c.sm_mhz for p in result.problems for c in p.candidates):
        yield "clock and power: not available (NVML)"
    if not result.complete:
        yield "note: this result is not complete; its run was stopped"
    for note in result.notes:
        yield f"note: {note}"
