"""What `bench` measured: candidates, problems, and a whole run, as figures and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, TypeAlias

from cutegen.defaults import Behind
from cutegen.run.candidates import Candidate
from cutegen.run.device import Rates
from cutegen.run.environment import Reading
from cutegen.run.intervals import Interval, Summary, speed_ratio, summarise_speeds
from cutegen.run.row import Row
from cutegen.run.shapes import Shape

# What a result calls itself; a reader refuses other versions. VERSION: with all that follows from the samples, as
# `bench --json` prints it. STORED_VERSION: without, as files have it (`cutegen.report.stored`).
FORMAT, VERSION, STORED_VERSION = "cutegen bench", 2, 3


@dataclass
class Measured:
    """One candidate's figures. samples: seconds per launch, by round. speed: relative to `against` in the same rounds.

    speeds: see `relate`; by library, the baseline's name and the interval. share: of the floor that the rates of this
    run set, or a candidate that only moves the data. right: outputs after timing (None: not comparable). step_seconds:
    what a model runs once per step beside; None where nothing is needed. alone: nothing else is in its times, so that
    rates mean something.
    """

    candidate: Candidate
    samples: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    host_seconds: float = 0.0
    time: Interval | None = None
    speed: Interval | None = None
    speeds: dict[str, tuple[str, Interval]] = field(default_factory=dict)
    share: float | None = None
    right: bool | None = None
    step_seconds: float | None = None
    alone: bool = True

    def to_json(self) -> dict[str, Any]:
        c, t = self.candidate, self.time
        assert t is not None
        worst = max(c.errors, key=lambda e: e.max_error, default=None)
        return {
            "name": c.name,
            "baseline": c.is_baseline,
            "library": c.rival,
            "does": c.does,
            "tiling": c.tiling,
            "numbers": asdict(c.numbers) if is_dataclass(c.numbers) and not isinstance(c.numbers, type) else None,
            "digest": c.subject.digest if c.subject and not c.is_baseline else None,
            "sets": c.sets,
            "flops": c.flops,
            "bytes": c.moved,
            "seconds": asdict(t),
            "tflops": c.flops / t.median / 1e12 if c.flops and self.alone else None,
            "terabytes_per_second": c.moved / t.median / 1e12 if c.moved and self.alone else None,
            "speed": asdict(self.speed) if self.speed else None,
            "speeds": {library: {"against": name, **asdict(i)} for library, (name, i) in self.speeds.items()},
            "share_of_floor": self.share,
            "host_seconds": self.host_seconds,
            "step_seconds": self.step_seconds,
            "sm_mhz": [r.sm_mhz for r in self.readings],
            "watts": [r.watts for r in self.readings],
            "celsius": [r.celsius for r in self.readings],
            "right": self.right,
            "max_error": worst.max_error if worst else None,
            "allowed": worst.allowed if worst else None,
            "samples": self.samples,
        }


def relate(measured: Sequence[Measured], against: str) -> None:
    """Gives each kernel its speeds relative to libraries, and to the candidate `against` if that is of none. Of several
    baselines of one library the one with the smallest median counts, which leans, if anything, to that library."""
    for m in measured:
        if m.candidate.is_baseline:
            continue
        own = [b for b in measured if b.candidate.compares_with(m.candidate)]
        for rival in dict.fromkeys(b.candidate.rival for b in own):
            best = min((b for b in own if b.candidate.rival == rival), key=lambda b: b.time.median if b.time else 0)
            m.speeds[rival] = best.candidate.name, speed_ratio(best.samples, m.samples)
        if m.speed and against not in {b.candidate.name for b in own}:
            m.speeds[against] = against, m.speed


Samples: TypeAlias = "tuple[Sequence[float], Mapping[str, str]]"
"""Of a candidate: seconds by round, and what it is relative to: library -> the name of its baseline."""


def summarise(problems: Iterable[Mapping[str, Samples]]) -> dict[str, dict[str, Summary]]:
    """Kernel -> what it is relative to -> over all problems that have both. problems: their candidates by name."""
    found: dict[tuple[str, str], list[tuple[Sequence[float], Sequence[float]]]] = {}
    for candidates in problems:
        for kernel, (samples, relative) in candidates.items():
            for reference, name in relative.items():
                found.setdefault((kernel, reference), []).append((candidates[name][0], samples))
    result: dict[str, dict[str, Summary]] = {}
    for (kernel, reference), pairs in found.items():
        result.setdefault(kernel, {})[reference] = summarise_speeds([r for r, _ in pairs], [t for _, t in pairs])
    return result


@dataclass
class ProblemReport:
    """One shape. against: the candidate that speeds refer to. skipped: name -> reason. row: the suite's, if any.

    first: what was measured before, where that was repeated and no longer counts.
    """

    shape: Shape
    against: str
    measured: list[Measured]
    skipped: dict[str, str]
    warm_up_seconds: float
    row: Row | None = None
    first: Sequence[Measured] = ()

    @property
    def ok(self) -> bool:
        everything = (*self.measured, *self.first)
        return all(m.right is not False for m in everything if not m.candidate.is_baseline)

    def below(self, floor: float) -> bool:
        """Whether the interval of some kernel's speed reaches under a floor."""
        speeds = [m.speed for m in self.measured if not m.candidate.is_baseline]
        return any(speed is not None and speed.low < floor for speed in speeds)

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            **(self.row or Row(self.shape)).to_json(),
            "against": self.against,
            "warm_up_seconds": self.warm_up_seconds,
            "candidates": [m.to_json() for m in self.measured],
            **({"first": [m.to_json() for m in self.first]} if self.first else {}),
            "skipped": self.skipped,
        }


@dataclass(frozen=True)
class LeftOut:
    """A problem that was not measured. reasons: by kernel."""

    row: Row
    reasons: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {"shape": self.row.shape, "name": self.row.name, "reasons": dict(self.reasons)}


@dataclass
class BenchReport:
    """Every problem measured. left_out: those of the suite that were not. notes: what makes the figures less than they
    look, in words. complete: nothing is still to come. sms: the most that kernels ran on; None: all. behind: what stood
    ahead of each launch and is timed with it. floor: problems with a speed whose interval reached under it were
    measured again; None: none was."""

    environment: dict[str, Any]
    rates: Rates
    rounds: int
    slice_seconds: float
    suite: str
    problems: list[ProblemReport]
    notes: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()
    complete: bool = False
    sms: int | None = None
    behind: Behind = "nothing"
    floor: float | None = None

    @property
    def ok(self) -> bool:
        return all(p.ok for p in self.problems)

    def summaries(self) -> Mapping[str, Mapping[str, Summary]]:
        """Kernel -> what it is relative to -> over all problems that have both."""
        return summarise(
            {m.candidate.name: (m.samples, {r: name for r, (name, _) in m.speeds.items()}) for m in p.measured}
            for p in self.problems
        )

    def to_json(self, command: str) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "complete": self.complete,
            "ok": self.ok,
            "command": command,
            "suite": self.suite,
            "environment": self.environment,
            "rates": asdict(self.rates),
            "rounds": self.rounds,
            "slice_seconds": self.slice_seconds,
            "sms": self.sms,
            "behind": self.behind,
            "floor": self.floor,
            "interval": "order statistics around the median of rounds; speed: median of the rounds' ratios",
            "inputs": "N(0, 1), the last operand scaled to unit variance of the product; sets exceed L2 twice",
            "notes": list(self.notes),
            "summaries": {k: {ref: asdict(s) for ref, s in by.items()} for k, by in self.summaries().items()},
            "problems": [p.to_json() for p in self.problems],
            "left_out": [row.to_json() for row in self.left_out],
        }
