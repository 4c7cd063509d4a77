"""What a tune found, as JSON and as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, get_args

from cutegen.diagnostics import CutegenError
from cutegen.families.knobs import show
from cutegen.resolve import Lock
from cutegen.resolve.winners import DEFAULT, Winner
from cutegen.run.intervals import ratio_text, speed_ratio
from cutegen.run.shapes import Shape
from cutegen.tune.pool import Pool
from cutegen.tune.search import Trial, iterate_ranked, scores
from cutegen.tune.stages import BRIEF_PROOF, LONG_PROOF, PROOF
from cutegen.tune.store import FaultKind

HEADER = ("candidate", "us", "speed", "of baseline", "measured", "result")
SHOWN = 8  # candidates of a problem in the table; JSON has them all


@dataclass
class TunedProblem:
    """One problem. best: the winner, or None where the default stands, stands for want of time (`stopped`: why), or
    where nothing could be compared. differs: the winner's knobs that are not the default's. crowded: figures that are
    not trusted."""

    problem: Shape
    pool: Pool
    trials: list[Trial] = field(default_factory=list)
    best: Trial | None = None
    differs: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stopped: str = ""
    crowded: bool = False
    seconds: float = 0.0

    @property
    def nearest(self) -> Trial | None:
        """The winner, else the fastest of those that were measured longest."""
        timed = [t for t in self.trials if t.timing and not t.fault]
        score = scores(timed)
        return self.best or max(timed, key=lambda t: (len(t.timing.own) if t.timing else 0, score(t)), default=None)

    def counts(self) -> Mapping[str, int]:
        """How many candidates came to what."""
        faults = Counter(t.fault.kind for t in self.trials if t.fault)
        timed = [t for t in self.trials if t.timing and not t.fault]
        return {
            "candidates": len(self.trials),
            "measured": sum(not t.stored for t in timed),
            "from_store": sum(t.stored for t in timed),
            "not_measured": len(self.trials) - len(timed) - faults.total(),
            "pruned": sum(p.count for p in self.pool.pruned),
            "left_out": self.pool.left_out,
            **{kind: faults[kind] for kind in get_args(FaultKind)},
        }

    def verdict(self) -> str:
        """The result in a line."""
        nearest = self.nearest
        if self.crowded:
            return "not trusted: another process used the GPU"
        if self.best and self.best.speed:
            return f"{self.best.name}: {ratio_text(self.best.speed)} of the default"
        if self.stopped:
            return f"nothing is proved: {self.stopped}"
        if nearest is None or nearest.speed is None:
            return "the default stands: no candidate could be measured"
        return f"the default stands: the best of the others, {nearest.name}, has {ratio_text(nearest.speed)}"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells under HEADER: the default, and the candidates that came furthest."""
        nearest = self.nearest
        if nearest and nearest.timing:
            timing = nearest.timing
            beside = ratio_text(speed_ratio(timing.baseline, timing.default)) if timing.baseline else ""
            yield DEFAULT, _us(timing.default), "1", beside, nearest.stage, ""
        for trial in list(iterate_ranked([t for t in self.trials if t.timing and not t.fault]))[:SHOWN]:
            assert trial.timing
            beside = ratio_text(trial.beside_baseline) if trial.beside_baseline else ""
            speed = ratio_text(trial.speed) if trial.speed else ""
            stage = trial.stage + (", stored" if trial.stored else "")
            yield trial.name, _us(trial.timing.own), speed, beside, stage, "wins" if trial is self.best else ""

    def remarks(self) -> Iterator[str]:
        """What the winner is, and what did not go as it should, with reasons."""
        if self.differs:
            yield f"{self.best.name if self.best else ''}: {describe_knobs(self.differs)}"
        counts = self.counts()
        words = [f"{n} {word.replace('_', ' ')}" for word, n in counts.items() if n]
        yield ", ".join(words) + f"; {self.seconds:.1f} s"
        for pruned in self.pool.pruned:
            yield f"pruned {pruned.count} by `{pruned.rule}`, such as: {pruned.reason}"
        for trial in self.trials:
            if trial.fault:
                yield f"{trial.fault.kind} {trial.name}: {trial.fault.reason}"
        yield from self.notes

    def to_json(self) -> dict[str, Any]:
        by_name = [
            {
                "name": trial.name,
                "knobs": dict(proposal.knobs),
                "why": proposal.why,
                "kernel": trial.kernel,
                "stage": trial.stage or None,
                "from_store": trial.stored,
                "fault": asdict(trial.fault) if trial.fault else None,
                "seconds": median(trial.timing.own) if trial.timing else None,
                "speed": asdict(trial.speed) if trial.speed else None,
                "of_baseline": asdict(trial.beside_baseline) if trial.beside_baseline else None,
                "samples": asdict(trial.timing) if trial.timing else None,
            }
            for proposal, trial in zip(self.pool.tried, self.trials)
        ]
        return {
            "problem": self.problem,
            "verdict": self.verdict(),
            "winner": self.best.name if self.best else None,
            "trusted": not self.crowded,
            "stopped": self.stopped or None,
            "seconds": self.seconds,
            "counts": self.counts(),
            "pruned": [asdict(p) for p in self.pool.pruned],
            "candidates": by_name,
            "notes": self.notes,
        }


@dataclass
class TuneReport:
    """problems: those that were searched; faults: why others could not be; not_reached: for want of time, or,
    if broken, because nothing could be measured any more. interrupted: by Ctrl-C; what was proved counts.

    stale: winners of this device that were measured with other tools, or against another default. lock: what it says
    now; written: whether that is new. failed: why it was not written though it should.
    """

    spec: Path
    device: str
    toolchain: str
    problems: list[TunedProblem] = field(default_factory=list)
    faults: list[CutegenError] = field(default_factory=list)
    not_reached: list[Shape] = field(default_factory=list)
    broken: bool = False
    interrupted: bool = False
    stale: list[Winner] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lock: Lock | None = None
    written: bool = False
    failed: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not (self.failed or self.faults or any(p.crowded for p in self.problems))

    def remarks(self) -> Iterator[str]:
        """What is to be known beside the problems."""
        if self.not_reached:
            said = "nothing more could be measured" if self.broken else "the budget is spent"
            said = "interrupted" if self.interrupted else said
            left = f"{len(self.not_reached)} problem{'s are' if len(self.not_reached) > 1 else ' is'} left"
            yield f"{said}: {left}; the same command goes on"
        elif self.interrupted:
            yield "interrupted: the same command goes on"
        unbeaten = sum(w.tiling == DEFAULT for w in self.stale)
        for count, what, remedy in (
            (len(self.stale) - unbeaten, "a winner", "--confirm measures those again"),
            (unbeaten, "nothing that beats the default", "a tune without --confirm searches again"),
        ):
            if count:
                problems = f"{count} problem{'s' * (count > 1)}"
                yield (
                    f"{problems} for which {what} was found on this device against another default or with another "
                    f"toolchain; {remedy}"
                )
        yield from self.notes

    def to_json(self, command: str) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "command": command,
            "spec": str(self.spec),
            "device": self.device,
            "toolchain": self.toolchain,
            "seconds": self.seconds,
            "lock_written": self.written,
            "failed": self.failed or None,
            "interval": "order statistics around the median of the rounds' ratios default / candidate",
            "proof": f"{PROOF.key}, or {LONG_PROOF.key} where these leave it open, with a budget down to "
            f"{BRIEF_PROOF.key}: rounds that no choice was made by",
            "winners": [asdict(w) for w in self.lock.winners if w.device == self.device] if self.lock else [],
            "stale": [asdict(w) for w in self.stale],
            "interrupted": self.interrupted,
            "not_reached": self.not_reached,
            "faults": [fault.message for fault in self.faults],
            "notes": self.notes,
            "problems": [p.to_json() for p in self.problems],
        }


def describe_knobs(knobs: Mapping[str, object]) -> str:
    """Knobs in a line, by the last steps of their paths."""
    return " ".join(f"{key}={show(value)}" for key, value in knobs.items())


def _us(seconds: tuple[float, ...]) -> str:
    return f"{median(seconds) * 1e6:.2f}"
