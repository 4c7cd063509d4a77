"""What locks say of their winners, as Markdown: how fast they were beside a library, and where they were not faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path

from cutegen.resolve.lock import Lock, read_lock
from cutegen.resolve.winners import Winner


@dataclass(frozen=True, slots=True)
class NamedLock:
    """name: of the spec. link: where a page finds the lock."""

    name: str
    link: str
    lock: Lock

    def proofs(self) -> dict[tuple[str, str], list[Winner]]:
        """Winners in use that were measured beside a library, by device and library."""
        found: dict[tuple[str, str], list[Winner]] = {}
        for winner in self.lock.winners:
            if winner.speed and not winner.unused:
                found.setdefault((winner.device, winner.baseline), []).append(winner)
        return found


def read_locks(paths: Sequence[tuple[Path, str]]) -> list[NamedLock]:
    """Those that exist, of pairs (the spec's path, the link to its lock)."""
    from cutegen.resolve.lock import lock_path

    read = [(spec.stem, link, read_lock(lock_path(spec))) for spec, link in paths]
    return [NamedLock(name, link, lock) for name, link, lock in read if lock]


def summary_table(locks: Sequence[NamedLock]) -> Iterator[str]:
    """A row for each lock, device and library. The figures are those of the proofs: a median each, and its interval."""
    yield "| lock | GPU | relative to | problems | geomean speed | by lower ends | least | below 1 |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for named in locks:
        for (device, baseline), winners in named.proofs().items():
            speeds = [w.speed for w in winners if w.speed]
            medians = [median for _, median, _ in speeds]
            figures = (_geomean(medians), _geomean([low for low, _, _ in speeds]), min(medians))
            cells = [f"[{named.name}]({named.link})", device, f"`{baseline}`", str(len(winners))]
            cells += [*(f"{figure:.3f}" for figure in figures), str(sum(m < 1 for m in medians))]
            yield f"| {' | '.join(cells)} |"


def slower_table(locks: Sequence[NamedLock]) -> Iterator[str]:
    """Every winner whose median is below 1, the least first."""
    found = [(n.name, w) for n in locks for ws in n.proofs().values() for w in ws if w.speed and w.speed[1] < 1]
    if not found:
        yield "No winner is slower than what it was measured beside."
        return
    yield "| lock | problem | GPU | tiling | us | relative to | speed |"
    yield "| --- | --- | --- | --- | ---: | --- | --- |"
    for name, w in sorted(found, key=lambda pair: (pair[1].speed or (0, 0, 0))[1]):
        assert w.speed
        low, median, high = w.speed
        problem = ", ".join(f"{dim} {extent}" for dim, extent in w.problem.items())
        speed = f"{median:.3f} [{low:.3f}, {high:.3f}]"
        yield f"| {name} | {problem} | {w.device} | `{w.tiling}` | {w.us:.1f} | `{w.baseline}` | {speed} |"


def _geomean(values: Sequence[float]) -> float:
    return exp(fsum(map(log, values)) / len(values))
