"""What `tune` says of its winners, in a lock or in its JSON, as Markdown: how fast they are relative to a library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from cutegen.diagnostics import CutegenError
from cutegen.report.result import describe_fault, is_tuned, read_json
from cutegen.resolve.lock import read_lock
from cutegen.resolve.winners import Winner


@dataclass(frozen=True, slots=True)
class Tuned:
    """name: of the spec, or of the tune's file. link: where a page finds the file. gains: of a tune, by problem, how
    many times as fast its winner is as what ran before; 1 where that stands."""

    name: str
    link: str
    winners: Sequence[Winner]
    gains: Sequence[float] = ()

    def proofs(self) -> dict[tuple[str, str], list[Winner]]:
        """Winners in use that were measured against a library, by device and library."""
        found: dict[tuple[str, str], list[Winner]] = {}
        for winner in self.winners:
            if winner.speed and not winner.unused:
                found.setdefault((winner.device, winner.baseline), []).append(winner)
        return found


class _Speed(BaseModel):
    median: float


class _Candidate(BaseModel):
    name: str
    speed: _Speed | list[float] | None = None


class _Problem(BaseModel):
    """Of what `tune --json` printed, as far as gains need it."""

    winner: str | None
    candidates: list[_Candidate]

    @property
    def gain(self) -> float:
        speeds = {c.name: c.speed.median for c in self.candidates if isinstance(c.speed, _Speed)}
        return speeds.get(self.winner or "", 1.0)


def read_locks(paths: Sequence[tuple[Path, str]]) -> list[Tuned]:
    """Those that exist, of pairs (the spec's path, the link to its lock)."""
    from cutegen.resolve.lock import lock_path

    read = [(spec.stem, link, read_lock(lock_path(spec))) for spec, link in paths]
    return [Tuned(name, link, lock.winners) for name, link, lock in read if lock]


def read_tune(path: Path, link: str) -> Tuned:
    """What `tune --json` printed. CutegenError (exit 2): it is something else, or damaged."""
    data = read_json(path)
    if not isinstance(data, dict) or not is_tuned(data):
        raise CutegenError(f"{path} is not what `cutegen tune --json` prints", exit_code=2)
    try:
        problems = TypeAdapter(list[_Problem]).validate_python(data.get("problems"))
        winners = TypeAdapter(list[Winner]).validate_python(data.get("winners"))
        return Tuned(path.stem, link, winners, tuple(problem.gain for problem in problems))
    except ValidationError as error:
        raise CutegenError(f"{path} is damaged: {describe_fault(error)}", "tune again", exit_code=2) from error


@dataclass(frozen=True, slots=True)
class Proved:
    """Speeds over problems: geomeans of the medians and of the lower ends, and the least median."""

    problems: int
    geomean: float
    low: float
    least: float
    below_one: int


def summarise_proofs(winners: Sequence[Winner]) -> Proved:
    speeds = [w.speed for w in winners if w.speed]
    medians = [median for _, median, _ in speeds]
    low = _geomean([low for low, _, _ in speeds])
    return Proved(len(speeds), _geomean(medians), low, min(medians), sum(m < 1 for m in medians))


def summary_table(locks: Sequence[Tuned]) -> Iterator[str]:
    """A row for each file, device and library. The figures are those of the proofs: a median each, and its interval."""
    yield "| from | GPU | relative to | problems | geomean speed | by lower ends | least | below 1 |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for named in locks:
        for (device, baseline), winners in named.proofs().items():
            s = summarise_proofs(winners)
            cells = [f"[{named.name}]({named.link})", device, f"`{baseline}`", str(s.problems)]
            cells += [*(f"{figure:.3f}" for figure in (s.geomean, s.low, s.least)), str(s.below_one)]
            yield f"| {' | '.join(cells)} |"


def gain_table(tunes: Sequence[Tuned]) -> Iterator[str]:
    """A row for each tune: how much faster its winners are than what ran before."""
    yield "| from | GPU | problems | winners over untuned | at most | proved faster |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for tuned in tunes:
        if not tuned.gains:
            remedy = "name what `tune --json` printed"
            raise CutegenError(f"{tuned.name} is not a tune with problems: a lock keeps no gains", remedy)
        faster = sum(gain > 1 for gain in tuned.gains)
        figures = f"{_geomean(tuned.gains):.3f} | {max(tuned.gains):.3f} | {faster}"
        devices = ", ".join(sorted({w.device for w in tuned.winners}))
        yield f"| [{tuned.name}]({tuned.link}) | {devices} | {len(tuned.gains)} | {figures} |"


def slower_table(locks: Sequence[Tuned]) -> Iterator[str]:
    """Every winner whose median is below 1, the least first."""
    found = [(name, w) for name, w in _proofs(locks) if w.speed and w.speed[1] < 1]
    if found:
        yield from _problem_table(sorted(found, key=lambda pair: (pair[1].speed or (0, 0, 0))[1]))
    else:
        yield "No winner is slower than its baseline."


def full_table(locks: Sequence[Tuned]) -> Iterator[str]:
    """Every winner."""
    yield from _problem_table(_proofs(locks))


def _proofs(locks: Sequence[Tuned]) -> list[tuple[str, Winner]]:
    return [(named.name, w) for named in locks for winners in named.proofs().values() for w in winners]


def _problem_table(found: Sequence[tuple[str, Winner]]) -> Iterator[str]:
    yield "| from | problem | GPU | tiling | us | relative to | speed |"
    yield "| --- | --- | --- | --- | ---: | --- | --- |"
    for name, w in found:
        assert w.speed
        low, median, high = w.speed
        problem = ", ".join(f"{dim} {extent}" for dim, extent in w.problem.items())
        speed = f"{median:.3f} [{low:.3f}, {high:.3f}]"
        yield f"| {name} | {problem} | {w.device} | `{w.tiling}` | {w.us:.1f} | `{w.baseline}` | {speed} |"


def _geomean(values: Sequence[float]) -> float:
    return exp(fsum(map(log, values)) / len(values))
