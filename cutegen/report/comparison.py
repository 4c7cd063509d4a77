"""Two results of `cutegen bench`: which kernels became slower or faster, beyond what noise explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cutegen.diagnostics import CutegenError
from cutegen.report.result import CandidateResult, LeftOutResult, ProblemResult, Result
from cutegen.run.intervals import LEVEL, Interval, median_interval, ratio_text

NameOf = Callable[[ProblemResult | LeftOutResult], str]
SLOWER, EQUAL, FASTER, WRONG = "slower", "equal", "faster", "wrong"
NAMES_SHOWN = 3  # of kernels and problems that only one result has


@dataclass(frozen=True, slots=True)
class Change:
    """One kernel on one problem, then and now. ratio: new speed over old, above 1 for faster; its ends are those of the
    two intervals at their furthest. against: what both speeds are relative to; "" when times themselves are compared,
    because the results share no reference. us: medians, old and new. verdict: WRONG where the results are wrong now,
    whatever the speed."""

    problem: str
    kernel: str
    against: str
    us: tuple[float, float]
    ratio: Interval
    verdict: str
    same_kernel: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Comparison:
    """margin: the loss that still counts as equal. lost: what ran then and cannot, or is wrong now, with the reason.
    unmeasured: what the old result has, and the new one neither has nor says why; added: what only the new one has.
    complete: the run of the new one was not stopped. differences: of the machine and the software, in words."""

    rows: tuple[Change, ...]
    margin: float
    lost: tuple[str, ...]
    unmeasured: tuple[str, ...]
    added: tuple[str, ...]
    complete: bool
    differences: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Everything of the old result was measured again, and is no slower: what was not measured proves nothing."""
        measured = self.complete and not self.unmeasured
        return measured and not self.lost and all(r.verdict != SLOWER for r in self.rows)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def compare(old: Result, new: Result, margin: float) -> Comparison:
    """Every kernel and problem that both results have.

    A kernel is slower when its speed, relative to the same reference in the same run, is below the old one by more than
    `margin` even where both intervals are stretched to their ends in its favour. The intervals' level grows with the
    number of comparisons (Bonferroni), as far as the rounds allow, so that many problems do not raise false alarms.

    CutegenError (exit 2): they are of different devices, measured behind different kernels, or have nothing in common.
    """
    before, now = old.device(), new.device()
    if before != now:
        remedy = "measure the old state again on this device"
        raise CutegenError(f"the old result is of another device: {before}, not {now}", remedy, exit_code=2)
    if old.behind != new.behind:
        message = f"the old result has launches behind {old.behind}, the new one behind {new.behind}"
        raise CutegenError(message, f"measure with --behind {old.behind}", exit_code=2)
    name_of = _namer(old, new)
    theirs, ours = _kernels(old, name_of), _kernels(new, name_of)
    common = [key for key in ours if key in theirs]
    refused = {key: reason for key, reason in _refused(new, name_of).items() if key not in ours}
    lost = [f"{key[1]} on {key[0]} cannot run any more: {refused[key]}" for key in theirs if key in refused]
    lost += [f"{key[1]} on {key[0]} is wrong now" for key in common if ours[key][1].right is False]
    if not common and not lost:
        message = "the two results have no kernel and problem in common"
        raise CutegenError(message, f"the old one was measured by: {old.command}", exit_code=2)
    level = 1 - (1 - LEVEL) / max(len(common), 1)
    rows = tuple(_judge(theirs[key], ours[key], level, margin) for key in common)
    unmeasured = tuple(f"{k} on {p}" for p, k in theirs if (p, k) not in ours and (p, k) not in refused)
    added = tuple(f"{k} on {p}" for p, k in ours if (p, k) not in theirs)
    return Comparison(rows, margin, tuple(lost), unmeasured, added, new.complete, tuple(_differences(old, new)))


def _namer(*results: Result) -> NameOf:
    """What tells problems apart: extents, because names may change; names as well where one result has the extents more
    than once, as of a layer in two dtypes."""
    counts = (Counter(p.dims for p in (*r.problems, *r.left_out)) for r in results)
    shared = {dims for count in counts for dims, n in count.items() if n > 1}
    return lambda p: p.title if p.dims in shared else p.dims


def _refused(result: Result, name_of: NameOf) -> dict[tuple[str, str], str]:
    """(problem, kernel) -> why it was not measured."""
    found = {(name_of(p), name): reason for p in result.problems for name, reason in p.skipped.items()}
    kernels = {c.name for p in result.problems for c in p.kernels()}
    for x in result.left_out:
        for name, reason in x.reasons.items():
            found |= {(name_of(x), kernel): reason for kernel in ([name] if name else kernels)}
    return found


def _kernels(result: Result, name_of: NameOf) -> dict[tuple[str, str], tuple[ProblemResult, CandidateResult]]:
    """(problem, kernel) -> both."""
    return {(name_of(p), c.name): (p, c) for p in result.problems for c in p.kernels()}


def _judge(
    old: tuple[ProblemResult, CandidateResult],
    new: tuple[ProblemResult, CandidateResult],
    level: float,
    margin: float,
) -> Change:
    (old_problem, then), (new_problem, now) = old, new
    samples: list[tuple[list[float], list[float]]] = [(then.samples, []), (now.samples, [])]
    against = ""
    for name in dict.fromkeys([new_problem.against, *(c.name for c in new_problem.candidates if c.baseline)]):
        found = old_problem.find(name), new_problem.find(name)
        if found[0] and found[1] and name != now.name:
            samples, against = [(then.samples, found[0].samples), (now.samples, found[1].samples)], name
            break
    a, b = (
        median_interval([r / t for r, t in zip(reference or [1.0] * len(own), own, strict=True)], level)
        for own, reference in samples
    )
    ratio = Interval(b.median / a.median, b.low / a.high, b.high / a.low, min(a.coverage, b.coverage))
    verdict = SLOWER if ratio.high < 1 - margin else FASTER if ratio.low > 1 + margin else EQUAL
    if now.right is False:
        verdict = WRONG
    us = then.seconds.median * 1e6, now.seconds.median * 1e6
    same = bool(now.digest) and now.digest == then.digest
    return Change(new_problem.title, now.name, against, us, ratio, verdict, same)


def _differences(old: Result, new: Result) -> Iterator[str]:
    for name in dict.fromkeys([*old.environment, *new.environment]):
        before, now = old.environment.get(name), new.environment.get(name)
        if before != now and name not in ("gpu", "measured_at"):
            yield f"{name} {before or 'none'} then, {now or 'none'} now"
    units = [(r.environment.get("gpu") or {}).get("uuid") for r in (old, new)]
    if units[0] != units[1]:
        yield "another unit of the same device"
    how = [f"{r.rounds} rounds of {r.slice_seconds * 1e3:g} ms" for r in (old, new)]
    if how[0] != how[1]:
        yield f"{how[0]} then, {how[1]} now"
    budgets = [f"on at most {r.sms} SMs" if r.sms else "on all SMs" for r in (old, new)]
    if budgets[0] != budgets[1]:
        yield f"{budgets[0]} then, {budgets[1]} now"
    if not old.complete:
        yield "the old result is not complete: its run was stopped"
    for result, which in ((old, "old"), (new, "new")):
        if any("do not trust" in note for note in result.notes):
            yield f"another process used the GPU during the {which} run: do not trust its figures"


def comparison_header() -> tuple[str, ...]:
    return ("problem", "kernel", "us then", "us now", "speed now / then", "relative to", "verdict")


def comparison_rows(comparison: Comparison, equal: bool) -> Iterator[tuple[str, ...]]:
    """The wrong and the slower ones first, then as measured. equal: those that did not change, too."""
    order = {WRONG: 0, SLOWER: 1, EQUAL: 2, FASTER: 2}
    shown = (r for r in comparison.rows if equal or r.verdict != EQUAL)
    for r in sorted(shown, key=lambda r: order[r.verdict]):
        times = (f"{us:.2f}" for us in r.us)
        yield (r.problem, r.kernel, *times, ratio_text(r.ratio), r.against or "time alone", r.verdict)


def describe_comparison(comparison: Comparison, more: str = "") -> Iterator[str]:
    """more: what to add to the line that counts them."""
    yield from comparison.lost
    if not comparison.complete:
        yield "the new result is not complete: its run was stopped; measure again"
    if comparison.unmeasured:
        named = _name_some(comparison.unmeasured)
        yield f"not measured now: {named}; measure all that the old result has, or compare with one that has no more"
    if comparison.rows:
        counts = {v: sum(r.verdict == v for r in comparison.rows) for v in (WRONG, SLOWER, EQUAL, FASTER)}
        counted = ", ".join(f"{count} {v}" for v, count in counts.items() if count or v != WRONG)
        coverage = min(r.ratio.coverage for r in comparison.rows)
        yield (
            f"{len(comparison.rows)} compared, beyond {comparison.margin:.1%}: {counted}; "
            f"in brackets, the furthest ends of two intervals of {coverage:.1%}{more}"
        )
    if alone := sum(not r.against for r in comparison.rows):
        yield f"note: {alone} by their times alone, which clocks and temperature change: no reference in both results"
    if same := sum(r.same_kernel and r.verdict in (SLOWER, FASTER) for r in comparison.rows):
        yield f"note: {same} of those that changed are the same kernel: what differs is around it"
    if comparison.added:
        yield f"note: only in the new result: {_name_some(comparison.added)}"
    for text in comparison.differences:
        yield f"note: {text}"


def _name_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return "; ".join(names[:NAMES_SHOWN]) + more
